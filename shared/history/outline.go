package history

import (
	"encoding/json"
	"strings"

	"github.com/sojourn-run/sojourn/internal/rawjson"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// Outlines show events without their values, or with only the beginnings of the values: a history with 61 results of 1
// MB has 80 MB in its encoded form, of which a page shows a few lines.

// maxMember is the maximum size of a member of an outline's payload in bytes.
const maxMember = 4 << 10

// encodedMembers are the members of payloads that contain encoded values.
var encodedMembers = map[string]bool{
	"arguments": true, "result": true, "output": true, "value": true, "entries": true, "merged": true,
}

// Outline is an event without its encoded values and without other members above 4 KiB, which Values describes.
type Outline struct {
	Seq     int64
	At      Time
	Type    string
	TaskID  string
	Payload json.RawMessage
	Values  []Value
}

// Value is a value that an outline's payload does not contain, or of which it contains only the beginning.
type Value struct {
	// name of the member; "details", or with the prefix "exception.", for a member of the member exception
	Name    string
	Encoded bool   // an encoded value; otherwise plain JSON
	Text    string // beginning of the blob or of the JSON; empty for a text whose beginning is in the payload
	Size    int    // length of the whole text in bytes
}

// Bytes returns the size of an outline in memory and in a response, approximately.
func (o *Outline) Bytes() int {
	n := FrameSize + len(o.Payload)
	for i := range o.Values {
		n += len(o.Values[i].Name) + len(o.Values[i].Text)
	}
	return n
}

// OutlineOf returns the payload of an event, in its JSON form, without its values. The texts of the values are cut
// after keep bytes. The result does not alias body.
func OutlineOf(body []byte, keep int) (json.RawMessage, []Value) {
	o := outliner{keep: keep}
	if out, ok := o.object(body, true); ok {
		return out, o.values
	}
	return json.RawMessage("{}"), []Value{o.plain("payload", body)}
}

type outliner struct {
	keep   int
	values []Value
}

// object copies the members of a payload, or of the member exception in it.
func (o *outliner) object(body []byte, event bool) (out json.RawMessage, ok bool) {
	out = append(make(json.RawMessage, 0, min(len(body), maxMember)), '{')
	ok = rawjson.Members(body, func(quoted, value []byte) {
		name := string(rawjson.Name(quoted))
		if event && encodedMembers[name] || !event && name == "details" {
			var p payload.Payload
			if json.Unmarshal(value, &p) == nil && !p.IsZero() {
				text := strings.Clone(p.Blob[:min(o.keep, len(p.Blob))])
				o.values = append(o.values, Value{Name: name, Encoded: true, Text: text, Size: len(p.Blob)})
				return
			}
		}
		whole := name == "stack_trace" // a stack trace has at most 16 KiB
		if event && name == "exception" {
			if rest, ok := o.object(value, false); ok {
				value, whole = rest, true
			}
		}
		if event && name == "lost_deliveries" && len(value) > maxMember {
			value = o.lost(value)
		} else if len(value) > maxMember && !whole {
			if !event {
				name = "exception." + name
			}
			v, begin := o.plain(name, value), ""
			if json.Unmarshal(value, &begin) != nil {
				o.values = append(o.values, v)
				return
			}
			v.Text = ""
			o.values = append(o.values, v)
			value = rawjson.AppendString(nil, payload.CutText(begin, maxMember))
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, quoted...), ':'), value...)
	})
	return append(out, '}'), ok
}

// lost removes the progress from lost deliveries, of which only the last one has it.
func (o *outliner) lost(value []byte) []byte {
	var list []Lost
	if json.Unmarshal(value, &list) != nil {
		return value
	}
	for i := range list {
		if details := list[i].HeartbeatDetails; len(details) > 0 {
			o.values = append(o.values, o.plain("last_heartbeat_details", details))
			list[i].HeartbeatDetails = nil
		}
	}
	if short, err := json.Marshal(list); err == nil {
		return short
	}
	return value
}

func (o *outliner) plain(name string, value []byte) Value {
	return Value{Name: name, Text: string(payload.CutText(value, o.keep)), Size: len(value)}
}
