package workflowtest_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
	"github.com/sojourn-run/sojourn/workflowtest"
)

// A worker runs as many activities at once as the setting allows, by default 128.
func TestAWorkerHasTheConcurrencyOfTheSettings(t *testing.T) {
	const calls = 150
	for name, c := range map[string]struct {
		o    workflowtest.Options
		want int64
	}{
		"default": {workflowtest.Options{}, 128},
		"setting": {workflowtest.Options{Settings: map[string]string{"worker-concurrency": "7"}}, 7},
		"worker": {workflowtest.Options{
			Settings: map[string]string{"worker-concurrency": "7"}, Workers: []workflowtest.WorkerSpec{{Concurrency: 9}},
		}, 9},
	} {
		t.Run(name, func(t *testing.T) {
			var now, most atomic.Int64
			r := worker.NewRegistry()
			r.Activity("work", func(context.Context) error {
				n := now.Add(1)
				for was := most.Load(); n > was && !most.CompareAndSwap(was, n); was = most.Load() {
				}
				time.Sleep(time.Second)
				now.Add(-1)
				return nil
			})
			r.Workflow("fan-out", func(ctx workflow.Context) error {
				var all []workflow.Future
				for range calls {
					all = append(all, workflow.ExecuteActivity(ctx, "work"))
				}
				return workflow.Join(ctx, all...)
			})
			workflowtest.RunWith(t, c.o, r, func(t *testing.T, env *workflowtest.Env) {
				if _, err := workflowtest.Result[any](env.Start("fan-out")); err != nil {
					t.Error(err)
				}
			})
			if got := most.Load(); got != c.want {
				t.Errorf("%d activities at once, want %d", got, c.want)
			}
		})
	}
}

// The worker of an activity is killed. With the default of max-blamed-losses the activity runs again at another worker;
// with 1 it fails.
func TestTheAppHasTheSettingsOfTheTest(t *testing.T) {
	for name, settings := range map[string]map[string]string{"default": nil, "one": {"max-blamed-losses": "1"}} {
		t.Run(name, func(t *testing.T) {
			var attempts atomic.Int64
			r := worker.NewRegistry()
			r.Activity("work", func(context.Context) error {
				attempts.Add(1)
				time.Sleep(time.Hour)
				return nil
			})
			r.Workflow("flow", func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "work").Get(ctx, nil) })
			o := workflowtest.Options{Settings: settings, Workers: []workflowtest.WorkerSpec{{ID: "a"}}}
			workflowtest.RunWith(t, o, r, func(t *testing.T, env *workflowtest.Env) {
				run := env.Start("flow")
				time.Sleep(time.Minute)
				env.AddWorker(workflowtest.WorkerSpec{ID: "b"})
				env.Worker(0).Kill()
				_, err := workflowtest.Result[any](run)
				if want := int64(2); settings == nil && (err != nil || attempts.Load() != want) {
					t.Errorf("%v after %d attempts, want %d", err, attempts.Load(), want)
				}
				if settings != nil && (err == nil || attempts.Load() != 1) {
					t.Errorf("%v after %d attempts, want a failure after 1", err, attempts.Load())
				}
			})
		})
	}
}

// A short lease of attempts is renewed: the activity runs once, and its worker sends heartbeats more often.
func TestAShortAttemptLeaseIsRenewed(t *testing.T) {
	var attempts atomic.Int64
	r := worker.NewRegistry()
	r.Activity("work", func(context.Context) error {
		attempts.Add(1)
		time.Sleep(10 * time.Minute)
		return nil
	})
	r.Workflow("flow", func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "work").Get(ctx, nil) })
	o := workflowtest.Options{Settings: map[string]string{"attempt-lease": "9s"}}
	workflowtest.RunWith(t, o, r, func(t *testing.T, env *workflowtest.Env) {
		if _, err := workflowtest.Result[any](env.Start("flow")); err != nil {
			t.Error(err)
		}
	})
	if n := attempts.Load(); n != 1 {
		t.Errorf("%d attempts", n)
	}
}

func TestSettingsThatAreUnknownInvalidOrUnusedAreRejected(t *testing.T) {
	for _, c := range []struct{ name, value, want string }{
		{"sesion-lease", "60s", "in a test; did you mean session-lease; settings"},
		{"addr", "127.0.0.1:1", "setting addr is unknown or has no effect"},
		{"session-lease", "soon", "session-lease"},
		{"queues", "", "setting queues is empty"},
	} {
		err := workflowtest.CheckSettings(map[string]string{c.name: c.value})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s=%s: %v", c.name, c.value, err)
		}
	}
	if err := workflowtest.CheckSettings(map[string]string{"session-lease": "60s", "resources": "gpu=2"}); err != nil {
		t.Error(err)
	}
}
