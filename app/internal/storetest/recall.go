package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// recall contains two apps: the first one decides on cached rows while the second one changes these rows.
type recall struct {
	one, two *Fixture
	worker   *engine.Worker
	n        int
}

// commitWhile commits a change at the first app. It calls meanwhile after the change was decided on cached rows and
// before it is committed. It returns the number of decisions and of round trips.
func (w *recall) commitWhile(make func() store.Transaction, meanwhile func()) (times int, trips int64, err error) {
	w.one.T.Helper()
	for range 100 {
		w.untilOneRoundTrip()
		c := make()
		before := w.one.S.Stats().RoundTrips
		times, remembered := 0, false
		decide := c.Decide
		c.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
			times++
			out, err := decide(rows, now)
			if times == 1 && w.one.S.Stats().RoundTrips == before {
				remembered = true
				meanwhile()
			}
			return out, err
		}
		_, err = w.one.S.Commit(context.Background(), c)
		if remembered {
			return times, w.one.S.Stats().RoundTrips - before, err
		}
	}
	w.one.T.Fatal("nothing was decided on what is remembered")
	return 0, 0, nil
}

// untilOneRoundTrip makes steps until one takes a single round trip: after a wrong guess, the store does not try for a
// while.
func (w *recall) untilOneRoundTrip() {
	run := w.start()
	w.one.until("a step in one round trip", func() bool {
		before := w.one.S.Stats().RoundTrips
		w.one.Do(run, engine.SignalRun{Name: "again"})
		return w.one.S.Stats().RoundTrips == before+1
	})
}

func (w *recall) start() string {
	w.n++
	return w.one.Start(fmt.Sprint("recalled", w.n))
}

// testRecalled checks that a decision on cached rows is stored in one round trip if the rows are unchanged, and
// repeated if another app wrote, leased, locked or created one of them.
func testRecalled(t *testing.T, s Suite) {
	if !s.Shared {
		t.Skip("one process has this database to itself")
	}
	one, two := s.Fixture(t, "a", Options{App: "one"}), s.Fixture(t, "a", Options{App: "two"})
	w := &recall{one: one, two: two, worker: one.Worker("w")}
	signal := func(run string) store.Transaction {
		return Step(run, engine.SignalRun{Name: "mine"}, store.Keys{})
	}
	want := func(what string, times, expected int, err, wantErr error) {
		t.Helper()
		if times != expected || !errors.Is(err, wantErr) {
			t.Errorf("%s: decided %d times (%v), want %d (%v)", what, times, err, expected, wantErr)
		}
	}
	var run string
	onRun := func() store.Transaction { run = w.start(); return signal(run) }

	times, trips, err := w.commitWhile(onRun, func() {})
	if want("as remembered", times, 1, err, nil); trips != 1 {
		t.Errorf("a step on what is remembered takes %d round trips", trips)
	}

	times, _, err = w.commitWhile(onRun, func() { two.Do(run, engine.SignalRun{Name: "theirs"}) })
	want("a run that another app wrote", times, 2, err, nil)
	if n := two.Run(run).Signals.Len(); n != 2 {
		t.Errorf("%d of 2 signals arrived", n)
	}

	times, _, err = w.commitWhile(func() store.Transaction {
		run = w.start()
		first := true
		return store.Transaction{
			Needs: store.Keys{Runs: []string{run}}, Recall: true,
			Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
				if first {
					first = false
					return store.Writes{}, errNo
				}
				return signal(run).Decide(rows, now)
			},
		}
	}, func() {})
	want("a refusal, which nothing checks", times, 2, err, nil)

	var workflow string
	times, _, err = w.commitWhile(func() store.Transaction {
		w.n++
		workflow = fmt.Sprint("taken", w.n)
		return StartChange(start(one, workflow))
	}, func() { two.Start(workflow) })
	want("an id that another app took", times, 2, err, ErrExists)

	var leased store.Leased
	var state engine.TaskState
	times, _, err = w.commitWhile(func() store.Transaction {
		w.n++
		run = one.Begun(fmt.Sprint("open", w.n), Activity("x", ""))
		c := signal(run)
		decide := c.Decide
		c.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
			for _, a := range rows.Run(run).Activities.All() {
				state = a.State
			}
			return decide(rows, now)
		}
		return c
	}, func() {
		for _, l := range two.LeaseTasks(protocol.KindActivity, w.worker, 200) {
			if l.Head.ID == run {
				leased = l
			}
		}
	})
	if want("a task that another app leased", times, 2, err, nil); leased.Head.ID != run || state != engine.LeasedState {
		t.Errorf("leased %s of run %s, which was decided on as %v", Name(leased), run, state)
	}
	two.Finish(leased)
	testRecalledWide(w)

	var held, renewed history.Time
	times, _, err = w.commitWhile(func() store.Transaction {
		w.start()
		leased = one.One(protocol.KindWorkflow, w.worker) // the oldest
		run = leased.Head.ID
		c := signal(run)
		decide := c.Decide
		one.Commit(c)
		c.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
			held, renewed = renewed, rows.Run(run).Task.Until
			return decide(rows, now)
		}
		return c
	}, func() {
		two.Do(run, engine.HeartbeatTask{
			Number: leased.Head.Task.Number, Holder: engine.Holder{Owner: "w", Delivery: leased.Head.Task.Delivery},
		})
	})
	if want("a lease that another app renewed", times, 2, err, nil); !renewed.After(held.Time) {
		t.Errorf("it ends at %s, and at %s", held, renewed)
	}

	locked, release := make(chan struct{}), make(chan struct{})
	times, _, err = w.commitWhile(onRun, func() {
		done := make(chan error)
		first := true
		go func() {
			c := signal(run)
			c.Recall = false
			decide := c.Decide
			c.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
				if first {
					first = false
					close(locked)
					<-release
				}
				return decide(rows, now)
			}
			_, err := two.S.Commit(context.Background(), c)
			done <- err
		}()
		<-locked
		go func() {
			time.Sleep(50 * time.Millisecond) // the other one meets the lock, now or later
			close(release)
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
	})
	want("a run that another app has locked", times, 2, err, nil)

	var first, second time.Time
	times, _, err = w.commitWhile(func() store.Transaction {
		c := onRun()
		decide := c.Decide
		c.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
			first, second = second, now
			return decide(rows, now)
		}
		return c
		// longer than the maximum age of a decision when the server begins with it
	}, func() { time.Sleep(1100 * time.Millisecond) })
	if want("a decision that comes late", times, 2, err, nil); second.Sub(first) < time.Second {
		t.Errorf("it was decided at %s and again at %s", first, second)
	}
}

// testRecalledWide checks the same for a run with many tasks, for which a batch reads at most whether they are as
// cached, in either way.
func testRecalledWide(w *recall) {
	one, two, t := w.one, w.two, w.one.T
	const tasks = 100
	var run string
	counts := map[engine.TaskState]int{}
	signal := func() store.Transaction {
		w.n++
		run = one.Begun(fmt.Sprint("wide", w.n), slices.Repeat([]protocol.Command{Activity("wide", "")}, tasks)...)
		c := Step(run, engine.SignalRun{Name: "mine"}, store.Keys{})
		decide := c.Decide
		c.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
			clear(counts)
			for _, a := range rows.Run(run).Activities.All() {
				counts[a.State]++
			}
			return decide(rows, now)
		}
		return c
	}
	var took []store.Leased // tasks of the run
	acquire := func(f *Fixture) {
		took = nil
		for len(took) < tasks {
			all := f.LeaseTasks(protocol.KindActivity, w.worker, 200)
			for _, l := range all {
				if l.Head.ID == run {
					took = append(took, l)
				} else { // tasks of an earlier run
					f.Finish(l)
				}
			}
			if len(all) == 0 {
				break
			}
		}
	}
	want := func(what string, times, expected int, trips, most int64, ready, leased int, err error) {
		t.Helper()
		if times != expected || trips > most || err != nil || counts[engine.Ready] != ready ||
			counts[engine.LeasedState] != leased {
			t.Errorf("%s: decided %d times (%v) in %d round trips on %v, want %d in %d on %d ready and %d leased",
				what, times, err, trips, counts, expected, most, ready, leased)
		}
	}
	times, trips, err := w.commitWhile(signal, func() {})
	want("a wide run", times, 1, trips, 1, tasks, 0, err)

	acquire(one)
	one.Do(run, engine.SignalRun{Name: "again"})
	for _, l := range took {
		one.Finish(l)
	}
	times, trips, err = w.commitWhile(signal, func() { acquire(two) })
	want("a wide run that another app leased from", times, 2, trips, 4, 0, tasks, err)

	// In the other way a batch loads the run: it finds the run as cached, and then a leased task.
	load := func(meanwhile func()) error {
		c := signal()
		one.Do(run, engine.SignalRun{Name: "again"})
		meanwhile()
		c.Recall = false
		_, err := one.S.Commit(context.Background(), c)
		return err
	}
	err = load(func() {})
	want("a wide run that is loaded", 1, 1, 0, 0, tasks, 0, err)
	err = load(func() { acquire(two) })
	want("a wide run that is loaded, leased from", 1, 1, 0, 0, 0, tasks, err)

	err = load(func() { two.Do(run, engine.SignalRun{Name: "theirs"}) })
	want("a wide run that is loaded, written", 1, 1, 0, 0, tasks, 0, err)
	two.Do(run, engine.SignalRun{Name: "theirs"})
	last := two.Run(run).LastSeq
	acquire(one)
	for _, l := range took {
		if l.Head.LastSeq != last {
			t.Fatalf("a task was leased from a run as it was at %d, which is at %d", l.Head.LastSeq, last)
		}
	}
	if len(took) != tasks {
		t.Errorf("claims took %d of %d tasks", len(took), tasks)
	}
}

// testRecalledSession checks the same for a session: its own row, and the tasks in it that are counted.
func testRecalledSession(t *testing.T, s Suite) {
	if !s.Shared {
		t.Skip("one process has this database to itself")
	}
	one, two := s.Fixture(t, "a", Options{App: "one"}), s.Fixture(t, "a", Options{App: "two"})
	w := &recall{one: one, two: two, worker: one.Worker("w", Sessions(100, time.Hour))}
	var id string
	var seen engine.Session // state at the last decision
	// A step in a held session that is cached since the previous step, with another ready task.
	step := func() store.Transaction {
		for _, l := range two.LeaseTasks(protocol.KindActivity, w.worker, 200) { // for a step that took two round trips
			two.Finish(l)
		}
		w.n++
		id = fmt.Sprint("s", w.n)
		one.startInSessions(id, id, id, id)
		claimed := one.claimActivity(w.worker)
		one.Finish(claimed)
		l := one.claimActivity(w.worker)
		one.Do(l.Head.ID, engine.SignalRun{Name: "again"})
		second := Step(l.Head.ID, engine.HeartbeatActivity{
			Seq: l.Activity.Seq, Holder: engine.Holder{Owner: "w", Delivery: l.Activity.Delivery},
		}, store.Keys{Activities: []int64{l.Activity.Seq}})
		one.Commit(second)
		c := Finishing(l)
		decide := c.Decide
		c.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
			seen = *rows.Session(engine.SessionKey{Namespace: Namespace, ID: id})
			return decide(rows, now)
		}
		return c
	}
	for _, c := range []struct {
		what      string
		meanwhile func()
		times     int
		ok        func() bool
	}{
		{"a session as it is remembered", func() {}, 1, func() bool { return seen.Owner == "w" && seen.Active == 1 }},
		{"a session that another app released", func() {
			two.Commit(SessionStep(id, engine.ReleaseSession{
				SessionHolder: engine.SessionHolder{Worker: "w", Epoch: seen.Epoch}, Why: "test",
			}))
		}, 2, func() bool { return seen.Owner == "" }},
		{"a session in which another app leased", func() {
			two.LeaseTasks(protocol.KindActivity, w.worker, 200)
		}, 2, func() bool { return seen.Active > 1 }},
		{"a session in which another app made a task ready", func() {
			two.startInSessions(id)
		}, 2, func() bool { return seen.Ready == 3 }},
	} {
		times, trips, err := w.commitWhile(step, c.meanwhile)
		if times != c.times || err != nil || !c.ok() {
			t.Errorf("%s: decided %d times (%v), want %d; it is held by %q with %d attempts and %d ready tasks", c.what, times,
				err, c.times, seen.Owner, seen.Active, seen.Ready)
		}
		if times == 1 && trips != 1 {
			t.Errorf("%s: %d round trips", c.what, trips)
		}
	}
}
