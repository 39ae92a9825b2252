package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/shared/history"
)

// If a row with a single event is larger than largeRow, only the beginning, the end and the length of its payload are
// read. For an event with one encoded value this is sufficient for the outline, if all missing bytes belong to that
// value. The value is Base64, which contains no quote, and the member payload_codec follows it.
const (
	largeRow = 48 << 10
	rowBegin = 24 << 10
	rowEnd   = 16 << 10
)

// MaxKept is the maximum number of bytes of a value that an outline contains.
const MaxKept = 8 << 10

// largeMember maps the event types with one encoded value to the member with the value.
var largeMember = map[string]string{
	"ActivityCompleted": "result", "ActivityScheduled": "arguments", "AttachedChildEnded": "result",
	"ChildRunCompleted": "result", "ChildWorkflowScheduled": "arguments", "SideEffectRecorded": "result",
	"SignalApplied": "value", "SignalReceived": "value", "UpdateAccepted": "arguments", "UpdateApplied": "arguments",
	"UpdateCompleted": "result", "WorkflowCompleted": "output", "WorkflowStarted": "arguments",
}

// OutlineColumns are the columns that ReadOutlines expects.
var OutlineColumns = outlineColumns()

func outlineColumns() string {
	var types []string
	for name := range largeMember {
		types = append(types, "'"+name+"'")
	}
	slices.Sort(types)
	large := fmt.Sprintf("t.last IS NULL AND octet_length(t.payload) > %d AND t.type IN (%s)",
		largeRow, strings.Join(types, ", "))
	begin := fmt.Sprintf("CASE WHEN %s THEN substr(t.payload, 1, %d) ELSE t.payload END", large, rowBegin)
	end := fmt.Sprintf("CASE WHEN %s THEN substr(t.payload, length(t.payload) - %d) ELSE '' END", large, rowEnd-1)
	return strings.Replace(EventColumns, "t.payload", begin, 1) + ", " + end + ", octet_length(t.payload)"
}

// Outlines is a row of events that was read by OutlineColumns.
type Outlines struct {
	Packed
	end     string // end of a payload without its middle
	missing int    // bytes between the beginning and the end
}

// ReadOutlines reads a row of Events, by OutlineColumns.
func ReadOutlines(v []any) (o Outlines, err error) {
	if o.Packed, err = ReadEvents(v); err != nil {
		return o, err
	}
	if n := len(v); db.Str(v[n-2]) != "" {
		o.end = db.Str(v[n-2])
		o.missing = int(db.Int(v[n-1])) - len(o.payload) - len(o.end)
	}
	return o, nil
}

// Readable reports whether the outlines can be made from what was read. If not, the caller must read the row by
// EventColumns; see Whole.
func (o *Outlines) Readable() bool {
	if o.end == "" {
		return true
	}
	name := largeMember[o.heads[0].Type]
	quote, rest := strings.LastIndexByte(o.payload, '"'), strings.IndexByte(o.end, '"')
	if quote < 0 || rest < 0 || len(o.payload)-quote-1 < MaxKept {
		return false
	}
	before, member := strings.CutSuffix(o.payload[:quote], `"`+name+`":`)
	return member && (before == "{" || strings.HasSuffix(before, ",")) && base64Text(o.payload[quote+1:]) &&
		base64Text(o.end[:rest]) && strings.HasPrefix(o.end[rest:], `","payload_codec":`)
}

// base64Text reports whether text consists of characters that may occur in the Base64 text of a value.
func base64Text(text string) bool {
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '+' && c != '/' && c != '=' {
			return false
		}
	}
	return true
}

// Whole returns the outlines of a row that was read by EventColumns.
func Whole(p Packed) Outlines { return Outlines{Packed: p} }

// Each calls fn for the outlines of the events after the event `after` up to through. It stops at an error of fn.
// maxValues is the maximum number of bytes of a value in an outline, at most MaxKept.
func (o *Outlines) Each(after, through int64, maxValues int, fn func(history.Outline) error) error {
	return o.eachBody(after, through, func(seq int64, h *head, body []byte) error {
		out := history.Outline{Seq: seq, At: history.Micros(h.At), Type: h.Type, TaskID: h.Task}
		if o.end != "" {
			body = append(body, o.end...)
		}
		out.Payload, out.Values = history.OutlineOf(body, min(maxValues, MaxKept))
		for i := range out.Values {
			if v := &out.Values[i]; o.end != "" && v.Name == largeMember[h.Type] {
				v.Size += o.missing
			}
		}
		return fn(out)
	})
}
