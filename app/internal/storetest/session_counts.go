package storetest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Counts that a session's row does not contain are read from its tasks: on every store, and in every app.

// testSessionRows counts the rows that a step in a held session writes: as many as a step without a session.
func testSessionRows(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w")
	step := func(session string) int64 {
		run := w.startInSessions(session)
		before := w.S.Stats().Rows
		l := w.claimActivity(worker)
		w.Do(run, engine.HeartbeatActivity{Seq: l.Activity.Seq, Holder: holderOf(l), Beat: true})
		w.Finish(l)
		return w.S.Stats().Rows - before
	}
	step("s")
	plain := step("")
	if held := step("s"); held != plain {
		t.Errorf("a step in a held session writes %d rows, without one %d", held, plain)
	}
	w.Pass(11 * time.Second) // less than two thirds of a lease of 30 s are left
	lease := w.sessionRow("s").LeaseUntil
	if held := step("s"); held != plain+1 {
		t.Errorf("a step that renews the lease writes %d rows, without a session %d", held, plain)
	}
	row := w.sessionRow("s")
	if row.LeaseUntil.Sub(lease.Time) < 11*time.Second || !row.LastActivity.Equal(row.RenewedAt.Time) {
		t.Errorf("not all times moved: lease from %s, row %+v", lease, row)
	}
}

// testActivityOfTheBatch reads the exact last activity of a session in the batch in which an attempt ends.
func testActivityOfTheBatch(t *testing.T, s Suite) {
	w := s.New(t)
	w.startInSessions("s")
	l := w.claimActivity(w.Worker("a"))
	w.Pass(12 * time.Second)
	key := engine.SessionKey{Namespace: Namespace, ID: "s"}
	var ended, last history.Time
	errs := w.together(Finishing(l), store.Transaction{
		Needs: store.Keys{Sessions: []engine.SessionKey{key}, RecentActivity: true, ExactActivity: true},
		Decide: func(r store.Rows, now time.Time) (store.Writes, error) {
			ended, last = history.At(now), r.Session(key).RecentActivity
			return store.Writes{}, nil
		},
	})
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if last.IsZero() || !last.Equal(ended.Time) {
		t.Errorf("last activity %s, want %s", last, ended)
	}
}

func holderOf(l store.Leased) engine.Holder {
	return engine.Holder{Owner: l.Activity.Owner, Delivery: l.Activity.Delivery}
}

// activityWithCap returns an activity in a session with a limit, in the form of the options.
func activityWithCap(session string, most int) protocol.Command {
	c := Activity("x", "")
	c.WorkerSession = &protocol.SessionOptions{SessionID: session, MaxActivities: protocol.Count(most)}
	return c
}

// testActivityCap lets two apps dispatch activities of one session to one worker at once. At no time do more activities
// run than the session's limit, although neither app writes the session's row, and finally all activities run.
func testActivityCap(t *testing.T, s Suite) {
	one := s.Fixture(t, "a", Options{App: "one"})
	apps := []*Fixture{one}
	if s.Shared {
		apps = append(apps, s.Fixture(t, "a", Options{App: "two"}))
	}
	const most, tasks = 2, 40
	worker := one.Worker("w")
	for range tasks {
		one.Begun(one.ID(), activityWithCap("s", most))
	}
	var running, done, over atomic.Int64
	var all sync.WaitGroup
	late := time.Now().Add(2 * time.Minute)
	for i := range 6 {
		app := apps[i%len(apps)]
		all.Go(func() {
			for done.Load() < tasks && time.Now().Before(late) {
				list, err := app.S.LeaseTasks(context.Background(), store.LeaseRequest{
					Namespace: Namespace, Queue: Queue, Kind: protocol.KindActivity,
					Pollers: []store.Poller{{Lessee: engine.Lessee{Worker: worker}, Max: 3}},
				})
				if err != nil {
					t.Error(err)
					return
				}
				if running.Add(int64(len(list))) > most {
					over.Add(1)
				}
				for _, l := range list {
					running.Add(-1) // decrement before the activity ends, so that the count is never too high
					if _, err := app.S.Commit(context.Background(), Finishing(l)); err != nil {
						t.Error(err)
					}
					done.Add(1)
				}
			}
		})
	}
	all.Wait()
	if over.Load() > 0 || done.Load() != tasks {
		t.Errorf("%d of %d activities ran, %d times more than %d at once", done.Load(), tasks, over.Load(), most)
	}
}

// testColdCap makes an app that has not cached a session decide about it by its tasks alone.
func testColdCap(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w")
	w.Begun("one", activityWithCap("s", 1))
	first := w.claimActivity(worker)
	w.Begun("two", activityWithCap("s", 1))
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	cold := s.Fixture(t, "a", Options{})
	if row := cold.sessionRow("s"); row.Active != 1 || row.Ready != 1 {
		t.Errorf("%d run and %d wait, want one each", row.Active, row.Ready)
	}
	cold.claimNoActivity(worker)
	cold.Finish(first)
	cold.claimActivity(worker)
	if row := cold.sessionRow("s"); row.Active != 1 || row.Ready != 0 {
		t.Errorf("%d run and %d wait, want one and none", row.Active, row.Ready)
	}
}

// testIdleByExactActivity checks that a session counts as idle only if it is idle, even if its row is older than the
// owner's last activity.
func testIdleByExactActivity(w *Fixture) {
	a := w.Worker("a", Sessions(10, 400*tick), idleTimeout(100*tick))
	w.startInSessions("s")
	l := w.claimActivity(a)
	before := w.sessionRow("s")
	w.Pass(8 * tick)
	w.Finish(l)
	if row := w.sessionRow("s"); !row.LastActivity.Equal(before.LastActivity.Time) {
		w.T.Fatalf("the row was written: %+v", row)
	}
	w.Pass(96 * tick) // 104 since the row's last activity, 96 since the last
	if n := w.Renew("a", "s"); n != 1 {
		w.T.Error("a session was refused as idle that was not")
	}
	w.Pass(5 * tick)
	if n := w.Renew("a", "s"); n != 0 {
		w.T.Error("an idle session was renewed")
	}
}

// testFirstTaskAcquiresSession dispatches the first task of a session to a poller in the commit that creates the task,
// if the poller's worker may hold another session.
func testFirstTaskAcquiresSession(t *testing.T, s Suite) {
	line := &Line{}
	w := s.Fixture(t, "a", Options{Dispatch: line})
	worker := w.Worker("w", Sessions(2, time.Hour))
	w.Start("before")
	leased := w.One(protocol.KindWorkflow, worker)
	before := w.S.Stats()
	polls := []*LinePoller{line.Wait(worker), line.Wait(worker), line.Wait(worker)}
	w.Decide(leased, Activity("x", "one"), Activity("x", "two"), Activity("x", "three"))
	got := map[string]bool{}
	for _, p := range polls[:2] {
		l := w.receivedTask(p)
		if !l.IsNew || !l.SessionAcquired || l.Session.Owner != "w" {
			t.Errorf("handed %+v in %+v", l.Activity, l.Session)
		}
		got[l.Activity.SessionID] = true
	}
	if len(got) != 2 || line.waiting() != 1 || polls[2].Undone != 1 {
		t.Errorf(
			"handed %v, %d polls wait, the third was undone %d times: the worker may hold two sessions", got, line.waiting(),
			polls[2].Undone,
		)
	}
	if n := w.S.Stats().Commits - before.Commits; n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
	w.claimNoActivity(worker)
}
