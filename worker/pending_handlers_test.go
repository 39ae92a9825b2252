package worker_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// pendingHandlers are handlers, by language, that leave their outcome to a caller of the API, or fail after they caught
// what pending throws.
var pendingHandlers = map[string][2]string{
	"node": {"ask.mjs", `
export async function main(way, ctx) {
	if (way === 'once') ctx.progress(ctx.keys.attempt_id);
	try { ctx.pending(); } catch (err) {
		if (way === 'caught') return 'done';
		throw err;
	}
	return 'not reached';
}`},
	"python3": {"ask.py", `
def main(way, ctx):
	if way == 'once':
		ctx.progress(ctx.keys['attempt_id'])
	try:
		ctx.pending()
	except Exception:
		if way == 'caught':
			return 'done'
		raise
	return 'not reached'
`},
}

// A handler that calls ctx.pending() leaves its attempt open: with the token that it reported, a caller fails the first
// attempt and completes the second. A handler that catches the exception has the outcome that it returns.
func TestAHandlerMakesItsAttemptPending(t *testing.T) {
	for program, file := range pendingHandlers {
		t.Run(program, func(t *testing.T) {
			apptest.Program(t, program)
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, file[0]), []byte(file[1]), 0o600); err != nil {
				t.Fatal(err)
			}
			a := apptest.Start(t, apptest.Options{})
			start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
				o.Handlers = dir
				o.Registry.Workflow("ask", func(ctx workflow.Context) ([]string, error) {
					ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{
						StartToClose: time.Hour, Retry: &workflow.RetryPolicy{MaxAttempts: 2},
					})
					once, err := workflow.Execute[string](ctx, "ask", "once")
					if err != nil {
						return nil, err
					}
					caught, err := workflow.Execute[string](ctx, "ask", "caught")
					return []string{once, caught}, err
				})
			})
			answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "ask"})
			if err != nil {
				t.Fatal(err)
			}
			resolve := func(before string, outcome protocol.ExternalOutcome) string {
				t.Helper()
				token := ""
				eventually(t, "an attempt is pending", func() bool {
					v, err := a.View().Describe(t.Context(), protocol.Target{RunID: answer.RunID})
					if err != nil || v.Pending == nil {
						t.Fatalf("the run is not open: %v", err)
					}
					for _, p := range v.Pending.Activities {
						if token = p.Token; token != "" && token != before && !strings.Contains(string(p.Progress), token) {
							t.Errorf("the handler reported %s, not the token %s", p.Progress, token)
						}
					}
					return token != "" && token != before
				})
				if _, err := a.Broker().ResolveActivity(t.Context(), protocol.ActivityOutcomeRequest{
					Token: token, ExternalOutcome: outcome,
				}); err != nil {
					t.Error(err)
				}
				return token
			}
			first := resolve("", protocol.ExternalOutcome{Failure: &protocol.Failure{Message: "no"}})
			resolve(first, protocol.ExternalOutcome{Result: []byte(`"yes"`)})
			if got := result[[]string](t, end(t, a, answer.RunID)); strings.Join(got, " ") != "yes done" {
				t.Errorf("got %q", got)
			}
			kinds := map[string]int{}
			for _, e := range events(t, a, answer.RunID) {
				kinds[e.Type()]++
				if d, ok := e.Data.(*history.ActivityCompleted); ok && d.Worker == "" {
					t.Errorf("event %d does not name the worker", e.Seq)
				}
			}
			if kinds["ActivityRetryScheduled"] != 1 || kinds["ActivityCompleted"] != 2 || kinds["ActivityFailed"] != 0 {
				t.Errorf("events %v", kinds)
			}
		})
	}
}
