package membership

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// sameDefinitions rejects a registration whose workflow code differs from the code of the live worker with this ID: the
// worker's runs would be replayed with other code although no operator decided that. A worker that deregistered, drains
// or is stale may be replaced. For a type without a fingerprint in the new registration, the fingerprint of the
// previous registration applies.
func (ws *Workers) sameDefinitions(old, next *engine.Worker, now time.Time) error {
	if len(old.Fingerprints) == 0 || !ws.acceptsWork(old, now) {
		return nil
	}
	prints := make(map[string]string, len(next.Fingerprints))
	for typ, print := range old.Fingerprints {
		changed, reregistered := next.Fingerprints[typ]
		switch {
		case reregistered && changed != print:
			return protocol.Refuse(
				protocol.ReasonDefinitionChanged, "live worker %s registered different code for workflow type %s", old.ID, typ,
			).With("workflow_type", typ).With("registered_fingerprint", print).With("requested_fingerprint", changed).
				With("remediation",
					"register under another worker_id, with a build_id of its own where runs must stay with the code that began them; "+
						"or deregister worker "+old.ID+" first, or wait until it is stale, which it is "+ws.opt.Alive.String()+
						" after its last sign of life")
		case !reregistered && slices.Contains(next.WorkflowTypes, typ):
			prints[typ] = print
		}
	}
	for typ, print := range next.Fingerprints {
		prints[typ] = print
	}
	next.Fingerprints = prints
	return nil
}

// acceptsWork reports whether a registered worker is alive, as far as this app knows, and does not drain.
func (ws *Workers) acceptsWork(w *engine.Worker, now time.Time) bool {
	h := TrackRow(w)
	ws.With(w.Key(), func(known *TrackedWorker) {
		if known.Worker.Incarnation == w.Incarnation && !known.At.IsZero() {
			h = *known
		}
	})
	return ws.Alive(h, now) && !h.Draining
}

// checkShapes rejects members of a registration that are stored unchanged but do not have the form that readers expect.
func checkShapes(in protocol.RegisterRequest) error {
	for _, m := range []struct {
		field string
		value json.RawMessage
	}{
		{"workflow_command_contracts", in.Contracts},
		{"capability_manifest", in.Manifest},
		{"task_slots", in.Slots},
		{"process_metrics", in.Process},
	} {
		var members map[string]json.RawMessage
		if len(m.value) > 0 && json.Unmarshal(m.value, &members) != nil {
			return protocol.Invalid(m.field, "must be an object")
		}
	}
	if len(in.Fingerprints) > maxNames {
		return protocol.Invalid("workflow_definition_fingerprints", "more than %d names", maxNames)
	}
	for typ, print := range in.Fingerprints {
		if len(typ) > protocol.MaxName || len(print) > protocol.MaxName {
			return protocol.Invalid("workflow_definition_fingerprints", "each type and fingerprint must be at most 255 bytes")
		}
	}
	return nil
}
