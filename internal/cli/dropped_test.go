package cli_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
)

// All workers of an app lose their sockets at once, twice, while each runs an activity. They reconnect, and their
// activities complete, each once and in its first attempt. Then they receive tasks again. The test starts a hundred
// workers; SOJOURN_TEST_STORM sets the number, and "make storm" starts a thousand.
func TestWorkersWithDroppedSocketsReconnectAndLoseNothing(t *testing.T) {
	many := 100
	if text := os.Getenv("SOJOURN_TEST_STORM"); text != "" {
		var err error
		if many, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			dir, at := t.TempDir(), address(t)
			e := env{"SOJOURN_ADDR": at, "SOJOURN_TOKEN": "sjn_bootstrap_of_this_test_and_long_enough"}
			if kind == "postgres" {
				e["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
			}
			launch(t, dir, e, "app")
			c := client{t: t, base: "http://" + at, token: e["SOJOURN_TOKEN"]}
			c.up()

			var mu sync.Mutex // guards ran
			ran := map[string]int{}
			running, release := atomic.Int64{}, make(chan struct{})
			crowd := &crowd{t: t, url: c.base, token: c.token, reg: worker.NewRegistry()}
			crowd.reg.Activity("storm.held", func(ctx context.Context, item string) error {
				mu.Lock()
				ran[item]++
				mu.Unlock()
				running.Add(1)
				defer running.Add(-1)
				select {
				case <-release:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
			t.Cleanup(crowd.disperse)
			for range many {
				crowd.join()
			}
			runs := map[string]string{}
			schedule := func(kind string) {
				for i := range many {
					id, out := fmt.Sprintf("%s-%d", kind, i), struct {
						RunID string `json:"run_id"`
					}{}
					c.must(http.MethodPost, "/api/sojourn/activities", map[string]any{
						"activity_type": "storm.held", "workflow_id": id, "input": []any{id},
					}, &out)
					runs[id] = out.RunID
				}
			}
			schedule("first")
			until(t, "each of them runs one", func() bool { return running.Load() == int64(many) })
			for round := range 2 {
				began, dropped := time.Now(), 0
				for _, m := range crowd.members {
					dropped += m.drop()
				}
				if dropped < many {
					t.Errorf("round %d: %d connections dropped of %d workers", round, dropped, many)
				}
				until(t, "all are connected again", func() bool {
					for _, m := range crowd.members {
						m.mu.Lock()
						dialled := len(m.conns)
						m.mu.Unlock()
						if dialled == 0 || m.w.Ready() != nil {
							return false
						}
					}
					return true
				})
				t.Logf("round %d: %d sockets back after %s", round, many, time.Since(began).Round(time.Millisecond))
			}
			if got := running.Load(); got != int64(many) {
				t.Errorf("%d of %d activities run still", got, many)
			}
			close(release)
			schedule("second")
			for id, run := range runs {
				events := c.history(id, run, nil)
				attempts := 0
				for _, e := range events {
					if d, ok := e.Data.(*history.ActivityCompleted); ok {
						attempts = max(attempts, d.Number)
					}
				}
				last := events[len(events)-1].Data.Type()
				mu.Lock()
				times := ran[id]
				mu.Unlock()
				if last != "WorkflowCompleted" || attempts != 1 || times != 1 {
					t.Errorf("%s: %s after %d attempts, its code ran %d times", id, last, attempts, times)
				}
			}
		})
	}
}
