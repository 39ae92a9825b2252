package cli_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker process is drained, resumed and evicted by its operator over every carrier. Drained, it finishes its tasks,
// releases its session and keeps running, even if its app is killed meanwhile. Resumed, it gets tasks again. Evicted,
// its process exits with code 0.
func TestAWorkerIsDrainedResumedAndEvicted(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, f *fleet) {
		app := f.startApp(nil)
		port := address(t)
		w := f.startWorker(env{
			"SOJOURN_WORKER_ID": "w", "SOJOURN_TOKEN": f.client.token, "SOJOURN_WORKER_ADDR": port,
		})
		w.line(w.err, `"message":"connected to the app"`)
		wantOutput := func(out, want string) {
			t.Helper()
			if !strings.Contains(out, want) {
				t.Errorf("want %q in:\n%s", want, out)
			}
		}
		one := f.client.start("one", "killed.one", "s")
		p := &plant{fleet: f}
		p.noted("item", 1)

		wantOutput(f.sojourn("workers", "drain", "w", "--reason", "kernel"), "worker w: draining, 0 of 1 workers drained; 1 tasks running")
		w.line(w.err, `worker drained by an operator`)
		if status := probed(t, port); status != http.StatusServiceUnavailable {
			t.Errorf("/readyz says %d while it is drained", status)
		}
		p.let("item", "w")
		p.noted("item done", 1)
		until(t, "nothing is left", func() bool { return strings.Contains(f.sojourn("workers", "drains"), "drained") })
		if s := p.session("s"); s.LeaseOwner != nil || s.EndedReason != "released" {
			t.Errorf("the session is %s's, %s", *s.LeaseOwner, s.EndedReason)
		}

		app.kill()
		app = launch(t, f.dir, f.app, "app")
		f.client.up()
		until(t, "the worker is back", func() bool {
			for _, v := range f.client.workers() {
				if v.WorkerID == "w" && v.Status == protocol.WorkerDraining && v.Drain != nil && v.Drain.Reason == "kernel" {
					return true
				}
			}
			return false
		})
		until(t, "the run says what it waits for", func() bool {
			v := f.client.describe("one")
			return v.Wait != nil && v.Wait.Reason == protocol.WaitWorkerDraining
		})
		wantOutput(f.sojourn("workers", "resume", "w"), "resumed dispatch to worker w")
		f.client.completed("one", one.RunID)
		until(t, "/readyz says so", func() bool { return probed(t, port) == http.StatusOK })

		f.sojourn("workers", "evict", "w", "--wait")
		if code := w.exit(); code != 0 {
			t.Errorf("the evicted worker ends with %d", code)
		}
		if left := f.client.workers(); len(left) != 0 {
			t.Errorf("still listed: %+v", left)
		}
		if code := app.terminate(); code != 0 {
			t.Errorf("the app ends with %d", code)
		}
	})
}

func probed(t *testing.T, addr string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}
