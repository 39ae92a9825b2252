package history

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestTraceContextsKeepOnlyValidMembers(t *testing.T) {
	const all = `,"tracestate":"a=1,b=2","baggage":"k=v"`
	later := func(text string) string { return strings.Replace(text, `"00-`, `"01-`, 1) }
	const parent = `"traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"`
	frame := func(carrier string) string {
		return `{"schema":"durable-workflow.trace-context","version":1,"carrier":{` + carrier + `}}`
	}
	for in, want := range map[string]string{
		frame(parent):                           frame(parent),
		frame(parent + all):                     frame(parent + all),
		frame(parent + `,"tracestate":"a=1\n"`): frame(parent),
		frame(parent + `,"tracestate":"` + strings.Repeat("v", 513) + `"`):             frame(parent),
		frame(parent + `,"baggage":"` + strings.Repeat("v", 2049) + `"`):               frame(parent),
		frame(strings.Replace(parent, `-01"`, `-01-more"`, 1)):                         "",
		frame(strings.Replace(parent, `"00-`, `"ff-`, 1)):                              "",
		frame(strings.Replace(parent, `4bf9`, `4BF9`, 1)):                              "",
		frame(strings.Replace(parent, `00f067aa0ba902b7`, strings.Repeat("0", 16), 1)): "",
		frame(`"tracestate":"a=1"`):                                                    "",
		frame(parent + `,"more":"1"`):                                                  "",
		strings.Replace(frame(parent), `"version":1`, `"version":2`, 1):                "",
		strings.Replace(frame(parent), `"version":1`, `"version":"1"`, 1):              "",
		strings.Replace(frame(parent), `trace-context`, `trace-links`, 1):              "",
		later(frame(parent)): later(frame(parent)),
		strings.TrimSuffix(frame(parent), "}") + strings.Repeat(" ", maxTraceJSON) + `}`: "",
		`[]`: "", `"text"`: "", `null`: "",
	} {
		var e SignalReceived
		if err := json.Unmarshal([]byte(`{"observability_context":`+in+`}`), &e); err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		raw, err := json.Marshal(e.Trace)
		if got := string(raw); err != nil || e.Trace.IsZero() != (want == "") || want != "" && got != want {
			t.Errorf("%s becomes %s (%v), want %q", in, got, err, want)
		}
	}
}

// The app stores a context in events and in the state of the run, and exports contain it, so each must decode as the
// value that the request had, although their JSON may be longer.
func TestTraceContextsDecodeAsTheSameValueAgain(t *testing.T) {
	for _, text := range []string{"<", ">&", `"`, `\`, "k=v,"} {
		in := TraceContext{Schema: TraceContextSchema, Version: 1, Carrier: TraceCarrier{
			Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
			Tracestate:  strings.Repeat(text, 300/len(text)), Baggage: strings.Repeat(text, 1600/len(text)),
		}}
		for _, indent := range []string{"", "        "} {
			raw, err := json.MarshalIndent(in, "", indent)
			if err != nil {
				t.Fatal(err)
			}
			var out TraceContext
			if err := json.Unmarshal(raw, &out); err != nil || out != in {
				t.Errorf("%d bytes of %s decode as %+v (%v)", len(raw), text, out, err)
			}
			if indent == "" && in.Size() < len(raw) {
				t.Errorf("the size %d of %s is less than %d", in.Size(), text, len(raw))
			}
		}
	}
}
