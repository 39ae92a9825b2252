package view

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A page that shows many events or runs needs the beginnings of their values at most. With values=preview and
// values=none, the views read outlines of events, which do not contain whole values, and list the omitted values.

// keptBytes returns the number of bytes of each encoded value that the views read.
func keptBytes(values protocol.Values) int {
	if values == protocol.ValuesPreview {
		return 2 * protocol.PreviewBytes // Base64 is longer than the value
	}
	return 0
}

// ShownValues returns the values of an event as a preview shows them, by name.
type ShownValues struct {
	Decoded   map[string]json.RawMessage // whole values
	Encoded   map[string]string          // whole values that the app cannot decode
	Truncated protocol.Truncated         // all others
}

// ShowValues returns the values of an outline as a preview shows them.
func ShowValues(all []history.Value, values protocol.Values) ShownValues {
	out := ShownValues{
		Decoded: map[string]json.RawMessage{}, Encoded: map[string]string{}, Truncated: protocol.Truncated{},
	}
	for _, v := range all {
		if !v.Encoded {
			out.Truncated[v.Name] = protocol.TruncatedValue{
				Size: v.Size, Preview: payload.CutText(v.Text, protocol.PreviewBytes),
			}
			continue
		}
		size := payload.Size(v.Size)
		if values == protocol.ValuesNone {
			out.Truncated[v.Name] = protocol.TruncatedValue{Size: size}
			continue
		}
		if size <= protocol.PreviewBytes && len(v.Text) == v.Size {
			if decoded, err := payload.ToJSON(payload.Payload{Blob: v.Text}); err == nil {
				out.Decoded[v.Name] = decoded
			} else {
				out.Encoded[v.Name] = v.Text
			}
			continue
		}
		text, err := payload.Preview(v.Text, protocol.PreviewBytes)
		if err != nil {
			text = payload.CutText(v.Text, protocol.PreviewBytes)
		}
		out.Truncated[v.Name] = protocol.TruncatedValue{Size: size, Preview: text, Encoded: err != nil}
	}
	return out
}

// DescribeValues is Describe with the given selection of values: the input, the output, the memo, the details of a
// failure and the progress of open activities.
func (v *View) DescribeValues(
	ctx context.Context, t protocol.Target, values protocol.Values,
) (protocol.RunView, error) {
	if values == protocol.ValuesFull {
		return v.described(ctx, t, wholeEnds{})
	}
	shown, err := v.described(ctx, t, outlinedEnds{values})
	if err == nil {
		TruncateRun(&shown, values)
	}
	return shown, err
}

// truncation removes members from a response and describes them.
type truncation struct {
	values protocol.Values
	into   *protocol.Truncated
}

func (t truncation) record(name string, about protocol.TruncatedValue) {
	if *t.into == nil {
		*t.into = protocol.Truncated{}
	}
	(*t.into)[name] = about
}

// value returns a value that a user chose: without values only if it is empty.
func (t truncation) value(name string, value json.RawMessage) json.RawMessage {
	if t.values == protocol.ValuesNone && string(value) != "{}" && string(value) != "null" {
		return t.cut(name, value, 0)
	}
	return t.cut(name, value, protocol.PreviewBytes)
}

// cut returns a member of at most `most` bytes.
func (t truncation) cut(name string, value json.RawMessage, most int) json.RawMessage {
	if len(value) <= most {
		return value
	}
	about := protocol.TruncatedValue{Size: len(value)}
	if t.values == protocol.ValuesPreview {
		about.Preview = string(payload.CutText([]byte(value), protocol.PreviewBytes))
	}
	t.record(name, about)
	return nil
}

// TruncateRun removes from a run the members of its row that the selection of values excludes.
func TruncateRun(v *protocol.RunView, values protocol.Values) {
	t := truncation{values, &v.Truncated}
	v.Memo = t.value("memo", v.Memo)
	v.SearchAttributes = t.cut("search_attributes", v.SearchAttributes, protocol.PreviewBytes)
	if v.Error != nil && len(*v.Error) > protocol.PreviewBytes {
		t.record("error", protocol.TruncatedValue{Size: len(*v.Error)})
		begin := payload.CutText(*v.Error, protocol.PreviewBytes)
		v.Error = &begin
	}
	if v.Pending == nil {
		return
	}
	for i := range v.Pending.Activities {
		a := &v.Pending.Activities[i]
		a.Progress = t.cut(
			"progress of activity "+strconv.FormatInt(a.Sequence, 10), a.Progress, protocol.PreviewBytes,
		)
		if h := a.LastHeartbeat; h != nil { // a copy: the row is shared
			shown := *h
			shown.Details = t.cut(
				"last_heartbeat of activity "+strconv.FormatInt(a.Sequence, 10), h.Details, protocol.PreviewBytes,
			)
			a.LastHeartbeat = &shown
		}
	}
}

// TruncateSchedule removes from a schedule the values that the selection excludes.
func TruncateSchedule(v *protocol.ScheduleView, values protocol.Values) {
	if values == protocol.ValuesFull {
		return
	}
	t := truncation{values, &v.Truncated}
	v.Action.Input = t.value("action.input", v.Action.Input)
	v.Action.Memo = t.value("action.memo", v.Action.Memo)
	v.Action.SearchAttributes = t.cut("action.search_attributes", v.Action.SearchAttributes, protocol.PreviewBytes)
	v.Memo = t.value("memo", v.Memo)
	v.SearchAttributes = t.cut("search_attributes", v.SearchAttributes, protocol.PreviewBytes)
}

// ends reads the first and the last event of a run for its description.
type ends interface {
	first(ctx context.Context, r store.Reader, run *engine.Run, shown *protocol.RunView) error
	last(ctx context.Context, r store.Reader, run *engine.Run, shown *protocol.RunView) error
}

// wholeEnds implements ends by reading both events with their values.
type wholeEnds struct{}

func (wholeEnds) first(ctx context.Context, r store.Reader, run *engine.Run, shown *protocol.RunView) error {
	first, err := r.Events(ctx, run.ID, 0, 1, 1, transaction.MaxPageSize)
	if err != nil || len(first) == 0 {
		return err
	}
	if s, ok := first[0].Data.(*history.WorkflowStarted); ok && s.Arguments != "" {
		shown.InputEnvelope, shown.Input = Envelope(s.Arguments)
	}
	return nil
}

func (wholeEnds) last(ctx context.Context, r store.Reader, run *engine.Run, shown *protocol.RunView) error {
	last, err := r.LastEvent(ctx, run.ID)
	if err != nil {
		return err
	}
	return outcome(&last, shown)
}

// outlinedEnds implements ends by reading both events as outlines.
type outlinedEnds struct{ values protocol.Values }

func (o outlinedEnds) read(
	ctx context.Context, r store.Reader, run *engine.Run, seq int64, shown *protocol.RunView, names map[string]string,
) (e history.Outline, values ShownValues, err error) {
	list, err := r.Outlines(ctx, run.ID, seq-1, seq, 1, 0, keptBytes(o.values))
	if err != nil || len(list) == 0 {
		return e, values, err
	}
	values = ShowValues(list[0].Values, o.values)
	for name, member := range names {
		if about, ok := values.Truncated[name]; ok {
			delete(values.Truncated, name)
			values.Truncated[member] = about
		}
	}
	if shown.Truncated == nil {
		shown.Truncated = protocol.Truncated{}
	}
	maps.Copy(shown.Truncated, values.Truncated)
	return list[0], values, nil
}

func (o outlinedEnds) first(ctx context.Context, r store.Reader, run *engine.Run, shown *protocol.RunView) error {
	_, values, err := o.read(ctx, r, run, 1, shown, map[string]string{"arguments": "input"})
	// the first event contains the initial values; the description contains the current ones
	delete(shown.Truncated, "search_attributes")
	delete(shown.Truncated, "memo")
	shown.Input = values.Decoded["arguments"]
	if blob := values.Encoded["arguments"]; blob != "" {
		shown.InputEnvelope = &payload.Payload{Blob: blob}
	}
	return err
}

func (o outlinedEnds) last(ctx context.Context, r store.Reader, run *engine.Run, shown *protocol.RunView) error {
	e, values, err := o.read(ctx, r, run, run.LastSeq, shown, nil)
	if err != nil {
		return err
	}
	shown.Output = values.Decoded["output"]
	if blob := values.Encoded["output"]; blob != "" {
		shown.OutputEnvelope = &payload.Payload{Blob: blob}
	}
	data, err := history.DecodeData(e.Type, e.Payload)
	if err != nil {
		return err
	}
	if err := outcome(&history.Event{Data: data}, shown); err != nil || shown.Failure == nil {
		return err
	}
	// The failure in an outline has no encoded details, so the decoded details are added.
	if details := values.Decoded["details"]; details != nil {
		shown.Failure = append(append(append(shown.Failure[:len(shown.Failure)-1], `,"details":`...), details...), '}')
	}
	return nil
}
