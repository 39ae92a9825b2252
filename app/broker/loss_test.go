package broker_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// counted returns how many deliveries of an activity ended as losses, and how many a live worker returned.
func (a *app) counted(task *protocol.Task) (losses, returns int) {
	a.t.Helper()
	run, seq, _ := engine.ParseStepID(task.Activity.TaskID)
	got, open := a.run(run).Activities.Get(seq)
	if !open {
		a.t.Fatalf("activity %s has ended", task.Activity.TaskID)
	}
	return got.Losses, got.Returns
}

// blamed waits until the backoff of a task that was blamed for a loss has ended; seq 0 is the workflow task.
func (a *app) blamed(run string, seq int64) {
	a.t.Helper()
	time.Sleep(time.Second)
	due := store.Due{Kind: store.DueRun, Run: run}
	if seq > 0 {
		due = store.Due{Kind: store.DueActivity, Run: run, Seq: seq}
	}
	if err := a.Due(a.t.Context(), due); err != nil {
		a.t.Fatal(err)
	}
}

// sweeps handles an attempt with an expired lease as a sweeper does, and reports whether the attempt ended.
func (a *app) sweeps(task *protocol.Task, at time.Time) bool {
	a.t.Helper()
	run, seq, _ := engine.ParseStepID(task.Activity.TaskID)
	if err := a.Due(a.t.Context(), store.Due{Kind: store.DueActivity, At: at, Run: run, Seq: seq}); err != nil {
		a.t.Fatal(err)
	}
	got, open := a.run(run).Activities.Get(seq)
	return !open || got.State != engine.LeasedState
}

// With two apps at default settings, a worker that leased an attempt and died immediately counts as a loss, whichever
// app detects it. A live worker whose lease expired does not, even if the detecting app never received its heartbeats.
func TestOnlyAWorkerThatDiedIsALoss(t *testing.T) {
	for name, c := range map[string]lossCase{
		"died at once": {incarnation: "p", silent: 30 * time.Second, asks: []string{"a"}, endedBy: "a", lost: true},
		"died at once, the other app comes first": {
			incarnation: "p", silent: 30 * time.Second, asks: []string{"b", "a"}, endedBy: "a", lost: true,
		},
		"died at once with its app": {
			incarnation: "p", silent: 30 * time.Second, asks: []string{"b", "b"}, endedBy: "b", gone: true, lost: true,
		},
		"lives":                            {incarnation: "p", asks: []string{"a"}, endedBy: "a"},
		"lives, the other app comes first": {incarnation: "p", asks: []string{"b", "a"}, endedBy: "a"},
		"lives, its app is gone": {
			incarnation: "p", asks: []string{"b"}, endedBy: "b", moves: true, gone: true,
		},
		"client died at once": {
			silent: 300 * time.Second, asks: []string{"b", "a"}, endedBy: "a", lost: true,
		},
		"client that polls, the other app comes first": {silent: 20 * time.Second, asks: []string{"b", "a"}, endedBy: "a"},
	} {
		inBubble(t, name, func(o *harness) {
			a, kill := o.app("a", true)
			b, _ := o.app("b", true)
			lease := 300 * time.Second
			if c.incarnation != "" {
				lease = 30 * time.Second // the lease of Go workers
			}
			c.counts(o, a, b, kill, lease)
		})
	}
}

// This is the same test on PostgreSQL, where each app has its own connections, with a fifth of the standard times.
func TestOnlyAWorkerThatDiedIsALossOnPostgres(t *testing.T) {
	const lease = 6 * time.Second
	for name, c := range map[string]lossCase{
		"died at once, the other app comes first": {
			incarnation: "p", silent: lease, asks: []string{"b", "a"}, endedBy: "a", lost: true,
		},
		"died at once with its app": {
			incarnation: "p", silent: lease, asks: []string{"b", "b"}, endedBy: "b", gone: true, lost: true,
		},
		"lives, the other app comes first": {incarnation: "p", asks: []string{"b", "a"}, endedBy: "a"},
		"lives, its app is gone":           {incarnation: "p", asks: []string{"b"}, endedBy: "b", moves: true, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			database := apptest.Postgres(t)
			o, a, kill := onPostgres(t, database, "a", 2*lease)
			_, b, _ := onPostgres(t, database, "b", 2*lease)
			c.counts(o, a, b, kill, lease)
		})
	}
}

// lossCase describes a worker that leased an attempt, and the expected end of the attempt.
type lossCase struct {
	incarnation string        // empty: a client of the HTTP API
	silent      time.Duration // time without heartbeats before the lease expires
	// apps whose sweepers check the lease, in this order: one immediately, one three seconds later
	asks    []string
	endedBy string // the worker that the end of the attempt names
	moves   bool   // from then on the other app receives the worker's heartbeats
	gone    bool   // the app that received the worker's heartbeats has ended
	lost    bool
}

// counts checks that the end of the attempt's lease counts as c expects.
func (c lossCase) counts(o *harness, a, b *app, kill func(), lease time.Duration) {
	t := o.t
	o.hired(a, "w", func(in *protocol.RegisterRequest) {
		if in.Incarnation = c.incarnation; c.incarnation != "" {
			in.AttemptLease = int64(lease.Seconds())
		}
	})
	a.start("one")
	a.taken(a.decide(
		a.poll("w", protocol.KindWorkflow, 0), protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "turn"},
	))
	task := a.poll("w", protocol.KindActivity, 0)
	due := time.Now().Add(lease)
	if c.gone {
		kill()
	}
	at := a
	if c.moves {
		at = b
	}
	pause := min(10*time.Second, lease/6)
	for end := due.Add(-c.silent); time.Now().Before(end); time.Sleep(min(pause, time.Until(end))) {
		if c.incarnation != "" {
			must[protocol.WorkerHeartbeatResponse](t)(at.WorkerHeartbeat(
				t.Context(), protocol.WorkerHeartbeat{WorkerID: "w", Incarnation: c.incarnation},
			))
		} else {
			at.poll("w", protocol.KindActivity, 0)
		}
	}
	time.Sleep(time.Until(due))
	over := ""
	for i, id := range c.asks {
		if i > 0 && id == c.asks[i-1] {
			time.Sleep(3 * time.Second)
		}
		if over != "" {
			break
		}
		if map[string]*app{"a": a, "b": b}[id].sweeps(task, due) {
			over = id
		}
	}
	losses, returns := a.counted(task)
	if over != c.endedBy || (losses == 1) != c.lost || losses+returns != 1 {
		t.Errorf("ended by %q with %d losses and %d other ends, want %q and a loss: %t", over, losses, returns, c.endedBy, c.lost)
	}
}

// The deliveries of a superseded process count as losses, whichever app releases them first.
func TestTasksOfASupersededProcessAreRequeuedAtEveryApp(t *testing.T) {
	inBubble(t, "another app frees it", func(o *harness) {
		a, _ := o.app("a", true)
		task := o.running(a, "p")
		key := engine.WorkerKey{Namespace: "default", ID: "w"}
		time.Sleep(time.Second)
		must[any](o.t)(o.store.Commit(o.t.Context(), store.Transaction{
			// what another app commits at a registration, before it releases tasks
			Needs: store.Keys{Workers: []engine.WorkerKey{key}},
			Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
				next := *rows.Worker(key)
				next.Superseded, next.Incarnation, next.RegisteredAt.Time = []string{"p"}, "q", now
				return store.Writes{Workers: []engine.Worker{next}}, nil
			},
		}))
		o.dispatch.Changed(store.Changed{Superseded: []store.Process{{Worker: key, Incarnation: "p"}}})
		time.Sleep(time.Second)
		if losses, returns := a.counted(task); losses != 1 || returns != 0 {
			o.t.Errorf("%d losses and %d other ends", losses, returns)
		}
	})
}

// The response to a registration counts the tasks that this app released for the worker. If another app processed the
// registration first, that app released the tasks, once, and no response counts them.
func TestRegistrationCountsTheTasksRequeuedByItsApp(t *testing.T) {
	for name, quicker := range map[string]bool{"alone": false, "another app was quicker": true} {
		inBubble(t, name, func(o *harness) {
			a, _ := o.app("a", true)
			o.app("b", true)
			task := o.running(a, "p")
			key := engine.WorkerKey{Namespace: "default", ID: "w"}
			run, seq, _ := engine.ParseStepID(task.Activity.TaskID)
			state := func() engine.TaskState {
				got, open := a.run(run).Activities.Get(seq)
				if !open {
					o.t.Fatal("the activity has ended")
				}
				return got.State
			}
			var before func()
			before = func() {
				var incarnation string
				must[any](o.t)(nil, o.store.View(o.t.Context(), func(r store.Reader) error {
					w, err := r.Worker(o.t.Context(), key)
					incarnation = w.Incarnation
					return err
				}))
				if incarnation == "p" { // called before the registration is stored
					o.reading.Store(&before)
					return
				}
				o.dispatch.Changed(store.Changed{Superseded: []store.Process{{Worker: key, Incarnation: "p"}}})
				for state() == engine.LeasedState {
					time.Sleep(time.Millisecond)
				}
			}
			want := 1
			if quicker {
				want = 0
				o.reading.Store(&before)
			}
			got := must[protocol.RegisterResponse](o.t)(a.Register(o.t.Context(), protocol.RegisterRequest{
				WorkerID: "w", Incarnation: "q", TaskQueue: "default", ActivityTypes: []string{"turn"},
			}))
			if got.Redelivered != want || state() != engine.Delayed {
				o.t.Errorf("the response counts %d, want %d; the task is %s", got.Redelivered, want, state())
			}
			if losses, returns := a.counted(task); losses != 1 || returns != 0 {
				o.t.Errorf("%d losses and %d other ends", losses, returns)
			}
		})
	}
}
