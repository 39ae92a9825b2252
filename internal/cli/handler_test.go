package cli_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// registerHandlers registers a workflow whose update handlers wait for activities; each returns the workers that its
// two ran on.
func registerHandlers(r *worker.Registry) {
	r.Workflow("killed.handlers", func(ctx workflow.Context) (int, error) {
		begun, closed := 0, false
		workflow.HandleUpdate(ctx, "work", func(ctx workflow.Context, item string, hold bool) ([]string, error) {
			begun++
			first, err := workflow.Execute[string](ctx, workItem, item, hold)
			if err != nil {
				return nil, err
			}
			second, err := workflow.Execute[string](ctx, workItem, item+" again", false)
			return []string{first, second}, err
		})
		workflow.HandleUpdate(ctx, "close", func(workflow.Context) error { closed = true; return nil })
		workflow.HandleQuery(ctx, "begun", func(workflow.Context) (int, error) { return begun, nil })
		return begun, workflow.Until(ctx, func() bool { return closed && workflow.AllHandlersFinished(ctx) })
	})
}

func TestWorkerKilledWhileUpdateHandlersWait(t *testing.T) {
	t.Parallel()
	onDatabases(t, "and its handlers go on elsewhere", func(p *plant) {
		p.begin("one", nil)
		run := p.client.start("h", "killed.handlers").RunID
		update := func(name string, args ...any) <-chan protocol.UpdateResponse {
			done := make(chan protocol.UpdateResponse, 1)
			go func() {
				defer close(done)
				var a protocol.UpdateResponse
				status, raw, err := p.client.call(p.t.Context(), http.MethodPost, "/api/workflows/h/update/"+name,
					map[string]any{"input": args, "wait_for": "completed"})
				if err == nil {
					err = json.Unmarshal(raw, &a)
				}
				if err != nil || status != http.StatusOK {
					p.t.Errorf("update %s: %d %s %v", name, status, raw, err)
				}
				done <- a
			}()
			return done
		}
		begun := func() string {
			var a struct {
				Result any `json:"result"`
			}
			p.client.must(http.MethodPost, "/api/workflows/h/query/begun", map[string]any{}, &a)
			if n, ok := a.Result.(float64); ok && n == 2 {
				return "two"
			}
			return "others"
		}
		held := update("work", "held", true)
		p.noted("held", 1)
		quick := update("work", "quick", false)
		if got := <-quick; string(got.Result) != `["one","one"]` {
			p.t.Errorf("the handler beside it: got %+v", got)
		}
		closing := update("close")
		if got := <-closing; got.UpdateStatus != "completed" {
			p.t.Errorf("close: got %+v", got)
		}
		p.node["one"].kill()
		p.begin("two", nil)
		if got := begun(); got != "two" {
			p.t.Errorf("asked while a handler waits: %s were begun", got)
		}
		if err := os.WriteFile(wordFor(p.hold, "held", "two"), nil, 0o600); err != nil {
			p.t.Fatal(err)
		}
		if got := <-held; string(got.Result) != `["two","two"]` || got.Sequence == nil {
			p.t.Errorf("the handler of the killed worker: got %+v", got)
		}
		applied := map[string]int{}
		for _, e := range p.client.completed("h", run) {
			if d, ok := e.Data.(*history.UpdateApplied); ok {
				applied[d.UpdateID]++
			}
		}
		if len(applied) != 3 || slices.Max(slices.Collect(maps.Values(applied))) != 1 {
			p.t.Errorf("updates applied: %v", applied)
		}
	})
}
