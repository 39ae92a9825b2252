package broker_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Every activity task contains the trace context of its run, so the byte budget of a response must count it, with the
// escapes of its JSON.
func TestTraceContextsCountInTheBytesOfAResponse(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		const n = 256
		in := protocol.StartRequest{WorkflowID: "run", WorkflowType: "wf"}
		if err := json.Unmarshal([]byte(`{"schema":"`+history.TraceContextSchema+`","version":1,"carrier":{"traceparent":"00-`+
			strings.Repeat("1", 32)+`-`+strings.Repeat("1", 16)+`-01","tracestate":"`+strings.Repeat("<", 512)+
			`","baggage":"`+strings.Repeat("<", 2048)+`"}}`), &in.Trace); err != nil {
			t.Fatal(err)
		}
		must[protocol.StartResponse](t)(a.Start(t.Context(), in))
		task := a.all("workflow task", protocol.KindWorkflow, 1)[0]
		var commands []protocol.Command
		for range n {
			commands = append(commands, bulky(3000))
		}
		if out := a.decide(&task, commands...); out.Err != nil {
			t.Fatal(out.Err)
		}
		tasks := a.all("activities", protocol.KindActivity, n)
		if len(tasks) != n {
			t.Errorf("%d activities of %d", len(tasks), n)
		}
		for i, task := range tasks {
			if task.Activity.Trace != in.Trace {
				t.Fatalf("activity task %d with the trace context %v", i, task.Activity.Trace)
			}
		}
	})
}
