package broker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// watchingStuck runs WatchStuck until the test ends.
func (o *harness) watchingStuck(a *app) {
	ctx, stop := context.WithCancel(o.t.Context())
	var watching sync.WaitGroup
	watching.Go(func() { a.WatchStuck(ctx) })
	o.t.Cleanup(func() {
		stop()
		watching.Wait()
	})
}

// stuck returns the stuck runs by workflow ID, as lists show them, and compares each with its description.
func (a *app) stuck() map[string]protocol.RunStuck {
	a.t.Helper()
	list := must[protocol.ListResponse](a.t)(a.List(a.t.Context(), protocol.ListRequest{
		Query: "Stuck = true", PageSize: 200,
	}))
	found := map[string]protocol.RunStuck{}
	for _, v := range list.Workflows {
		if v.Stuck == nil || v.StatusBucket != "running" {
			a.t.Fatalf("run of %s is listed as stuck: %+v, status %s", v.WorkflowID, v.Stuck, v.Status)
		}
		if d := a.view(protocol.Target{WorkflowID: v.WorkflowID}); d.Stuck == nil || *d.Stuck != *v.Stuck {
			a.t.Errorf("run of %s is described as stuck %+v, listed as %+v", v.WorkflowID, d.Stuck, v.Stuck)
		}
		found[v.WorkflowID] = *v.Stuck
	}
	counts := must[protocol.RunCounts](a.t)(a.RunCounts(a.t.Context(), ""))
	if counts.Stuck != len(found) {
		a.t.Errorf("%d runs are counted as stuck, %d are listed", counts.Stuck, len(found))
	}
	return found
}

// startLost starts a run of a type that no worker runs.
func (a *app) startLost(id string) {
	a.t.Helper()
	must[protocol.StartResponse](a.t)(a.Start(a.t.Context(), protocol.StartRequest{
		WorkflowID: id, WorkflowType: "unknown",
	}))
}

// beating sends heartbeats and polls for the workers for the duration d.
func (a *app) beating(d time.Duration, workers ...string) {
	a.t.Helper()
	a.renewing(d, nil, workers...)
}

// renewing is like beating, for workers that hold sessions and renew them.
func (a *app) renewing(d time.Duration, held []protocol.SessionRenewal, workers ...string) {
	a.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
		for _, id := range workers {
			_ = must[protocol.WorkerHeartbeatResponse](a.t)(a.WorkerHeartbeat(a.t.Context(), protocol.WorkerHeartbeat{
				WorkerID: id, Sessions: held,
			}))
		}
	}
}

// At default settings a run is stuck when its task has been ready for a minute without a live worker for its type. The
// mark is set at most 30 s later, and cleared at most 30 s after such a worker registers. A run whose task a live
// worker may lease is not stuck, however long the task waits.
func TestARunWithoutAWorkerForItsTypeIsStuck(t *testing.T) {
	inBubble(t, "", func(o *harness) {
		t := o.t
		a, _ := o.app("a", false)
		o.watchingStuck(a)
		a.register("w")
		a.start("waits") // its task is for worker w, which does not poll
		began := time.Now()
		for _, id := range []string{"lost", "lost too"} {
			a.startLost(id)
		}
		a.beating(50*time.Second, "w")
		if found := a.stuck(); len(found) > 0 {
			t.Fatalf("after %s, stuck are %v", time.Since(began), found)
		}
		a.beating(40*time.Second, "w")
		found := a.stuck()
		s := found["lost"]
		if len(found) != 2 || s.Reason != protocol.WaitTypeNotServed || s.Since.Sub(began).Abs() > time.Second ||
			!strings.Contains(s.Message, `no worker on queue "default" has registered workflow "unknown"`) {
			t.Fatalf("after %s, stuck are %+v", time.Since(began), found)
		}
		must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
			WorkerID: "v", TaskQueue: "default", WorkflowTypes: []string{"unknown"},
		}))
		a.beating(30*time.Second, "w", "v")
		if found := a.stuck(); len(found) > 0 {
			t.Errorf("with a worker, stuck are %v", found)
		}
		// Both workers stop. One minute after the last heartbeat no worker is alive, and all three runs are stuck.
		time.Sleep(2 * time.Minute)
		found = a.stuck()
		if len(found) != 3 || found["waits"].Reason != protocol.WaitNoWorker {
			t.Errorf("without any worker, stuck are %+v", found)
		}
	})
}

// An activity that waits for a worker which can hold one more session makes its run stuck after 30 s; activities of
// sessions that the worker holds do not.
func TestARunThatWaitsForASessionPlaceIsStuck(t *testing.T) {
	inBubble(t, "", func(o *harness) {
		t := o.t
		a, _ := o.app("a", false)
		o.watchingStuck(a)
		must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
			WorkerID: "w", TaskQueue: "default", WorkflowTypes: []string{"wf"}, AnyActivity: true,
			Capabilities: []string{"worker_sessions"}, MaxSessions: new(1),
		}))
		in := func(session string) protocol.Command {
			c := greet()
			c.SessionID = session
			return c
		}
		var held []protocol.SessionRenewal
		for i, session := range []string{"one", "two", "one"} {
			a.start(fmt.Sprint("f", i))
			a.decide(a.poll("w", protocol.KindWorkflow, 0), in(session))
			if i == 0 {
				s := a.poll("w", protocol.KindActivity, 0).Activity.Session
				held = []protocol.SessionRenewal{{SessionID: s.SessionID, Epoch: s.Epoch}}
			}
		}
		a.renewing(20*time.Second, held, "w")
		if found := a.stuck(); len(found) > 0 {
			t.Fatalf("after 20 s, stuck are %+v", found)
		}
		a.renewing(30*time.Second, held, "w")
		found := a.stuck()
		if len(found) != 1 || found["f1"].Reason != protocol.WaitWorkerSessionsFull {
			t.Errorf("after 50 s, stuck are %+v", found)
		}
	})
}

// A pass needs the same reads and commits however many runs are stuck.
func TestAPassForStuckRunsCostsTheSameForAnyNumberOfRuns(t *testing.T) {
	type cost struct{ reads, commits int64 }
	sent := map[int][2]cost{}
	for _, n := range []int{2, 200} {
		inBubble(t, fmt.Sprint(n), func(o *harness) {
			t := o.t
			a, _ := o.app("a", false)
			for i := range n {
				a.start(fmt.Sprint("f", i))
			}
			time.Sleep(5 * time.Minute) // by then the app has finished its work at the start
			stats := o.store.(interface{ Stats() store.Stats })
			pass := func() cost {
				before := stats.Stats()
				if err := a.MarkStuck(t.Context()); err != nil {
					t.Fatal(err)
				}
				now := stats.Stats()
				return cost{now.Reads - before.Reads, now.Commits - before.Commits}
			}
			costs := [2]cost{pass(), pass()}
			if found := a.stuck(); len(found) != n || costs[0].commits != 1 || costs[1].commits != 0 {
				t.Errorf("%d of %d runs are stuck, passes cost %+v", len(found), n, costs)
			}
			sent[n] = costs
		})
	}
	if sent[200] != sent[2] {
		t.Errorf("two passes cost %+v with 200 runs and %+v with 2", sent[200], sent[2])
	}
}

// While nothing changes, the app sends no statement for stuck runs; it still detects the death of a worker.
func TestStuckRunsCostNothingWhileNothingChanges(t *testing.T) {
	inBubble(t, "", func(o *harness) {
		t := o.t
		a, _ := o.app("a", false)
		o.watchingStuck(a)
		a.register("w")
		a.start("waits")
		a.startLost("lost")
		a.beating(10*time.Minute, "w")
		stats := o.store.(interface{ Stats() store.Stats })
		before := stats.Stats()
		a.beating(10*time.Minute, "w")
		if now := stats.Stats(); now.Reads != before.Reads {
			t.Errorf("ten minutes without a change took %d reads", now.Reads-before.Reads)
		}
		if found := a.stuck(); len(found) != 1 || found["lost"].Reason == "" {
			t.Errorf("stuck are %+v", found)
		}
		time.Sleep(90 * time.Second)
		if found := a.stuck(); len(found) != 2 {
			t.Errorf("without any worker, stuck are %+v", found)
		}
	})
}

// A run whose workflow code panics is stuck from its third consecutive failure on, and its wait reason is the panic.
// The run is no longer stuck once its code makes progress. Other runs are not affected.
func TestARunThatPanicsIsStuck(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		a.start("well")
		a.decide(a.poll("w", protocol.KindWorkflow, 5), greet())
		a.start("panics")
		for n := 1; n <= 3; n++ {
			if found := a.stuck(); len(found) > 0 {
				t.Fatalf("after %d failures, stuck are %+v", n-1, found)
			}
			task := a.poll("w", protocol.KindWorkflow, 5).Workflow
			c := a.complete(protocol.CompleteItem{
				Kind: protocol.KindWorkflow, TaskID: task.TaskID, Owner: task.LeaseOwner, Attempt: task.Attempt,
				Failure: &protocol.Failure{Message: "index out of range"},
			})
			if c.Err != nil {
				t.Fatal(c.Err)
			}
		}
		s := a.stuck()["panics"]
		v := a.view(protocol.Target{WorkflowID: "panics"})
		if s.Reason != protocol.WaitTaskFailed || v.Wait.Reason != protocol.WaitTaskFailed ||
			!strings.Contains(s.Message, "index out of range") || !strings.Contains(v.Wait.Message, "index out of range") {
			t.Errorf("stuck is %+v, the wait %+v", s, v.Wait)
		}
		a.decide(a.poll("w", protocol.KindWorkflow, 10), greet())
		if found := a.stuck(); len(found) > 0 {
			t.Errorf("after progress, stuck are %+v", found)
		}
	})
}
