package httpapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A bundle must be usable without this server: it contains its schemas, whether its history is complete, and a
// checksum. Its other members are derived from the events, since a second source could differ.

// bundleSchema is the schema name of the documents that history/export returns.
const bundleSchema = "durable-workflow.v2.history-export"

// bundle is a document with all data of a run, from which its history can be replayed without a server. The members
// besides the events are derived from them.
type bundle struct {
	Schema   string                 `json:"schema"`
	Version  int                    `json:"schema_version"`
	At       history.Time           `json:"exported_at"`
	Key      string                 `json:"dedupe_key"`       // identifies the content: the run and its last event
	Complete bool                   `json:"history_complete"` // true: the run has closed
	Workflow bundledRun             `json:"workflow"`
	Payloads bundledPayloads        `json:"payloads"`
	Events   []bundledEvent         `json:"history_events"`
	Tasks    []protocol.PendingTask `json:"tasks"`
	Links    bundledLinks           `json:"links"`
	Redacted bundledRedaction       `json:"redaction"`
	Schemas  map[string]codecSchema `json:"codec_schemas"`
	Manifest bundledManifest        `json:"payload_manifest"`
	gathered
}

// bundledRedaction describes redacted parts; exports are never redacted.
type bundledRedaction struct {
	Applied bool     `json:"applied"`
	Policy  *string  `json:"policy"`
	Paths   []string `json:"paths"`
}

// codecSchema is the schema that the values of a codec have.
type codecSchema struct {
	Framing string `json:"framing"`
	Schema  string `json:"schema"`
	Name    string `json:"name"`
	Version int    `json:"version"`
}

// bundledManifest lists the encoded values of the document.
type bundledManifest struct {
	Version int           `json:"version"`
	Entries []bundledBlob `json:"entries"`
}

type bundledRun struct {
	protocol.RunView
	InstanceID   string `json:"instance_id"`
	LastSequence int64  `json:"last_history_sequence"`
}

// bundledEvent is an event of a bundle. It has the member type instead of event_type, as readers of bundles expect.
type bundledEvent struct {
	ID      string          `json:"id"`
	Seq     int64           `json:"sequence"`
	Type    string          `json:"type"`
	At      history.Time    `json:"recorded_at"`
	TaskID  string          `json:"workflow_task_id,omitempty"`
	Seen    int64           `json:"seen_through,omitempty"` // last event in the history of its workflow task
	Command string          `json:"workflow_command_id,omitempty"`
	Payload json.RawMessage `json:"payload"`
}

type bundledPayload struct {
	Available bool    `json:"available"`
	Data      *string `json:"data"`
}

type bundledPayloads struct {
	Codec     string         `json:"codec"`
	Arguments bundledPayload `json:"arguments"`
	Output    bundledPayload `json:"output"`
}

func bundled(p *payload.Payload) bundledPayload {
	if p == nil || p.IsZero() {
		return bundledPayload{}
	}
	return bundledPayload{true, &p.Blob}
}

// exportHistory returns a run's bundle with its checksum. The bundle is a document without a control_plane object.
func exportHistory(a *API, c *call) (response, error) {
	ctx, err := a.opt.RunViews.ReserveHistory(c.Ctx, c.target())
	if err != nil {
		return response{}, err
	}
	v, err := a.opt.RunViews.DescribeValues(ctx, c.target(), protocol.ValuesFull)
	if err != nil {
		return response{}, err
	}
	b := bundle{
		Schema: bundleSchema, Version: 1, At: history.At(time.Now()), Complete: v.Terminal,
		Payloads: bundledPayloads{payload.Codec, bundled(v.InputEnvelope), bundled(v.OutputEnvelope)},
		Events:   []bundledEvent{}, Tasks: []protocol.PendingTask{},
		Links:    bundledLinks{Parents: []bundledLink{}, Children: []bundledLink{}},
		Redacted: bundledRedaction{Paths: []string{}},
		Schemas: map[string]codecSchema{
			payload.Codec: {Framing: framing, Schema: payload.Schema, Name: "durable_workflow.protocol.Value", Version: 1},
		},
		gathered: newGathered(v.RunID),
	}
	if v.Pending != nil && v.Pending.Task != nil {
		b.Tasks = append(b.Tasks, *v.Pending.Task)
	}
	// Read page by page, since a history may be longer than one read. The export has no events after the last page.
	in := protocol.HistoryQuery{Target: c.target(), PageSize: 1000}
	for {
		page, err := a.opt.RunViews.History(ctx, in)
		if err != nil {
			return response{}, err
		}
		for _, e := range page.Events {
			if err := b.add(e); err != nil {
				return response{}, err
			}
		}
		if page.NextPageToken == nil || len(page.Events) == 0 || *page.NextPageToken == in.PageToken {
			break
		}
		in.PageToken = *page.NextPageToken
	}
	v.Pending, v.Actions, v.Memo, v.SearchAttributes = nil, nil, orObject(v.Memo), orObject(v.SearchAttributes)
	b.Key = fmt.Sprintf("%s-%d", v.RunID, len(b.Events))
	b.Workflow = bundledRun{v, v.WorkflowID, int64(len(b.Events))}
	b.Manifest = bundledManifest{Version: 1, Entries: b.blobs}
	return response{status: http.StatusOK}, a.writeBundle(c, b)
}

func (a *API) writeBundle(c *call, b bundle) error {
	raw, err := httpjson.Encode(b)
	if err != nil {
		return err
	}
	sum, err := checksum(raw)
	if err != nil {
		return fmt.Errorf("checksum of the export of run %s: %w", b.Workflow.RunID, err)
	}
	check, err := httpjson.Encode(integrity{Canonical: canonicalForm, Algorithm: "sha256", Checksum: sum})
	if err != nil {
		return err
	}
	c.W.Header().Set(VersionHeader, Version)
	if err := httpjson.Write(
		c.W, c.Request, http.StatusOK, httpjson.Append(raw, httpjson.Member("integrity", check)),
	); err != nil {
		a.opt.Log.Debug().Err(err).Str("operation", c.rt.Operation).Msg("failed to write a response")
	}
	return nil
}

// add adds one event to the bundle.
func (b *bundle) add(e history.Event) error {
	body, err := history.EncodeData(e.Data)
	if err != nil {
		return err
	}
	out := bundledEvent{
		ID: fmt.Sprintf("e%d", e.Seq), Seq: e.Seq, Type: e.Type(), At: e.At, TaskID: e.TaskID, Seen: e.SeenThrough,
		Payload: body,
	}
	out.Command = b.gather(e, body)
	b.Links.add(e)
	b.Events = append(b.Events, out)
	return nil
}

// orObject replaces a missing object by an empty one.
func orObject(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage(`{}`)
	}
	return raw
}
