package httpapi

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A bundle is untrusted, and its history is shown as if it had happened here. So only a complete bundle of a closed run
// with a valid checksum is accepted, and the members besides the events are derived again rather than read.

// maxBundle is the maximum size of an imported bundle in bytes.
const maxBundle = 32 << 20

// importRoute requires the admin role: a caller that writes histories can forge any event.
func importRoute(contract lineFunc) route {
	rt := audited("workflow.import", contract(post, "/workflows/import/bundle", "import", auth.Admin, importRun))
	rt.Sojourn, rt.Plane, rt.Limit = true, serve.Own, serve.Held
	return rt
}

// importBody contains the members of a bundle that are read. The other members are derived from the events.
type importBody struct {
	Schema   string          `json:"schema"`
	Version  int             `json:"schema_version"`
	Events   []importedEvent `json:"history_events"`
	Redacted struct {
		Applied bool `json:"applied"`
	} `json:"redaction"`
	Integrity *integrity `json:"integrity"`
}

type importedEvent struct {
	Seq     int64           `json:"sequence"`
	Type    string          `json:"type"`
	At      history.Time    `json:"recorded_at"`
	TaskID  string          `json:"workflow_task_id"`
	Seen    int64           `json:"seen_through"`
	Payload json.RawMessage `json:"payload"`
}

// importRun imports a bundle of a Sojourn app as a closed run, if its checksum is correct.
func importRun(a *API, c *call) (response, error) {
	var raw json.RawMessage
	if err := c.Read(&raw); err != nil {
		return response{}, err
	}
	var in importBody
	if err := httpjson.Decode(raw, &in); err != nil {
		return response{}, err
	}
	if err := in.check(raw); err != nil {
		return response{}, err
	}
	events := make([]history.Event, len(in.Events))
	for i, e := range in.Events {
		data, err := history.DecodeData(e.Type, e.Payload)
		if err != nil {
			return response{}, badBundle("event %d: %v", e.Seq, err)
		}
		events[i] = history.Event{Seq: e.Seq, At: e.At, Data: data, TaskID: e.TaskID, SeenThrough: e.Seen}
	}
	request := protocol.ImportRequest{Namespace: c.NS, Events: events, Identity: c.Principal.Name}
	out, err := a.opt.Runs.Import(c.Ctx, request)
	c.about = out.WorkflowID
	status := http.StatusOK
	if out.Outcome == "imported" {
		status = http.StatusCreated
	}
	return response{status, out}, err
}

func badBundle(format string, args ...any) error {
	return protocol.Refuse(protocol.ReasonInvalidBundle, format, args...)
}

// check rejects a document that is not a bundle, or that was changed after its export.
func (in *importBody) check(raw json.RawMessage) error {
	switch {
	case in.Schema == "" || len(in.Events) == 0:
		return protocol.Invalid(
			"history_events", "must be part of a history export; send the document that history/export returns",
		)
	case in.Schema != bundleSchema || in.Version != 1:
		return badBundle("%s version %d is not supported; use %s version 1", in.Schema, in.Version, bundleSchema)
	// A replay would miss the redacted parts and fail long after the import.
	case in.Redacted.Applied:
		return badBundle("the bundle is redacted, so its history is incomplete; export the run without redaction")
	case slices.ContainsFunc(in.Events, func(e importedEvent) bool { return e.Type == "" }):
		return badBundle("an event has no type")
	case in.Integrity == nil || in.Integrity.Algorithm != "sha256" || in.Integrity.Canonical != canonicalForm:
		return protocol.Refuse(
			protocol.ReasonBundleIntegrity, "the bundle has no sha256 checksum of the form %s", canonicalForm,
		)
	}
	sum, err := checksum(raw, "integrity")
	if err != nil {
		return badBundle("%v", err)
	}
	if sum != in.Integrity.Checksum {
		return protocol.Refuse(
			protocol.ReasonBundleIntegrity, "the bundle was changed after its export: its checksum is %s", sum,
		).With("expected", in.Integrity.Checksum)
	}
	return nil
}
