// Package httpapi serves the control plane over HTTP: it decodes and authorises requests, calls methods of the broker
// and encodes responses.
package httpapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/admission"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/internal/connlimit"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// WorkerAPI is the worker protocol below /api/worker/, with its description for the cluster info.
type WorkerAPI interface {
	http.Handler
	Protocol() (version string, capabilities protocol.ServerCapabilities)
}

// Options of the control plane. The paths of handlers that are nil are unknown to the app.
type Options struct {
	// Dependencies of the routes: the broker implements the verbs, the view the read models.
	Starts           Starts
	Runs             Runs
	Continuations    Continuations
	Outcomes         Outcomes
	Schedules        Schedules
	Pools            Pools
	PoolViews        PoolViews
	BatchJobs        BatchJobs
	Namespaces       Namespaces
	Attributes       Attributes
	Retention        Retention
	Operations       Operations
	WorkerOperations WorkerOperations
	Process          Process

	RunViews      RunViews
	Fleet         FleetViews
	Queues        QueueViews
	ScheduleViews ScheduleViews
	BatchJobViews BatchJobViews
	System        SystemViews

	Auth      *auth.Auth
	WorkerAPI WorkerAPI
	Socket    http.Handler         // /api/socket.io; it authenticates its callers itself
	Dashboard http.Handler         // everything outside /api
	Registry  *prometheus.Registry // metrics that /metrics shows; nil: a new registry
	Metrics   *Metrics             // counts the responses; nil: created on the registry
	App       string               // id of this process
	Budget    *budget.Budget       // bytes in flight; nil: no limit
	Admission *admission.Limiter   // requests in progress; nil: no limit
	Log       zerolog.Logger
}

// API is the handler of the whole port.
type API struct {
	opt  Options
	mux  *http.ServeMux
	pipe serve.Pipeline
	info protocol.ClusterInfo // without the namespace, which depends on the request
	// failed sign-ins
	signIns *signIns

	searches searches
}

// New returns the handler.
func New(o Options) *API {
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics(o.Registry)
	}
	a := &API{opt: o, mux: http.NewServeMux(), signIns: newSignIns(), searches: newSearches()}
	a.pipe = serve.Pipeline{
		Auth: o.Auth, HasNamespace: o.Namespaces.HasNamespace, Header: VersionHeader, Version: Version,
		CheckVersion: checkVersion, Dashboard: true,
		Broken: []byte(`{"reason":"internal","message":"internal error"}`), Observe: o.Metrics.Observe, Log: o.Log,
		Budget: o.Budget, Admission: o.Admission,
	}
	a.info = a.clusterInfo()
	for _, rt := range routeTable() {
		rt.Shape = shapeOf(rt)
		rt.Reads = requestMemory[rt.Operation]
		a.mux.HandleFunc(rt.Method+" "+rt.Pattern, func(w http.ResponseWriter, r *http.Request) {
			a.pipe.Serve(&call{Call: serve.NewCall(w, r, rt.Route), api: a, rt: rt})
		})
	}
	return a
}

// requestMemory maps operations to the bytes that their reads of payloads count until the response. A held request
// counts its response only, and an export reserves its whole history when it knows the size.
var requestMemory = map[string]int64{
	"describe": serve.ManyReads, "describe_run": serve.ManyReads, "describe_run_by_id": serve.ManyReads,
	"debug_workflow": serve.ManyReads, "list": serve.ManyReads / 4,
}

// ServeHTTP answers one request.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := r.URL.Path
	switch {
	case p == "/api/socket.io" || strings.HasPrefix(p, "/api/socket.io/"):
		if a.opt.Socket != nil {
			unlessReserved(a.opt.Socket, w, r)
			return
		}
	case strings.HasPrefix(p, "/api/worker/"):
		if a.opt.WorkerAPI != nil {
			a.opt.WorkerAPI.ServeHTTP(w, r)
			return
		}
	case p == "/api" || strings.HasPrefix(p, "/api/") || p == "/up" || p == "/healthz" || p == "/readyz" ||
		p == "/metrics":
	case a.opt.Dashboard != nil:
		unlessReserved(a.opt.Dashboard, w, r)
		return
	}
	a.pipe.Routed(a.mux, w, r, func() serve.Exchange {
		rt := route{
			flow:  p == "/api/workflows" || strings.HasPrefix(p, "/api/workflows/"),
			Route: serve.Route{Operation: "unknown"},
		}
		return &call{Call: serve.NewCall(w, r, rt.Route), api: a, rt: rt}
	})
}

// unlessReserved serves requests without a route, unless the connection is reserved for health probes.
func unlessReserved(h http.Handler, w http.ResponseWriter, r *http.Request) {
	if connlimit.Reserved(r.Context()) {
		httpjson.StatusHeaders(w, http.StatusServiceUnavailable)
		http.Error(w, connlimit.ErrReserved.Error()+"; try again", http.StatusServiceUnavailable)
		return
	}
	h.ServeHTTP(w, r)
}

// call is one request to the broker.
type call struct {
	*serve.Call
	api *API
	rt  route

	// workflow ID of a start, generated by the app if the request has none; an error response contains it, so that the
	// caller can check whether the run was started
	started string
	about   string // object of an audited request, if its path does not name it
	detail  string // further text of the audit record: the run that the request affected, and the reason
}

// target returns the run in the path: the workflow's current run unless the path names one.
func (c *call) target() protocol.Target {
	return protocol.Target{Namespace: c.NS, WorkflowID: c.PathValue("workflow"), RunID: c.PathValue("run")}
}

// response is the result of a route: a status and a body. Without a body, the route has written the response itself.
type response struct {
	status int
	body   any
}

func ok(body any, err error) (response, error) { return response{http.StatusOK, body}, err }

// strict is the query parameter that makes the app reject a request with unknown members.
const strict = "strict"

// Do calls the verb, and writes the audit record if the route has one.
func (c *call) Do() (serve.Response, error) {
	if err := c.checkQuery(); err != nil {
		return serve.Response{}, err
	}
	out, err := c.rt.verb(c.api, c)
	if err == nil && c.rt.audit != "" {
		c.api.record(c)
	}
	return serve.Response{Status: out.status, Body: out.body}, err
}

// checkQuery reads the parameter strict, and reports or rejects unknown parameters.
func (c *call) checkQuery() error {
	if c.rt.Open() || c.URL.RawQuery == "" {
		return nil
	}
	q := c.query()
	if c.Strict = q.flag(strict); q.err != nil {
		return q.err
	}
	return c.ReadQuery(strict, auth.NamespaceParameter)
}

// record writes an audit record for an action that no other write contains. The action is already committed, so an
// error here is only logged.
func (a *API) record(c *call) {
	target := c.PathValue("workflow")
	if target == "" {
		target = c.PathValue("worker")
	}
	if c.about != "" {
		target = c.about
	}
	err := a.opt.Process.Audit(c.Ctx, store.Audit{
		Identity: c.Principal.Name, Action: c.rt.audit, Namespace: c.NS, Target: target, Detail: c.detail,
	})
	if err != nil {
		a.opt.Log.Error().Err(err).Str("action", c.rt.audit).Str("target", target).Msg("failed to write an audit entry")
	}
}

// Failed returns an error unchanged: the reason of an error of the control plane shows whether the outcome is unknown.
func (c *call) Failed(err error) error { return err }

// Status returns the status of the reason.
func (c *call) Status(e *protocol.Error) int { return e.Reason.Status() }

// Members returns the members of an error response: the error's own, those of the workflow routes, and for a write
// whether its outcome is unknown.
func (c *call) Members(e *protocol.Error, _ int) map[string]any {
	body := httpjson.Members(e)
	if c.rt.flow {
		maps.Copy(body, rejectionMembers(c, e))
		if slices.Contains(unencodedIDs, e.Reason) {
			// Published SDKs show only the message.
			body["message"], body["hint"] = e.Message+"; "+encodeIDs, encodeIDs
		}
	}
	if e.Reason.Away() && c.Method != http.MethodGet && c.Method != http.MethodHead {
		// the change may have been committed, or may still be committed
		if c.started != "" {
			body["workflow_id"] = c.started
		}
		body["command_status"], body["outcome"], body["retryable"], body["retry_after_seconds"] = "unknown", "unknown", true,
			1
	}
	return body
}

// unencodedIDs lists the reasons that a caller also receives if it does not encode / ? # or % of a workflow ID in
// a path. These responses have the member hint.
var unencodedIDs = []protocol.Reason{
	protocol.ReasonNotFound, protocol.ReasonInstanceNotFound, protocol.ReasonRunNotFound,
}

const encodeIDs = "an id is one encoded segment of the path, with / ? # % as %2F %3F %23 %25"

// AddEnvelope adds the warnings about unknown members, and the control_plane object on the workflow routes.
func (c *call) AddEnvelope(status int, body any, raw []byte) ([]byte, error) {
	if status < http.StatusBadRequest && !c.rt.Shape.Bare {
		var err error
		if raw, err = withWarnings(raw, body, c.Unknown.Warnings()); err != nil {
			return nil, err
		}
	}
	if !c.rt.flow {
		return raw, nil
	}
	raw, err := appendControlPlane(append(httpjson.Reopen(raw), `"control_plane":`...), c, status, body)
	return append(raw, '}'), err
}

// ResponseLost does nothing: the change is committed, and a repeated request gets its result.
func (c *call) ResponseLost() {}
