package httpapi

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Events contain their payloads as stored. Decoding is for people and costs time and bytes, so it is optional.

// event is an event in the response. Its member decoded contains the encoded members of the payload as plain JSON.
type event struct {
	Seq      int64                      `json:"sequence"`
	Type     string                     `json:"event_type"`
	At       history.Time               `json:"timestamp"`
	Recorded history.Time               `json:"recorded_at"`
	TaskID   string                     `json:"workflow_task_id,omitempty"`
	Payload  json.RawMessage            `json:"payload"`
	Decoded  map[string]json.RawMessage `json:"decoded,omitempty"`
}

type historyResponse struct {
	WorkflowID    string  `json:"workflow_id"`
	RunID         string  `json:"run_id"`
	Events        []event `json:"events"`
	NextPageToken *string `json:"next_page_token"`
}

func readHistory(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.HistoryQuery{
		Target: c.target(), PageSize: q.number("page_size", 1, 1000), PageToken: q.text("next_page_token"),
		Wait: q.flag("wait_new_event"),
	}
	decoded := q.flag("decoded")
	if q.err != nil {
		return response{}, q.err
	}
	page, err := a.opt.RunViews.History(c.Ctx, in)
	if err != nil {
		return response{}, err
	}
	out := historyResponse{
		WorkflowID: in.WorkflowID, RunID: in.RunID, Events: make([]event, len(page.Events)),
		NextPageToken: page.NextPageToken,
	}
	for i, e := range page.Events {
		if out.Events[i], err = viewEvent(e, decoded); err != nil {
			return response{}, err
		}
	}
	return ok(out, nil)
}

// viewEvent shows one event, with its payloads decoded when that is wanted.
func viewEvent(e history.Event, decoded bool) (event, error) {
	body, err := history.EncodeData(e.Data)
	if err != nil {
		return event{}, err
	}
	out := event{Seq: e.Seq, Type: e.Type(), At: e.At, Recorded: e.At, TaskID: e.TaskID, Payload: body}
	if decoded {
		out.Decoded = decode(body)
	}
	return out, nil
}

// decode returns the blobs of an event's payload as values. It omits a blob that cannot be decoded; the payload still
// contains it.
func decode(body json.RawMessage) map[string]json.RawMessage {
	var blobs struct {
		Result    json.RawMessage `json:"result"`
		Arguments json.RawMessage `json:"arguments"`
		Output    json.RawMessage `json:"output"`
		Value     json.RawMessage `json:"value"`
		Entries   json.RawMessage `json:"entries"`
		Merged    json.RawMessage `json:"merged"`
		Exception json.RawMessage `json:"exception"`
	}
	if json.Unmarshal(body, &blobs) != nil {
		return nil
	}
	var exception struct {
		Details json.RawMessage `json:"details"`
	}
	_ = json.Unmarshal(blobs.Exception, &exception) // most events have none
	shown := map[string]json.RawMessage{}
	for name, raw := range map[string]json.RawMessage{
		"result": blobs.Result, "arguments": blobs.Arguments, "output": blobs.Output, "value": blobs.Value,
		"entries": blobs.Entries, "merged": blobs.Merged, "details": exception.Details,
	} {
		var p payload.Payload
		if len(raw) == 0 || json.Unmarshal(raw, &p) != nil || p.IsZero() {
			continue
		}
		if v, err := payload.ToJSON(p); err == nil {
			shown[name] = v
		}
	}
	return shown
}
