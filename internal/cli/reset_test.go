package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The app is killed (SIGKILL) while it resets runs, and starts again. Each acknowledged reset is found when its request
// is repeated. A reset without a response was committed completely or not at all: after the repetition, each workflow
// has two runs. The first has ended, and the second continues without running its completed activity again.
func TestResetsSurviveAKilledApp(t *testing.T) {
	t.Parallel()
	onDatabases(t, "killed", func(p *plant) {
		p.begin("w", nil)
		const workflows, callers = 24, 4
		var ids []string
		runs := map[string]string{}
		for i := range workflows {
			id := fmt.Sprintf("order-%d", i)
			ids = append(ids, id)
			runs[id] = p.client.start(id, "takeover.two", "", id).RunID
		}
		for _, id := range ids {
			p.waits(id, runs[id])
		}
		path := func(id string) string { return "/api/sojourn/workflows/" + id + "/runs/" + runs[id] + "/reset" }
		body := `{"to":"last_task","request_id":"r1"}`
		acknowledged := map[string]string{} // new run by workflow ID
		responses := make(chan struct{}, workflows)
		var mu sync.Mutex
		var g sync.WaitGroup
		for i := range callers {
			g.Go(func() {
				for n := i; n < workflows; n += callers {
					status, raw, err := p.client.call(p.t.Context(), http.MethodPost, path(ids[n]), body)
					if err != nil {
						return // the app was killed
					}
					var out protocol.ResetReceipt
					if err := json.Unmarshal(raw, &out); err != nil || status != http.StatusAccepted {
						p.t.Errorf("reset of %s: %d %s %v", ids[n], status, raw, err)
					}
					mu.Lock()
					acknowledged[ids[n]] = out.RunID
					mu.Unlock()
					responses <- struct{}{}
				}
			})
		}
		for range callers {
			<-responses
		}
		p.app.kill()
		g.Wait()
		if len(acknowledged) == workflows {
			p.t.Fatal("the app was killed after the last reset")
		}
		p.app = launch(p.t, p.dir, p.fleet.app, "app")
		p.client.up()

		for _, id := range ids {
			var out protocol.ResetReceipt
			p.client.must(http.MethodPost, path(id), body, &out)
			first, done := acknowledged[id]
			v := p.client.describe(id)
			if done && (out.RunID != first || !out.Retained) {
				p.t.Errorf("reset of %s: the first response was %s, the repeated one %+v", id, first, out)
			}
			if out.RunID == runs[id] || v.RunID != out.RunID || v.RunCount != 2 {
				p.t.Errorf("after the reset of %s to run %s: current run %s of %d", id, out.RunID, v.RunID, v.RunCount)
			}
			old := p.client.history(id, runs[id], nil)
			end, ok := old[len(old)-1].Data.(*history.WorkflowTerminated)
			if !ok || end.NewRunID != out.RunID {
				p.t.Errorf("the first run of %s ended with %s", id, old[len(old)-1].Data.Type())
			}
			p.signal(id)
			p.client.completed(id, out.RunID)
			for _, item := range []string{id + " before", id} {
				if n := len(p.lines(item)); n != 1 {
					p.t.Errorf("activity %q ran %d times", item, n)
				}
			}
		}
	})
}
