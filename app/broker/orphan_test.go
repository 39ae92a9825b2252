package broker_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// harness is a database in virtual time, with the brokers that share it.
type harness struct {
	t        *testing.T
	store    store.Store
	dispatch *dispatch.Dispatch
	began    time.Time
	away     atomic.Bool            // the store rejects writes
	reading  atomic.Pointer[func()] // called once, at the next read
	counting func(namespace string) // called before each count of usage
	runs     int
	decision *protocol.WorkflowTask // workflow task that its worker leased last
}

// unavailableStore is a store that can reject writes, and that calls a function before a read.
type unavailableStore struct {
	store.Store
	town *harness
}

func (o unavailableStore) Commit(ctx context.Context, c store.Transaction) (any, error) {
	if o.town.away.Load() {
		return nil, store.ErrUnavailable
	}
	return o.Store.Commit(ctx, c)
}

func (o unavailableStore) View(ctx context.Context, fn func(store.Reader) error) error {
	if before := o.town.reading.Swap(nil); before != nil {
		(*before)()
	}
	return o.Store.View(ctx, fn)
}

func (o unavailableStore) CountUsage(ctx context.Context, namespace string) (store.UsageCount, error) {
	if o.town.counting != nil {
		o.town.counting(namespace)
	}
	return o.Store.CountUsage(ctx, namespace)
}

// inBubble runs a case in virtual time.
func inBubble(t *testing.T, name string, test func(*harness)) {
	t.Run(name, func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			o := &harness{t: t, dispatch: dispatch.New(dispatch.Options{Log: apptest.Log(t)}), began: time.Now()}
			var err error
			o.store, err = sqlite.Open(
				t.Context(), filepath.Join(t.TempDir(), "test.db"), sqldb.Options{App: "app", Dispatch: o.dispatch},
			)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := errors.Join(o.dispatch.Close(context.WithoutCancel(t.Context())), o.store.Close()); err != nil {
					t.Error(err)
				}
			})
			test(o)
		})
	})
}

// app starts a broker that tracks its workers; kill ends it without notifying other apps, like SIGKILL.
func (o *harness) app(id string, shared bool) (a *app, kill func()) {
	return o.appWith(broker.Options{Release: "test", App: id, Shared: shared, Log: apptest.Log(o.t)})
}

func (o *harness) appWith(options broker.Options) (a *app, kill func()) {
	b := broker.New(unavailableStore{o.store, o}, o.dispatch, options)
	o.dispatch.Bind(b, func(tasks []store.Leased) {
		for _, l := range tasks {
			b.Return(l)
		}
	}, func(time.Time) {})
	ctx, cancel := context.WithCancel(context.WithoutCancel(o.t.Context()))
	var watching sync.WaitGroup
	watching.Go(func() { _ = b.Watch(ctx) })
	kill = sync.OnceFunc(func() {
		cancel()
		watching.Wait()
	})
	o.t.Cleanup(func() {
		kill()
		b.Close()
	})
	return &app{b, b.View(), o.store, o.t}, kill
}

func (o *harness) at() time.Duration { return time.Since(o.began) }

// beat sends a worker's heartbeat now and then every 15 s for the duration d.
func (o *harness) beat(a *app, worker, incarnation string, d time.Duration) {
	o.t.Helper()
	for end := time.Now().Add(d); ; time.Sleep(min(15*time.Second, time.Until(end))) {
		_, err := a.WorkerHeartbeat(o.t.Context(), protocol.WorkerHeartbeat{WorkerID: worker, Incarnation: incarnation})
		if err != nil {
			o.t.Fatal(err)
		}
		if !time.Now().Before(end) {
			return
		}
	}
}

func (o *harness) join(a *app, worker, incarnation string) {
	o.t.Helper()
	must[protocol.RegisterResponse](o.t)(a.Register(o.t.Context(), protocol.RegisterRequest{
		WorkerID: worker, Incarnation: incarnation, TaskQueue: "default", WorkflowTypes: []string{"wf"},
	}))
}

// owner returns the worker that leased the workflow task of a run, or "" if it is not leased.
func (o *harness) owner(run string) (owner string) {
	o.t.Helper()
	err := o.store.View(o.t.Context(), func(r store.Reader) error {
		got, err := r.Run(o.t.Context(), run)
		if err == nil && got.Task != nil && got.Task.State == engine.LeasedState {
			owner = got.Task.Owner
		}
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return owner
}

// freed waits until the workflow task of a run is not leased, at most for the given time, and returns how long that
// took.
func (o *harness) freed(run string, most time.Duration) time.Duration {
	o.t.Helper()
	for end := o.at() + most; o.owner(run) != ""; time.Sleep(time.Second) {
		if o.at() > end {
			o.t.Fatalf("after %s the task is still leased to %s", o.at(), o.owner(run))
		}
	}
	return o.at()
}

// An HTTP worker may die together with the app that received its heartbeats. Any other app, or the same app after a
// restart, releases the worker's tasks as soon as the stored heartbeat shows that the worker is dead, and not only when
// the lease of 300 s expires.
func TestTasksOfADeadAppAndWorkerContinue(t *testing.T) {
	const minute = time.Minute
	const process = ""
	for _, name := range []string{"with heartbeats"} {
		inBubble(t, "another app is there, "+name, func(o *harness) {
			a, kill := o.app("a", true)
			o.app("b", true)
			o.join(a, "w", process)
			o.beat(a, "w", process, minute)
			run := a.start("one").RunID
			task := a.poll("w", protocol.KindWorkflow, 0)
			kill()
			killed := o.at()
			if at := o.freed(run, 2*minute) - killed; at < 30*time.Second {
				t.Errorf("released %s after the last heartbeat", at)
			}
			b, _ := o.app("c", true)
			o.join(b, "v", "v1")
			b.blamed(run, 0)
			if second := b.poll("v", protocol.KindWorkflow, 0); second == nil || second.Workflow.TaskID != task.Workflow.TaskID {
				t.Fatalf("the next worker gets %+v", second)
			}
			if late := b.decide(task, protocol.Command{
				Type: protocol.CompleteWorkflow,
			}); protocol.ReasonOf(late.Err) != protocol.ReasonLeaseOwnerMismatch {
				t.Errorf("the late decision: %v", late.Err)
			}
		})
		inBubble(t, "it lives and goes on at another app, "+name, func(o *harness) {
			a, kill := o.app("a", true)
			b, _ := o.app("b", true)
			o.app("c", true)
			time.Sleep(10 * time.Second)
			o.join(a, "w", process)
			// the app stored its own heartbeat last, and that of the worker long before
			o.beat(a, "w", process, 81*time.Second)
			run := a.start("one").RunID
			task := a.poll("w", protocol.KindWorkflow, 0)
			kill()
			time.Sleep(45 * time.Second) // the worker needs this time to connect to another app
			o.beat(b, "w", process, 4*minute)
			if owner := o.owner(run); owner != "w" {
				t.Fatalf("%s after the app died the task is leased to %q", o.at(), owner)
			}
			b.taken(b.decide(task, protocol.Command{Type: protocol.CompleteWorkflow}))
		})
	}
	inBubble(t, "the only app is back", func(o *harness) {
		a, kill := o.app("a", false)
		o.join(a, "w", "")
		o.beat(a, "w", "", 0)
		run := a.start("one").RunID
		a.poll("w", protocol.KindWorkflow, 0)
		kill()
		time.Sleep(10 * time.Second)
		back := o.at()
		o.app("a", false)
		if at := o.freed(run, 2*minute) - back; at < 50*time.Second {
			t.Errorf("released %s after the app restarted, before its worker had time to reconnect", at)
		}
		time.Sleep(20 * time.Minute) // until the worker is removed from the list
		before := o.store.Stats()
		time.Sleep(2 * time.Hour)
		if after := o.store.Stats(); after.Statements != before.Statements {
			t.Errorf("%d statements in two idle hours", after.Statements-before.Statements)
		}
	})
	inBubble(t, "one that sends no heartbeats keeps its lease", func(o *harness) {
		a, kill := o.app("a", true)
		o.app("b", true)
		o.join(a, "w", "")
		run := a.start("one").RunID
		a.poll("w", protocol.KindWorkflow, 0)
		kill()
		time.Sleep(engine.WorkflowLease - 2*time.Second)
		if owner := o.owner(run); owner != "w" {
			t.Errorf("after %s the task is leased to %q", o.at(), owner)
		}
	})
}

// All heartbeats of a worker with leased tasks are stored. So if the worker dies together with its app, its tasks are
// released between 60 s and 65 s after its last heartbeat, at any phase of the other app's checks. Heartbeats of an
// idle worker are stored twice per minute.
func TestTasksOfADeadAppAndWorkerContinueWithin65Seconds(t *testing.T) {
	for _, worked := range []time.Duration{5, 17, 29, 31, 44, 59} {
		for _, later := range []time.Duration{0, 11, 23} { // seconds by which this app starts later than the other one
			inBubble(t, fmt.Sprintf("after %d s, with an app %d s older", worked, later), func(o *harness) {
				o.app("b", true)
				time.Sleep(later * time.Second)
				a, kill := o.app("a", true)
				o.join(a, "w", "")
				o.beat(a, "w", "", 20*time.Second)
				run := a.start("one").RunID
				a.poll("w", protocol.KindWorkflow, 0)
				o.beat(a, "w", "", worked*time.Second)
				from := o.at()
				kill()
				at := o.freed(run, 2*time.Minute) - from // freed checks once per second
				if at < 60*time.Second || at > 66*time.Second {
					t.Errorf("released %s after the last heartbeat", at)
				}
			})
		}
	}
	inBubble(t, "writes", func(o *harness) {
		a, _ := o.app("a", true)
		o.join(a, "w", "")
		o.beat(a, "w", "", 0)
		during := func(d time.Duration) int64 {
			before := o.store.Stats().Commits
			// the worker is never without a heartbeat for 15 s
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
				o.beat(a, "w", "", 0)
			}
			return o.store.Stats().Commits - before
		}
		rest := during(10 * time.Minute)
		a.start("one")
		a.poll("w", protocol.KindWorkflow, 0)
		busy := during(4 * time.Minute)
		// idle: the worker and the app every half minute; busy: each heartbeat, and the app
		if rest > 2*(20+1) || busy > 24+8+3 {
			t.Errorf("%d commits in ten minutes of rest, %d in four of work", rest, busy)
		}
	})
}

// The same applies if the app dies right after it dispatched a task to a worker, or after it registered a worker with
// tasks: the app immediately stores that it will store every heartbeat of this worker, without waiting for its next
// check.
func TestTasksLeasedRightBeforeAnAppDiedContinueWithin65Seconds(t *testing.T) {
	free := func(o *harness, run string, since time.Duration) {
		o.t.Helper()
		if at := o.freed(run, 3*time.Minute) - since; at < 60*time.Second || at > 66*time.Second {
			o.t.Errorf("released %s after the last heartbeat", at)
		}
	}
	const moment = 100 * time.Millisecond
	inBubble(t, "given", func(o *harness) {
		o.app("c", true)
		a, kill := o.app("a", true)
		o.join(a, "w", "")
		o.beat(a, "w", "", 20*time.Second)
		run := a.start("one").RunID
		a.poll("w", protocol.KindWorkflow, 0)
		last := o.at()
		time.Sleep(moment)
		kill()
		free(o, run, last)
	})
	for _, next := range []string{"there all the time", "that comes then"} {
		inBubble(t, "come to, with another app "+next, func(o *harness) {
			if next == "there all the time" {
				o.app("c", true)
			}
			a, kill := o.app("a", true)
			o.join(a, "w", "")
			o.beat(a, "w", "", 20*time.Second)
			run := a.start("one").RunID
			a.poll("w", protocol.KindWorkflow, 0)
			o.beat(a, "w", "", 20*time.Second)
			kill()
			b, kill := o.app("b", true)
			b.poll("w", protocol.KindActivity, 0)
			last := o.at()
			time.Sleep(moment)
			kill()
			if next != "there all the time" {
				o.app("c", true)
			}
			free(o, run, last)
		})
	}
}

// The tasks of an HTTP worker are released after the worker stops sending heartbeats and polls.
func TestWorkerWithoutFurtherHeartbeatsExpires(t *testing.T) {
	inBubble(t, "silent", func(o *harness) {
		a, _ := o.app("a", false)
		o.join(a, "w", "")
		run := a.start("one").RunID
		a.poll("w", protocol.KindWorkflow, 0)
		o.beat(a, "w", "", 2*time.Minute)
		last := o.at()
		if at := o.freed(run, 2*time.Minute) - last; at < 55*time.Second || at > 75*time.Second {
			t.Errorf("free %s after the last heartbeat", at)
		}
	})
	inBubble(t, "polls only", func(o *harness) {
		a, _ := o.app("a", false)
		o.join(a, "w", "")
		run := a.start("one").RunID
		a.poll("w", protocol.KindWorkflow, 0)
		o.beat(a, "w", "", 0)
		for range 8 {
			a.poll("w", protocol.KindActivity, 30)
		}
		if owner := o.owner(run); owner != "w" {
			t.Errorf("after %s the task is leased to %q", o.at(), owner)
		}
	})
}

// A task that never reached its worker is released when the store accepts writes again, and not only when its lease
// expires.
func TestAnUndeliveredTaskIsReturnedWhenTheStoreIsAvailable(t *testing.T) {
	inBubble(t, "after a minute", func(o *harness) {
		a, _ := o.app("a", false)
		o.join(a, "w", "w1")
		run := a.start("one").RunID
		none := int64(0)
		p := must[protocol.PollResponse](o.t)(a.Poll(
			o.t.Context(),
			protocol.PollRequest{WorkerID: "w", Kinds: []protocol.TaskKind{protocol.KindWorkflow}, Timeout: &none},
		))
		o.away.Store(true)
		p.Undo()
		time.Sleep(50 * time.Second)
		if owner := o.owner(run); owner != "w" {
			o.t.Fatalf("while the store is away the task is leased to %q", owner)
		}
		o.away.Store(false)
		o.freed(run, 10*time.Second)
	})
}

// An HTTP worker without heartbeats loses its tasks while a heartbeat of one of its attempts arrives: this attempt
// keeps its lease, and the other tasks are released.
func TestAttemptWithHeartbeatsStaysWithItsSilentWorker(t *testing.T) {
	for _, shared := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("shared %t", shared), func(o *harness) {
			a, _ := o.app("a", shared)
			o.hired(a, "w", func(in *protocol.RegisterRequest) { in.Process = []byte(`{"process_id": 1}`) })
			a.start("one")
			turn := func() protocol.Command {
				return protocol.Command{
					Type: protocol.ScheduleActivity, ActivityType: "turn",
					Arguments: must[payload.Payload](o.t)(payload.EncodeArgs("x")),
				}
			}
			a.taken(a.decide(a.poll("w", protocol.KindWorkflow, 0), turn(), turn(), turn()))
			var had [3]*protocol.Task
			for i := range had {
				had[i] = a.poll("w", protocol.KindActivity, 0)
			}
			last := o.at()
			o.hired(a, "v", nil)
			time.Sleep(59 * time.Second)
			// v has just sent a heartbeat, so that its next poll stores none, and the next read is the one of expired
			// leases
			o.beat(a, "v", "", 0)
			time.Sleep(time.Second + time.Millisecond)
			first := had[0].Activity
			beat := func() {
				got, err := a.HeartbeatTask(
					o.t.Context(), protocol.HeartbeatRequest{TaskID: first.TaskID, Owner: "w", AttemptID: first.AttemptID, Beat: true},
				)
				if err != nil || !got.CanContinue {
					o.t.Errorf("the heartbeat: %+v, %v", got, err)
				}
			}
			o.reading.Store(&beat)
			for range 2 { // they are suspects, and a worker may have only one suspect at a time
				second := a.poll("v", protocol.KindActivity, 15)
				if at := o.at() - last; second == nil || second.Activity.TaskID == first.TaskID || at > 75*time.Second {
					o.t.Fatalf("after %s another worker gets %+v", at, second)
				}
				a.taken(a.result(second, "done"))
			}
			if more := a.poll("v", protocol.KindActivity, 30); more != nil {
				o.t.Errorf("another worker also gets %+v", more.Activity)
			}
			a.taken(a.result(had[0], "done"))
		})
	}
}
