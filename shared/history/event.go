// Package history defines the events of a run, in the names and shapes that workers, store, API and exports share.
package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/sojourn-run/sojourn/internal/rawjson"
)

// Event is one entry of a run's history. Seq counts 1, 2, 3 … without gaps; it is the event's own number and never the
// replay key, which is the command sequence inside the payload.
type Event struct {
	Seq  int64
	At   Time
	Data Data

	// TaskID is the workflow task whose completion created this event, and SeenThrough the last Seq that the worker had
	// received with it; both are zero for events from other sources. If such an event is between SeenThrough and the
	// completion, a follow-up task is necessary.
	TaskID      string
	SeenThrough int64
}

// Data is the payload of an event: one struct per event type, always used as a pointer.
type Data interface {
	// Type is the event's wire name, like "ActivityScheduled".
	Type() string
}

// Type is the wire name of the event.
func (e Event) Type() string {
	if e.Data == nil {
		return ""
	}
	return e.Data.Type()
}

// ID returns the event's name within its run, as other events and clients use it.
func (e Event) ID() string { return fmt.Sprintf("e%d", e.Seq) }

// Unknown contains an event whose type this build does not know, so that pages, exports and replays of a newer history
// still work.
type Unknown struct {
	Name string
	Raw  json.RawMessage
}

// Type returns the name under which the event was recorded.
func (u *Unknown) Type() string { return u.Name }

// MarshalJSON returns the payload as it was read.
func (u *Unknown) MarshalJSON() ([]byte, error) { return u.Raw, nil }

// frame is the wire form of an event. The encoder writes event_type and never type, because some clients reject an
// event that has both.
type frame struct {
	ID          string          `json:"id"`
	Seq         int64           `json:"sequence"`
	Type        string          `json:"event_type"`
	Alias       string          `json:"type"`
	At          Time            `json:"recorded_at"`
	TaskID      string          `json:"workflow_task_id"`
	SeenThrough int64           `json:"seen_through"`
	Payload     json.RawMessage `json:"payload"`
}

// MarshalJSON writes {id, sequence, event_type, recorded_at, workflow_task_id?, seen_through?, payload}.
func (e Event) MarshalJSON() ([]byte, error) {
	body, err := EncodeData(e.Data)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, 192+len(body))
	out = append(rawjson.AppendString(append(out, `{"id":`...), e.ID()), `,"sequence":`...)
	out = strconv.AppendInt(out, e.Seq, 10)
	if name := e.Type(); name != "" {
		out = rawjson.AppendString(append(out, `,"event_type":`...), name)
	}
	out = e.At.append(append(out, `,"recorded_at":`...))
	if e.TaskID != "" {
		out = rawjson.AppendString(append(out, `,"workflow_task_id":`...), e.TaskID)
	}
	if e.SeenThrough != 0 {
		out = strconv.AppendInt(append(out, `,"seen_through":`...), e.SeenThrough, 10)
	}
	out = append(append(out, `,"payload":`...), body...)
	return append(out, '}'), nil
}

// UnmarshalJSON reads the form MarshalJSON writes; "type" is accepted for "event_type", as history exports have it.
func (e *Event) UnmarshalJSON(raw []byte) error {
	f, err := readFrame(raw)
	if err != nil {
		return err
	}
	if f.Type == "" {
		f.Type = f.Alias
	}
	data, err := DecodeData(f.Type, f.Payload)
	if err != nil {
		return fmt.Errorf("event %d: %w", f.Seq, err)
	}
	*e = Event{Seq: f.Seq, At: f.At, Data: data, TaskID: f.TaskID, SeenThrough: f.SeenThrough}
	return nil
}

func readFrame(raw []byte) (frame, error) {
	var f frame
	if rawjson.Read(raw,
		rawjson.Field{Name: "id", Into: &f.ID}, rawjson.Field{Name: "sequence", Into: &f.Seq},
		rawjson.Field{Name: "event_type", Into: &f.Type},
		rawjson.Field{Name: "type", Into: &f.Alias}, rawjson.Field{Name: "recorded_at", Into: &f.At},
		rawjson.Field{Name: "workflow_task_id", Into: &f.TaskID},
		rawjson.Field{Name: "seen_through", Into: &f.SeenThrough}, rawjson.Field{Name: "payload", Into: &f.Payload}) {
		return f, nil
	}
	f = frame{}
	return f, json.Unmarshal(raw, &f)
}

// EncodeData returns the payload object of an event.
func EncodeData(d Data) ([]byte, error) {
	if d == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(d)
}

// DecodeData decodes the payload of an event of the named type. An unknown type decodes to *Unknown without an error.
func DecodeData(name string, raw []byte) (Data, error) {
	make, ok := kinds[name]
	if !ok {
		return &Unknown{Name: name, Raw: append(json.RawMessage(nil), raw...)}, nil
	}
	d := make()
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return d, nil
	}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, fmt.Errorf("payload of %s: %w", name, err)
	}
	return d, nil
}

// Time is an instant in UTC with microseconds, the precision every store keeps. JSON: "2026-04-18T12:00:00.000000Z",
// and null when zero.
type Time struct{ time.Time }

// At cuts t to the precision of a Time.
func At(t time.Time) Time {
	if t.IsZero() {
		return Time{}
	}
	return Time{t.UTC().Truncate(time.Microsecond)}
}

// Micros returns the time d microseconds after the epoch; 0 is the zero Time.
func Micros(d int64) Time {
	if d == 0 {
		return Time{}
	}
	return Time{time.UnixMicro(d).UTC()}
}

// IsZero reports whether the time is zero. The receiver is a pointer because encoding/json copies values to call a
// value method.
func (t *Time) IsZero() bool { return t.Time.IsZero() }

// Micros returns the number of microseconds since the epoch, 0 for the zero Time.
func (t Time) Micros() int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

const timeLayout = "2006-01-02T15:04:05.000000Z"

// timeRoom is the length of a quoted time with nanoseconds, before it is truncated to microseconds.
const timeRoom = len(timeLayout) + len(`""`) + len("000")

// MarshalJSON writes the fixed-width form.
func (t Time) MarshalJSON() ([]byte, error) {
	return t.append(make([]byte, 0, timeRoom)), nil
}

func (t Time) append(out []byte) []byte {
	if t.IsZero() {
		return append(out, "null"...)
	}
	out = append(out, '"')
	out = t.UTC().AppendFormat(out, timeLayout)
	return append(out, '"')
}

// UnmarshalJSON reads any RFC 3339 time, "" and null.
func (t *Time) UnmarshalJSON(raw []byte) error {
	if bytes.Equal(raw, []byte("null")) || bytes.Equal(raw, []byte(`""`)) {
		*t = Time{}
		return nil
	}
	var v time.Time
	if err := v.UnmarshalJSON(raw); err != nil {
		return err
	}
	*t = At(v)
	return nil
}
