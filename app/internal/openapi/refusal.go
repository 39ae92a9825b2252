package openapi

import (
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// commonRefusals are the reasons of errors that any route may return, by status.
var commonRefusals = map[int][]protocol.Reason{
	400: {
		protocol.ReasonMalformedJSON, protocol.ReasonMissingControl, protocol.ReasonUnsupportedControl,
		protocol.ReasonMissingVersion,
		protocol.ReasonUnsupportedVersion,
	},
	429: {protocol.ReasonOverloaded},
	401: {protocol.ReasonUnauthorized}, 403: {protocol.ReasonForbidden}, 413: {protocol.ReasonPayloadTooLarge},
	415: {protocol.ReasonUnsupportedMediaType}, 422: {protocol.ReasonValidation, protocol.ReasonUnsupportedCodec},
	500: {protocol.ReasonInternal}, 503: {protocol.ReasonStoreUnavailable, protocol.ReasonBackendUnavailable},
}

// refusals returns the reasons of a route's errors by status: the reasons of its kind, from the checks before the verb,
// and its own.
func refusals(rt serve.Route) map[int][]protocol.Reason {
	list := []protocol.Reason{protocol.ReasonInternal, protocol.ReasonStoreUnavailable}
	if rt.Plane == serve.Work {
		list[1] = protocol.ReasonBackendUnavailable
	}
	if !rt.Open() {
		list = append(list, protocol.ReasonUnauthorized, protocol.ReasonForbidden, protocol.ReasonValidation)
		if !rt.Anywhere {
			list = append(list, protocol.ReasonNamespaceNotFound)
		}
	}
	switch {
	case rt.Sojourn:
	case rt.Plane == serve.Control:
		list = append(list, protocol.ReasonMissingControl, protocol.ReasonUnsupportedControl)
	case rt.Plane == serve.Work:
		list = append(list, protocol.ReasonMissingVersion, protocol.ReasonUnsupportedVersion)
	}
	if rt.Shape.Body != nil {
		list = append(list, protocol.ReasonMalformedJSON, protocol.ReasonValidation, protocol.ReasonUnsupportedMediaType,
			protocol.ReasonPayloadTooLarge, protocol.ReasonUnsupportedCodec)
	}
	if rt.Shape.Query != nil || strings.Contains(rt.Pattern, "{") {
		list = append(list, protocol.ReasonValidation)
	}
	// All other routes of the worker protocol return backend_unavailable instead.
	if !rt.Probe && (rt.Plane != serve.Work || strings.HasSuffix(rt.Pattern, "/poll")) {
		list = append(list, protocol.ReasonOverloaded)
	}
	list = append(list, rt.Shape.Refuses...)
	slices.Sort(list)
	by := map[int][]protocol.Reason{}
	for _, r := range slices.Compact(list) {
		status := statusOf(rt, r)
		by[status] = append(by[status], r)
	}
	return by
}

// statusOf returns the status of a reason at a route: worker_heartbeat responds to an unregistered worker with 404, all
// others with 412.
func statusOf(rt serve.Route, r protocol.Reason) int {
	if rt.Operation == "worker_heartbeat" && r == protocol.ReasonWorkerNotRegistered {
		return 404
	}
	return r.Status()
}
