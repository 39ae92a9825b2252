package cli_test

import (
	"strings"
	"testing"
)

// Settings that an operator changes for all workers apply to running processes over every carrier: a worker logs more,
// runs fewer activities at once and reports it, and a later worker starts with the settings. After a reset each worker
// uses its own configuration again.
func TestSettingsReachRunningWorkers(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, f *fleet) {
		app := f.startApp(nil)
		own := env{"SOJOURN_TOKEN": f.client.token, "SOJOURN_WORKER_CONCURRENCY": "5", "SOJOURN_LOG_LEVEL": "warn"}
		w := f.startWorker(own.with(env{"SOJOURN_WORKER_ID": "w"}))
		wantOutput := func(out string, want ...string) {
			t.Helper()
			for _, one := range want {
				if !strings.Contains(strings.Join(strings.Fields(out), " "), one) {
					t.Errorf("want %q in:\n%s", one, out)
				}
			}
		}
		slots := func(id string) (n int) {
			for _, v := range f.client.workers() {
				if v.WorkerID == id {
					n = v.ActivitySlots
				}
			}
			return n
		}
		until(t, "the worker is there", func() bool { return slots("w") == 5 })
		wantOutput(f.sojourn("workers", "settings"), "revision 0", "log level set by each worker", "applied by 1 of 1 workers")

		set := f.sojourn("workers", "settings", "--set-log-level", "info", "--set-concurrency", "1", "--wait")
		wantOutput(set, "revision 1", "log level info", "concurrency 1", "applied by 1 of 1 workers")
		if n := slots("w"); n != 1 {
			t.Errorf("it offers %d activities at once", n)
		}
		w.line(w.err, "applied fleet settings") // this line has level info
		wantOutput(f.sojourn("workers", "describe", "w"), "settings revision 1")

		later := f.startWorker(own.with(env{"SOJOURN_WORKER_ID": "later"}))
		until(t, "one that comes later starts with it", func() bool { return slots("later") == 1 })
		later.line(later.err, "applied fleet settings")

		// a setting without a flag does not change
		wantOutput(f.sojourn("workers", "settings", "--set-log-level", "", "--wait"),
			"revision 2", "log level set by each worker", "concurrency 1", "applied by 2 of 2 workers")
		set = f.sojourn("workers", "settings", "--set-concurrency", "0", "--wait")
		wantOutput(set, "revision 3", "applied by 2 of 2 workers")
		if slots("w") != 5 || slots("later") != 5 {
			t.Errorf("set free, they offer %d and %d activities at once", slots("w"), slots("later"))
		}
		if n := w.err.count("applied fleet settings"); n != 1 {
			t.Errorf("with its own level, warn, it has written of settings %d times", n)
		}
		wantOutput(f.sojourn("workers", "settings", "--set-fresh", "--wait"), "executors a new one per call", "applied by 2 of 2")
		wantOutput(f.sojourn("workers", "settings", "--set-fresh=false", "--wait"), "executors reused between calls", "rebalance on")
		wantOutput(f.sojourn("workers", "settings", "--set-rebalance", "off"), "rebalance off")
		code, out, errs := run(t, f.dir, env{"SOJOURN_TOKEN": f.client.token},
			"workers", "settings", "--set-isolation", "vault", "--app-url", f.client.base)
		if code == 0 || !strings.Contains(errs, "isolation_min_level") {
			t.Errorf("a level there is not ends with %d: %s%s", code, out, errs)
		}
		for _, p := range []*process{w, later, app} {
			if code := p.terminate(); code != 0 {
				t.Errorf("it ends with %d", code)
			}
		}
	})
}
