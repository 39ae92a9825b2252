package httpapi

import (
	"encoding/json"

	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Events contain their payloads as stored. Decoding is for display and costs time and bytes, so it is optional. A page
// for display contains only the beginnings of values; the whole value is requested by its event.

// event is an event in the response. Its member decoded contains the encoded members of the payload as plain JSON.
type event struct {
	Seq      int64                      `json:"sequence"`
	Type     string                     `json:"event_type"`
	At       history.Time               `json:"timestamp"`
	Recorded history.Time               `json:"recorded_at"`
	TaskID   string                     `json:"workflow_task_id,omitempty"`
	Payload  json.RawMessage            `json:"payload"`
	Decoded  map[string]json.RawMessage `json:"decoded,omitempty"`
	// with values=preview or none: the values that payload and decoded do not contain whole
	Truncated protocol.Truncated `json:"truncated,omitempty"`
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
		After: q.sequence("after"), Wait: q.flag("wait_new_event"),
	}
	decoded, values := q.flag("decoded"), q.valuesOf()
	switch {
	case q.err != nil:
		return response{}, q.err
	case in.After > 0 && in.PageToken != "":
		return response{}, protocol.Invalid("after", "must not be combined with next_page_token")
	case decoded && values == protocol.ValuesNone:
		return response{}, protocol.Invalid("decoded", "must not be combined with values=none")
	}
	if values != protocol.ValuesFull {
		return readOutlines(a, c, in, values)
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

// readOutlines reads a page of a history without whole values.
func readOutlines(a *API, c *call, in protocol.HistoryQuery, values protocol.Values) (response, error) {
	events, next, err := a.opt.RunViews.Outlines(c.Ctx, in, values)
	if err != nil {
		return response{}, err
	}
	out := historyResponse{
		WorkflowID: in.WorkflowID, RunID: in.RunID, Events: make([]event, len(events)), NextPageToken: next,
	}
	for i := range events {
		out.Events[i] = viewOutline(&events[i], values)
	}
	return ok(out, nil)
}

// viewOutline returns one event without whole values.
func viewOutline(o *history.Outline, values protocol.Values) event {
	shown := view.ShowValues(o.Values, values)
	out := event{
		Seq: o.Seq, Type: o.Type, At: o.At, Recorded: o.At, TaskID: o.TaskID, Payload: o.Payload, Decoded: shown.Decoded,
		Truncated: shown.Truncated,
	}
	for name, blob := range shown.Encoded {
		if name == "details" {
			name = "exception_details" // the member exception contains no values
		}
		if text, err := json.Marshal(blob); err == nil { // cannot fail
			out.Payload = httpjson.Append(out.Payload, httpjson.Member(name, text))
		}
	}
	return out
}

// viewEvent returns one event, with decoded payloads on request.
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
	_ = json.Unmarshal(blobs.Exception, &exception) // most events have no exception
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
