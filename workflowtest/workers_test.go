package workflowtest_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
	"github.com/sojourn-run/sojourn/workflowtest"
)

// visits returns a registry whose workflow calls an activity in one session each hour, and the workers of the calls.
func visits(times int) (r *worker.Registry, seen func() []string) {
	var mu sync.Mutex
	var workers []string
	r = worker.NewRegistry()
	r.Activity("visit", func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		workers = append(workers, activity.Info(ctx).WorkerID)
		return nil
	})
	r.Workflow("visits", func(ctx workflow.Context) error {
		in := workflow.InSession(ctx, "s")
		for range times {
			if err := workflow.ExecuteActivity(in, "visit").Get(ctx, nil); err != nil {
				return err
			}
			if err := workflow.Sleep(ctx, time.Hour); err != nil {
				return err
			}
		}
		return nil
	})
	return r, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(workers)
	}
}

// The holder of a session is killed, frozen or drained between two activities. Another worker acquires the session
// under a higher epoch, and the workflow completes.
func TestASessionMovesWhenItsWorkerIsLost(t *testing.T) {
	for name, lose := range map[string]func(*workflowtest.Worker){
		"killed":  (*workflowtest.Worker).Kill,
		"frozen":  func(w *workflowtest.Worker) { go w.Freeze(2 * time.Hour) },
		"drained": (*workflowtest.Worker).Drain,
	} {
		t.Run(name, func(t *testing.T) {
			r, seen := visits(2)
			o := workflowtest.Options{Workers: []workflowtest.WorkerSpec{{ID: "a"}, {ID: "b", MaxSessions: 5}}}
			workflowtest.RunWith(t, o, r, func(t *testing.T, env *workflowtest.Env) {
				run := env.Start("visits")
				time.Sleep(time.Minute)
				before := env.Sessions()
				if len(before) != 1 || before[0].Status != "active" || before[0].Worker == "" {
					t.Fatalf("sessions: %+v", before)
				}
				holder := env.Worker(0)
				if before[0].Worker == "b" {
					holder = env.Worker(1)
				}
				lose(holder)
				time.Sleep(time.Hour) // the second activity has run
				after := env.Sessions()
				if len(after) != 1 || after[0].Epoch <= before[0].Epoch || after[0].Worker == before[0].Worker {
					t.Errorf("sessions: %+v, before %+v", after, before)
				}
				if _, err := workflowtest.Result[any](run); err != nil {
					t.Fatal(err)
				}
				workers := seen()
				if len(workers) != 2 || workers[0] != before[0].Worker || workers[1] == workers[0] {
					t.Errorf("the activities ran on %v, the first holder was %s", workers, before[0].Worker)
				}
			})
		})
	}
}

// The outcome of an activity that ends after its worker was killed is discarded: the activity runs again.
func TestTheOutcomeOfAKilledWorkerIsDiscarded(t *testing.T) {
	r := worker.NewRegistry()
	started := make(chan string, 2)
	r.Activity("slow", func(ctx context.Context) (string, error) {
		started <- activity.Info(ctx).WorkerID
		time.Sleep(30 * time.Second)
		return activity.Info(ctx).WorkerID, nil
	})
	r.Workflow("calls", func(ctx workflow.Context) (string, error) {
		return workflow.Await[string](ctx, workflow.ExecuteActivity(ctx, "slow"))
	})
	workflowtest.RunWith(t, workflowtest.Options{}, r, func(t *testing.T, env *workflowtest.Env) {
		run := env.Start("calls")
		first := <-started
		env.Worker(0).Kill()
		env.AddWorker(workflowtest.WorkerSpec{})
		got, err := workflowtest.Result[string](run)
		if err != nil || first != "test" || got != "test-1" {
			t.Errorf("first on %s, then %s, %v", first, got, err)
		}
	})
}

// Workers poll the queues of their specification or of the options, and have their capabilities.
func TestWorkersHaveQueuesAndCapabilities(t *testing.T) {
	r := worker.NewRegistry()
	r.Activity("where", func(ctx context.Context) (string, error) { return activity.Info(ctx).WorkerID, nil })
	r.Workflow("asks", func(ctx workflow.Context) (string, error) {
		on := workflow.WithActivity(ctx, workflow.ActivityOptions{Queue: "gpu", Requirements: []string{"cuda"}})
		return workflow.Await[string](ctx, workflow.ExecuteActivity(on, "where"))
	})
	o := workflowtest.Options{Queues: []string{"default", "gpu"}, Workers: []workflowtest.WorkerSpec{
		{ID: "plain"}, {ID: "cuda", Queues: []string{"gpu"}, Capabilities: []string{"cuda"}},
	}}
	workflowtest.RunWith(t, o, r, func(t *testing.T, env *workflowtest.Env) {
		if got, err := workflowtest.Result[string](env.Start("asks")); err != nil || got != "cuda" {
			t.Errorf("ran on %s, %v", got, err)
		}
	})
}

// Without workers in the options, each queue gets a worker when a task first appears on it, also if a workflow or an
// activity names the queue. Tests with Run have one worker on the queue default.
func TestEachQueueGetsAWorkerWhenATaskAppears(t *testing.T) {
	r := worker.NewRegistry()
	r.Activity("where", func(ctx context.Context) (string, error) { return activity.Info(ctx).WorkerID, nil })
	r.Workflow("asks", func(ctx workflow.Context) (all []string, err error) {
		for _, queue := range []string{"gpu", "", "gpu", "disk"} {
			on := workflow.WithActivity(ctx, workflow.ActivityOptions{Queue: queue})
			where, err := workflow.Await[string](ctx, workflow.ExecuteActivity(on, "where"))
			if err != nil {
				return nil, err
			}
			all = append(all, where)
		}
		return all, nil
	})
	workflowtest.RunWith(t, workflowtest.Options{}, r, func(t *testing.T, env *workflowtest.Env) {
		got, err := workflowtest.Result[[]string](env.Start("asks"))
		if err != nil || !slices.Equal(got, []string{"test-gpu", "test", "test-gpu", "test-disk"}) {
			t.Errorf("ran on %v, %v", got, err)
		}
	})
}

// A queue for which the test has added a worker gets no other worker, even if the added worker was killed.
func TestAQueueOfAnAddedWorkerGetsNoOtherWorker(t *testing.T) {
	workflowtest.RunWith(t, workflowtest.Options{}, queueNames(), func(t *testing.T, env *workflowtest.Env) {
		env.AddWorker(workflowtest.WorkerSpec{Queues: []string{"gpu"}}).Kill()
		run := env.Start("asks", "gpu")
		time.Sleep(time.Hour)
		env.AddWorker(workflowtest.WorkerSpec{ID: "replacement", Queues: []string{"gpu"}})
		if got, err := workflowtest.Result[string](run); err != nil || got != "replacement" {
			t.Errorf("ran on %s, %v", got, err)
		}
	})
}

// The worker of a queue is named after the queue, unless the ID would be too long or is the ID of another worker.
func TestWorkersOfQueuesHaveValidAndDistinctIDs(t *testing.T) {
	workflowtest.RunWith(t, workflowtest.Options{}, queueNames(), func(t *testing.T, env *workflowtest.Env) {
		for _, c := range []struct{ queue, want string }{
			{"gpu", "test-gpu"},
			{strings.Repeat("q", 255), "test-2"},
			{"2", "test-3"},
			{"5", "test-5"},
		} {
			if got, err := workflowtest.Result[string](env.Start("asks", c.queue)); err != nil || got != c.want {
				t.Errorf("the task of queue %s ran on %s, %v, want %s", c.queue, got, err, c.want)
			}
		}
		if w := env.AddWorker(workflowtest.WorkerSpec{}); w.ID != "test-6" {
			t.Errorf("an added worker has the ID %s, want test-6", w.ID)
		}
	})
}

// queueNames returns a registry whose workflow asks an activity on a queue for the ID of its worker.
func queueNames() *worker.Registry {
	r := worker.NewRegistry()
	r.Activity("where", func(ctx context.Context) (string, error) { return activity.Info(ctx).WorkerID, nil })
	r.Workflow("asks", func(ctx workflow.Context, queue string) (string, error) {
		on := workflow.WithActivity(ctx, workflow.ActivityOptions{Queue: queue})
		return workflow.Await[string](ctx, workflow.ExecuteActivity(on, "where"))
	})
	return r
}

// A worker that is frozen twice is frozen until the later time: a task that it receives during the first freeze does
// not run before the end of the second one.
func TestOverlappingFreezesEndWithTheLastOne(t *testing.T) {
	ran := make(chan time.Time, 10)
	r := worker.NewRegistry()
	r.Activity("runs", func(context.Context) error {
		ran <- time.Now()
		return nil
	})
	o := workflowtest.Options{Workers: []workflowtest.WorkerSpec{{}, {Queues: []string{"frozen"}}}}
	r.Workflow("calls", func(ctx workflow.Context) error {
		on := workflow.WithActivity(ctx, workflow.ActivityOptions{Queue: "frozen"})
		return workflow.ExecuteActivity(on, "runs").Get(ctx, nil)
	})
	workflowtest.RunWith(t, o, r, func(t *testing.T, env *workflowtest.Env) {
		w := env.Worker(1)
		var freezes sync.WaitGroup
		freezes.Go(func() { w.Freeze(10 * time.Second) })
		time.Sleep(time.Second)
		run := env.Start("calls")
		time.Sleep(time.Second)
		second := time.Now()
		freezes.Go(func() { w.Freeze(20 * time.Second) })
		if _, err := workflowtest.Result[any](run); err != nil {
			t.Error(err)
		}
		if d := (<-ran).Sub(second); d < 20*time.Second {
			t.Errorf("the activity ran %s after the second freeze of its worker began", d)
		}
		freezes.Wait()
	})
}

// An operator resumes a worker that is frozen, and drained it before the freeze or during it. An activity runs in the
// worker's session. After the freeze the next activity of the session runs at the same worker at once.
func TestAFrozenWorkerThatIsResumedKeepsItsSession(t *testing.T) {
	for name, frozenAfter := range map[string]time.Duration{"drained before": 3 * time.Second, "drained during": 0} {
		t.Run(name, func(t *testing.T) {
			var long atomic.Bool
			r := worker.NewRegistry()
			r.Activity("long", func(ctx context.Context) (string, error) {
				long.Store(true)
				defer long.Store(false)
				time.Sleep(10 * time.Minute)
				return activity.Info(ctx).WorkerID, nil
			})
			r.Activity("short", func(ctx context.Context) (string, error) {
				if !long.Load() {
					return "", errors.New("the activity waited for the end of the other one")
				}
				return activity.Info(ctx).WorkerID, nil
			})
			r.Workflow("flow", func(ctx workflow.Context) (string, error) {
				in := workflow.InSession(ctx, "s")
				first := workflow.ExecuteActivity(in, "long")
				if err := workflow.Sleep(ctx, time.Minute); err != nil {
					return "", err
				}
				b, err := workflow.Await[string](ctx, workflow.ExecuteActivity(in, "short"))
				if err != nil {
					return "", err
				}
				a, err := workflow.Await[string](ctx, first)
				return a + b, err
			})
			workflowtest.RunWith(t, workflowtest.Options{
				Workers: []workflowtest.WorkerSpec{{ID: "a"}, {ID: "b", MaxSessions: -1}},
			}, r, func(t *testing.T, env *workflowtest.Env) {
				run := env.Start("flow")
				time.Sleep(10 * time.Second)
				before := env.Sessions()
				if len(before) != 1 || !long.Load() {
					t.Fatalf("sessions: %+v", before)
				}
				operate := func(verb string) {
					if err := env.Operate(verb, "a"); err != nil {
						t.Fatal(err)
					}
					time.Sleep(3 * time.Second)
				}
				go func() {
					time.Sleep(frozenAfter)
					env.Worker(0).Freeze(8 * time.Second)
				}()
				time.Sleep(time.Second)
				operate("drain")
				operate("resume")
				time.Sleep(2 * time.Minute)
				if after := env.Sessions(); len(after) != 1 || after[0].Epoch != before[0].Epoch {
					t.Errorf("sessions: %+v, before %+v", after, before)
				}
				got, err := workflowtest.Result[string](run)
				if err != nil || got != "aa" {
					t.Errorf("ran at %q, want aa: %v", got, err)
				}
			})
		})
	}
}
