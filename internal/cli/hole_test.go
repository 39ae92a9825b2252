package cli_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The network path from a worker to its app drops all packets, while the path to another app is open. With default
// settings the worker connects to the other app before its leases expire and continues its tasks, which run once.
func TestWorkerFailsOverIfPacketsToItsAppAreDropped(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"socket", "http"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			p := byDefault(t, true)
			app, base := p.another("second", address(t))
			o := &operated{plant: p, apps: [2]*process{p.app, app}, runs: map[string]string{}}
			o.at = [2]client{p.client, p.client}
			o.at[1].base = base
			for i := range o.wires {
				o.wires[i] = newWire(t, o.at[i].base[len("http://"):])
			}
			p.begin("g", env{
				"SOJOURN_APP_URL": "http://" + o.wires[0].addr + ",http://" + o.wires[1].addr, "SOJOURN_LINK": way,
				"SOJOURN_QUEUES": "gpu",
			})
			o.w = p.node["g"]
			runs := map[string]string{}
			for _, session := range []string{"", "s"} {
				var a protocol.StartResponse
				p.client.must(http.MethodPost, "/api/workflows", map[string]any{
					"workflow_id": "held" + session, "workflow_type": "takeover.held", "task_queue": "gpu",
					"input": []any{session, "item" + session},
				}, &a)
				runs["held"+session] = a.RunID
				p.noted("item"+session, 1)
			}
			home := o.home()
			o.wires[home].cut()
			cut := time.Now()
			o.begin(1-home, "while cut off")
			o.ended(1 - home)
			after := time.Since(cut)
			t.Logf("new work was done %.1f s after the cut", after.Seconds())
			if after > takeover {
				t.Errorf("new work was done %s after the cut", after)
			}
			for id, run := range runs {
				item := "item" + id[len("held"):]
				p.let(item, "g")
				events := o.at[1-home].completed(id, run)
				if got := types(events); got != "WorkflowStarted ActivityScheduled ActivityCompleted WorkflowCompleted" {
					t.Errorf("%s: %s", id, got)
				}
				p.ran(item, "g")
			}
			o.wires[home].mend()
			if code := o.w.terminate(); code != 0 {
				t.Errorf("it ends with %d", code)
			}
		})
	}
}
