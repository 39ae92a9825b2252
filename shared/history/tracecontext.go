package history

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
)

// TraceContextSchema is the schema of a [TraceContext].
const TraceContextSchema = "durable-workflow.trace-context"

// Limits of a trace context in bytes.
const (
	MaxTraceContext = 4096 // of its JSON, without spaces and escapes that only some encoders write
	maxTraceJSON    = 8 * MaxTraceContext
	maxTraceState   = 512
	maxBaggage      = 2048
)

// TraceContext is the span of a caller, in the form of W3C Trace Context and W3C Baggage: events and tasks contain it,
// so that spans of workers belong to the trace of the caller. It never changes what the app or the code does, and a
// replay never compares it. The zero value is none.
//
// A value that is malformed or too large decodes as the zero value instead of an error, because a request must not fail
// for it.
type TraceContext struct {
	Schema  string       `json:"schema"`  // always durable-workflow.trace-context
	Version int          `json:"version"` // always 1
	Carrier TraceCarrier `json:"carrier"`
}

// TraceCarrier contains headers of W3C Trace Context and W3C Baggage.
type TraceCarrier struct {
	Traceparent string `json:"traceparent"` // trace ID and span ID of the caller
	Tracestate  string `json:"tracestate,omitempty"`
	Baggage     string `json:"baggage,omitempty"`
}

// UnmarshalJSON implements json.Unmarshaler. It never returns an error; see [TraceContext].
func (t *TraceContext) UnmarshalJSON(raw []byte) error {
	*t = TraceContext{}
	type members TraceContext
	var m members
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	decoded := len(raw) <= maxTraceJSON && d.Decode(&m) == nil
	c := &m.Carrier
	// The size of raw is not compared, because a stored or exported context may have more escapes and spaces than the
	// request had, and must decode as the same value.
	size := traceFrame + len(c.Traceparent) + textBytes(c.Tracestate) + textBytes(c.Baggage)
	if !decoded || size > MaxTraceContext {
		return nil
	}
	if m.Schema != TraceContextSchema || m.Version != 1 || !isTraceparent(c.Traceparent) {
		return nil
	}
	// W3C Trace Context: a malformed tracestate does not invalidate the traceparent.
	if len(c.Tracestate) > maxTraceState || !isHeaderText(c.Tracestate) {
		c.Tracestate = ""
	}
	if len(c.Baggage) > maxBaggage || !isHeaderText(c.Baggage) {
		c.Baggage = ""
	}
	*t = TraceContext(m)
	return nil
}

// IsZero reports whether t is none.
func (t TraceContext) IsZero() bool { return t == TraceContext{} }

// WithoutBaggage returns the trace context for a link, which contains no baggage.
func (t TraceContext) WithoutBaggage() TraceContext {
	t.Carrier.Baggage = ""
	return t
}

// Or returns t, and other if t is none.
func (t TraceContext) Or(other TraceContext) TraceContext {
	if t.IsZero() {
		return other
	}
	return t
}

// Size returns the size of the trace context in JSON, or slightly more; 0: none.
func (t TraceContext) Size() int {
	if t.IsZero() {
		return 0
	}
	n := traceFrame + len(t.Carrier.Traceparent)
	for _, text := range []string{t.Carrier.Tracestate, t.Carrier.Baggage} {
		n += textBytes(text)
		for _, escaped := range []string{"<", ">", "&"} { // as six bytes each
			n += 5 * strings.Count(text, escaped)
		}
	}
	return n
}

// traceFrame is the maximum size of a trace context's JSON without the texts of its carrier.
const traceFrame = 128

// textBytes returns the size of a header in JSON with the escapes that every encoder writes.
func textBytes(s string) int { return len(s) + strings.Count(s, `"`) + strings.Count(s, `\`) }

// traceparents has the form of version 00. Later versions may append members, which are read as version 00.
var traceparents = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-.*)?$`)

func isTraceparent(s string) bool {
	if len(s) > 256 || !isHeaderText(s) {
		return false
	}
	m := traceparents.FindStringSubmatch(s)
	return m != nil && m[1] != "ff" && (m[1] != "00" || m[4] == "") && strings.Trim(m[2], "0") != "" &&
		strings.Trim(m[3], "0") != ""
}

func isHeaderText(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}
