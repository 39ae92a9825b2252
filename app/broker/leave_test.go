package broker_test

import (
	"context"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// running registers worker w, with an optional incarnation, leases an attempt to it, and registers a worker "spare"
// that could also run it.
func (o *harness) running(a *app, incarnation string) *protocol.Task {
	o.t.Helper()
	o.hired(a, "w", func(in *protocol.RegisterRequest) { in.Incarnation, in.AttemptLease = incarnation, 100 })
	o.hired(a, "spare", nil)
	a.start("one")
	a.taken(a.decide(
		a.poll("w", protocol.KindWorkflow, 0), protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "turn"},
	))
	return a.poll("w", protocol.KindActivity, 0)
}

// A live worker that is removed receives no more tasks, neither on its open poll nor on its next one. Its running tasks
// are not dispatched to other workers before they end.
func TestARemovedWorkerGetsNoTasksAndEndsItsRunningOnes(t *testing.T) {
	for name, c := range map[string]struct {
		incarnation string
		refused     protocol.Reason
	}{
		"names its process":    {"p", protocol.ReasonStaleRegistration},
		"of the HTTP contract": {"", protocol.ReasonWorkerNotRegistered},
	} {
		for _, end := range []string{"reported", "handed back", "lease over"} {
			inBubble(t, name+", "+end, func(o *harness) {
				t := o.t
				a, _ := o.app("a", false)
				task := o.running(a, c.incarnation)
				open := make(chan error)
				activities, wait := []protocol.TaskKind{protocol.KindActivity}, int64(60)
				ask := protocol.PollRequest{WorkerID: "w", Incarnation: c.incarnation, Kinds: activities, Timeout: &wait}
				go func() {
					_, err := a.Poll(t.Context(), ask)
					open <- err
				}()
				time.Sleep(time.Second)
				began := o.at()
				must[protocol.DeregisterResponse](t)(a.Fleet().RemoveWorker(t.Context(), "default", "w"))
				if err := <-open; protocol.ReasonOf(err) != c.refused || o.at() != began {
					t.Errorf("the open poll ended after %s with %v", o.at()-began, err)
				}
				if _, err := a.Poll(t.Context(), ask); protocol.ReasonOf(err) != c.refused {
					t.Errorf("the next poll: %v", err)
				}
				if _, err := a.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{
					WorkerID: "w", Incarnation: c.incarnation,
				}); protocol.ReasonOf(err) != c.refused {
					t.Errorf("a heartbeat: %v", err)
				}
				if view := must[protocol.WorkerView](t)(a.Worker(
					t.Context(), "default", "w",
				)); view.Status != protocol.WorkerDraining || view.Leases != 1 {
					t.Errorf("while it runs an attempt the worker is listed as %s with %d leases", view.Status, view.Leases)
				}
				a.waits("spare")
				time.Sleep(60 * time.Second)
				a.waits("spare")
				switch end {
				case "reported":
					a.taken(a.result(task, 1))
				case "handed back":
					back := a.complete(protocol.CompleteItem{
						Kind: protocol.KindActivity, TaskID: task.Activity.TaskID, Owner: "w", AttemptID: task.Activity.AttemptID,
						Returned: "draining",
					})
					if back.Err != nil {
						t.Fatal(back.Err)
					}
				case "lease over":
					time.Sleep(50 * time.Second)
					run, seq, _ := engine.ParseStepID(task.Activity.TaskID)
					if err := a.Due(t.Context(), store.Due{Kind: store.DueActivity, Run: run, Seq: seq}); err != nil {
						t.Fatal(err)
					}
					a.blamed(run, seq)
				}
				if got := a.poll("spare", protocol.KindActivity, 0); (got != nil) != (end != "reported") {
					t.Errorf("then another worker gets %+v", got)
				}
				if _, err := a.Worker(t.Context(), "default", "w"); protocol.ReasonOf(err) != protocol.ReasonWorkerNotFound {
					t.Errorf("after its tasks have ended the worker is listed: %v", err)
				}
				_, err := a.Register(
					t.Context(),
					protocol.RegisterRequest{WorkerID: "w", Incarnation: c.incarnation, TaskQueue: "default", AnyActivity: true},
				)
				if named := c.incarnation != ""; named != (protocol.ReasonOf(err) == protocol.ReasonStaleRegistration) {
					t.Errorf("the worker registers again: %v", err)
				}
				o.hired(a, "w", func(in *protocol.RegisterRequest) { in.Incarnation = c.incarnation + "next" })
			})
		}
	}
}

// Another app leases a task to a worker while the worker deregisters. The app that deregisters it does not see this
// lease, so the other app must release it when it is notified.
func TestTasksLeasedWhileAWorkerLeftAreReturned(t *testing.T) {
	inBubble(t, "two apps", func(o *harness) {
		a, _ := o.app("a", true)
		o.running(a, "p")
		key := engine.WorkerKey{Namespace: "default", ID: "w"}
		must[any](o.t)(o.store.Commit(o.t.Context(), store.Transaction{
			Needs: store.Keys{Workers: []engine.WorkerKey{key}},
			Decide: func(store.Rows, time.Time) (store.Writes, error) {
				return store.Writes{DropWorkers: []engine.WorkerKey{key}}, nil
			},
		}))
		a.waits("spare")
		o.dispatch.Changed(store.Changed{Superseded: []store.Process{{Worker: key, Incarnation: "p"}}})
		time.Sleep(time.Second)
		if a.poll("spare", protocol.KindActivity, 0) == nil {
			o.t.Error("the leased task was not dispatched again")
		}
	})
}

// The app finishes a deregistration, including the release of the worker's tasks, even if the caller disconnects.
func TestDeregistrationCompletesWithoutItsCaller(t *testing.T) {
	inBubble(t, "its call ends in the middle", func(o *harness) {
		a, _ := o.app("a", true)
		o.running(a, "p")
		a.waits("spare")
		ctx, cancel := context.WithCancel(o.t.Context())
		var cut func()
		cut = func() {
			err := o.store.View(o.t.Context(), func(r store.Reader) error {
				w, err := r.Worker(o.t.Context(), engine.WorkerKey{Namespace: "default", ID: "w"})
				if err == nil && w.DeregisteredAt.IsZero() {
					o.reading.Store(&cut) // wait until the read has begun
				} else {
					cancel()
				}
				return err
			})
			if err != nil {
				o.t.Error(err)
			}
		}
		o.reading.Store(&cut)
		_, err := a.Deregister(ctx, protocol.DeregisterRequest{WorkerID: "w", Incarnation: "p"})
		if ctx.Err() == nil {
			o.t.Fatal("the call was not cut off")
		}
		if err != nil {
			o.t.Error(err)
		}
		if a.poll("spare", protocol.KindActivity, 0) == nil {
			o.t.Error("the task of the worker was not dispatched again")
		}
		if _, err := a.Worker(
			o.t.Context(), "default", "w",
		); protocol.ReasonOf(err) != protocol.ReasonWorkerNotFound {
			o.t.Errorf("the worker is listed: %v", err)
		}
	})
}

// The tasks of a dead worker are released immediately when it is removed, unless the worker was promised a later end of
// its lease.
func TestRemovedDeadWorkerDoesNotBlockOthers(t *testing.T) {
	inBubble(t, "of the HTTP contract", func(o *harness) {
		a, _ := o.app("a", false)
		task := o.running(a, "")
		time.Sleep(70 * time.Second)
		must[protocol.DeregisterResponse](o.t)(a.Fleet().RemoveWorker(o.t.Context(), "default", "w"))
		run, seq, _ := engine.ParseStepID(task.Activity.TaskID)
		a.blamed(run, seq)
		if got := a.poll("spare", protocol.KindActivity, 0); got == nil {
			o.t.Error("the attempt was not dispatched again")
		} else if losses, returns := a.counted(got); losses != 1 || returns != 0 {
			o.t.Errorf("the death counts as %d losses and %d other ends", losses, returns)
		}
	})
}
