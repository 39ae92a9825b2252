package cli_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func registerFailFast(r *worker.Registry) {
	r.Workflow("fail-fast.turns", failFastTurns)
	r.Workflow("fail-fast.idle", failFastIdle)
}

// failFastIdle runs one step in a fail-fast session, and another one after a signal.
func failFastIdle(ctx workflow.Context, session string) error {
	in := workflow.WithActivity(ctx, workflow.ActivityOptions{Session: session, SessionFailFast: true})
	if _, err := workflow.Execute[bool](in, stormTurn, "before the signal"); err != nil {
		return err
	}
	if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
		return err
	}
	_, err := workflow.Execute[bool](in, stormTurn, "after the signal")
	return err
}

// failFastTurns runs sequential steps in a fail-fast session until a step reports that it was the last.
func failFastTurns(ctx workflow.Context, session string) (turns int, err error) {
	in := workflow.WithActivity(ctx, workflow.ActivityOptions{Session: session, SessionFailFast: true})
	for more := true; more; turns++ {
		if more, err = workflow.Execute[bool](in, stormTurn, fmt.Sprint("turn ", turns)); err != nil {
			return turns, err
		}
	}
	return turns, nil
}

// The owner of fail-fast sessions is killed at default settings, while activities run in half of the sessions and the
// others are idle: another process has all of them within 12 seconds.
func TestFailFastSessionsOfAKilledProcess(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s := newStorm(t, kind == "postgres")
			s.leases = env{}
			s.begins("w1")
			for i := range 8 {
				id := fmt.Sprint("fail-fast-", i)
				s.runs[id] = s.client.start(id, "fail-fast.turns", id).RunID
			}
			s.resume()
			idle := map[string]string{}
			for i := range 8 {
				id := fmt.Sprint("fail-fast-idle-", i)
				idle[id] = s.client.start(id, "fail-fast.idle", id).RunID
				s.runs[id] = idle[id]
			}
			until(t, "the idle sessions wait for a signal", func() bool {
				for id := range idle {
					if k := s.client.describe(id).WaitKind; k == nil || *k != "signal" {
						return false
					}
				}
				return true
			})
			viewer := env{"SOJOURN_APP_URL": s.client.base, "SOJOURN_TOKEN": s.client.token}
			code, out, err := run(t, t.TempDir(), viewer, "sessions", "describe", "fail-fast-0")
			if code != 0 || !strings.Contains(out, "fail-fast: leases of at most 10s, renewed every 3s") {
				t.Errorf("exit %d: %s%s", code, out, err)
			}
			s.begins("w2")
			s.node["w1"].kill()
			killed := time.Now()
			for id := range idle {
				s.client.must(http.MethodPost, "/api/workflows/"+id+"/signal/go", map[string]any{}, nil)
			}
			var last time.Time
			until(t, "the other worker has all sessions", func() bool {
				first := map[string]time.Time{}
				for _, l := range ledger(t, s.ledger) {
					if at, ok := first[l.Session]; l.Worker == "w2" && (!ok || l.At.Before(at)) {
						first[l.Session] = l.At
					}
				}
				for _, at := range first {
					if at.After(last) {
						last = at
					}
				}
				return len(first) == len(s.runs)
			})
			s.release()
			for session, run := range s.runs {
				s.client.completed(session, run)
			}
			took := last.Sub(killed)
			t.Logf("%d sessions, half of them idle, were taken over within %.1f s", len(s.runs), took.Seconds())
			if took > 12*time.Second+3*time.Second { // what a busy machine may add
				t.Errorf("the takeover took %s", took)
			}
		})
	}
}
