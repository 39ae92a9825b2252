package cli_test

import (
	"fmt"
	"net/http"
	"regexp"
	"sync"
	"syscall"
	"testing"
)

// settled waits until the number of open polls at the app is stable.
func (c client) settled() {
	c.t.Helper()
	before, same := "", 0
	until(c.t, "workers wait for work", func() bool {
		_, raw, _ := c.call(c.t.Context(), http.MethodGet, "/metrics", nil)
		now := regexp.MustCompile(`(?m)^sojourn_poll_waiters [1-9].*$`).FindString(string(raw))
		if now == "" || now != before {
			before, same = now, 0
			return false
		}
		same++
		return same > 10
	})
}

// Queries, and updates with a validator, are dispatched to the worker that has polled longest, which may be stopped.
// Their callers do not wait until its heartbeats are missed: the app also dispatches them to another worker, at another
// app if there are two.
func TestQueriesOfAFrozenWorkerAreAnswered(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := byDefault(t, kind == "postgres")
			apps, other := []*process{p.app}, p.client.base
			if kind == "postgres" {
				var app *process
				app, other = p.another("app-2", address(t))
				apps = append(apps, app)
			}
			still := p.startWorker(env{"SOJOURN_WORKER_ID": "still", "SOJOURN_DATA_DIR": t.TempDir()})
			still.line(still.err, `"message":"connected to the app"`)
			p.client.start("basket", "tour.basket", 100)
			p.client.must(http.MethodPost, "/api/workflows/basket/query/items", `{}`, nil)
			p.client.settled() // its poll for the next query arrives before the other worker's
			lives := p.startWorker(env{"SOJOURN_WORKER_ID": "lives", "SOJOURN_APP_URL": other, "SOJOURN_DATA_DIR": t.TempDir()})
			lives.line(lives.err, `"message":"connected to the app"`)
			if err := still.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			var asked sync.WaitGroup
			for i := range 8 {
				path, body := "/api/workflows/basket/query/items", `{}`
				if i%2 == 1 {
					path, body = "/api/workflows/basket/update/add", fmt.Sprintf(`{"input":["%d"]}`, i)
				}
				asked.Go(func() {
					if status, raw, err := p.client.call(t.Context(), http.MethodPost, path, body); err != nil || status >= 300 {
						t.Errorf("%s: %d %.300s, %v", path, status, raw, err)
					}
				})
			}
			asked.Wait()
			taken := 0
			for _, app := range apps {
				taken += app.err.count(`"worker_id":"still".*sent the query to another worker too`)
			}
			if taken == 0 {
				t.Error("the worker that stands still was asked nothing")
			}
		})
	}
}
