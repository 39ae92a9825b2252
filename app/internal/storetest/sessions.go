package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// testSessions runs the cases of two workers on one store, each case in its own database.
func testSessions(t *testing.T, s Suite) {
	for _, c := range []struct {
		name string
		test func(*Fixture)
	}{
		{"the first fetch claims (1, 5)", firstFetch},
		{"a held session is only for its holder (2, 3, 4)", heldForHolder},
		{"an expired lease may be claimed (6, 23)", lapsedLease},
		{"an idle session is not renewed (7, 9)", idleNotRenewed},
		{"renewal is by holder, and never revives (8, 10, 11, 33)", renewal},
		{"activities reset the idle timeout (12, 13, 14)", workTouches},
		{"a session is idle according to its tasks", testIdleByExactActivity},
		{"the cap stops new sessions only (15, 16, 26)", capStopsNew},
		{"a lease reports the workers that got no new session because of their cap", testFullWorkers},
		{"session ids are stored as scheduled (17, 24)", storedAsScheduled},
		{"clean-up removes expired sessions without tasks (18 to 22)", cleanUp},
		{"sessions of one worker are independent (25)", independent},
		{"the activity cap keeps the order (27, 28)", activityCap},
		{"a fence never repeats (29, 34)", fenceRises},
		{"the epoch of a removed row is kept in the batch that removes it", watermarkInSameBatch},
		{"returned and expired attempts keep the session (30, 31, 32)", attemptsApart},
		{"a released session is acquired by another worker at once", released},
		{"a restarted holder has its session at once", restarted},
		{"sessions of a workflow end with it", chainEnds},
		{"the requirements of a session route its tasks", requires},
		{"the end of a session makes its waiting tasks available to all workers", freed},
		{"a timeline is deleted some time after its session", testTimelineRetention},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(s.New(t)) })
	}
}

func firstFetch(w *Fixture) {
	a := w.Worker("a")
	w.startInSessions("s")
	l := w.claimActivity(a)
	if l.Activity.SessionID != "s" || l.Activity.Attempt != 1 || !l.IsNew || l.Session == nil ||
		l.Session.Epoch != l.Activity.Epoch {
		w.T.Fatalf("leased %+v in %+v", l.Activity, l.Session)
	}
	row := w.sessionRow("s")
	if row.Owner != "a" || row.Status != protocol.SessionActive || row.Active != 1 || row.Ready != 0 ||
		row.LeaseUntil.Sub(l.Activity.LeasedAt.Time) != 30*time.Second || !row.LastActivity.Equal(l.Activity.LeasedAt.Time) {
		w.T.Fatalf("row is %+v", row)
	}
	w.Finish(l)
	w.startInSessions("s")
	if second := w.claimActivity(a); second.IsNew || second.Session.Epoch != l.Session.Epoch {
		w.T.Fatalf("the second fetch claimed again: %+v", second.Session)
	}
	w.View(func(r store.Reader) error {
		list, err := r.Sessions(w.T.Context(), store.SessionQuery{Namespace: Namespace})
		if len(list) != 1 {
			w.T.Errorf("%d rows, want 1", len(list))
		}
		line, terr := r.Timeline(w.T.Context(), engine.SessionKey{Namespace: Namespace, ID: "s"}, 0, 10)
		if terr != nil || len(line) != 1 || line[0].What != "claimed" || line[0].Worker != "a" {
			w.T.Errorf("timeline %+v, %v", line, terr)
		}
		return err
	})
}

func heldForHolder(w *Fixture) {
	a, b := w.Worker("a"), w.Worker("b")
	plain := w.Worker("plain", Sessions(0, 0))
	w.startInSessions("s")
	w.Finish(w.claimActivity(a))
	w.startInSessions("s", "")
	w.claimOutsideSession(b, "s")
	w.startInSessions("")
	if l := w.claimActivity(plain); l.Activity.SessionID != "" {
		w.T.Fatalf("a worker without sessions got %+v", l.Activity)
	}
	w.claimNoActivity(b)
	if l := w.claimActivity(a); l.Activity.SessionID != "s" || l.Activity.Attempt != 1 || l.IsNew {
		w.T.Fatalf("holder got %+v", l.Activity)
	}
}

// claimOutsideSession claims one activity, which must be outside of the session.
func (w *Fixture) claimOutsideSession(worker *engine.Worker, session string) {
	w.T.Helper()
	if l := w.claimActivity(worker); l.Activity.SessionID == session {
		w.T.Fatalf("%s got a task of %s", worker.ID, session)
	}
}

func lapsedLease(w *Fixture) {
	a, b := w.Worker("a", Sessions(10, 50*tick)), w.Worker("b")
	w.startInSessions("s")
	first := w.claimActivity(a)
	w.Finish(first)
	w.startInSessions("s")
	w.Sweep()
	w.claimNoActivity(b)
	w.Pass(100 * tick)
	w.Sweep()
	l := w.claimActivity(b)
	if row := w.sessionRow("s"); row.Owner != "b" || row.Epoch <= first.Session.Epoch || !l.IsNew || row.Active != 1 {
		w.T.Fatalf("row is %+v", row)
	}
	if a, b := w.Renew("a", "s"), w.Renew("b", "s"); a != 0 || b != 1 {
		w.T.Fatalf("renewed %d for a and %d for b, want 0 and 1", a, b)
	}
}

func idleNotRenewed(w *Fixture) {
	a, b := w.Worker("a", Sessions(10, 200*tick), idleTimeout(100*tick)), w.Worker("b")
	w.startInSessions("s")
	w.Finish(w.claimActivity(a))
	w.Pass(150 * tick)
	w.startInSessions("fresh")
	w.Finish(w.claimActivity(a))
	if got := w.Renew("a", "s", "fresh"); got != 1 {
		w.T.Fatalf("renewed %d, want only the fresh one", got)
	}
	w.Pass(60 * tick)
	w.Sweep()
	w.startInSessions("s")
	if l := w.claimActivity(b); !l.IsNew {
		w.T.Fatal("b did not claim")
	}
	if got := w.Renew("a", "s"); got != 0 {
		w.T.Fatal("a renewed what b holds")
	}
}

func renewal(w *Fixture) {
	a, b := w.Worker("a", Sessions(10, 1000*tick), idleTimeout(10_000*tick)),
		w.Worker("b", Sessions(10, 10_000*tick), idleTimeout(10_000*tick))
	w.startInSessions("s1", "s2")
	w.Finish(w.claimActivity(a))
	w.Finish(w.claimActivity(b))
	before := w.sessionRow("s2")
	w.Pass(900 * tick)
	if got := w.Renew("a", "s1", "s2"); got != 1 {
		w.T.Fatalf("renewed %d, want 1", got)
	}
	if got := w.sessionRow("s2"); !got.LeaseUntil.Equal(before.LeaseUntil.Time) {
		w.T.Fatal("a's renewal moved b's lease")
	}
	w.startInSessions("s1")
	w.Pass(500 * tick) // past the first expiry, before the second
	w.Sweep()
	w.claimNoActivity(b)
	w.Pass(600 * tick)
	if got := w.Renew("a", "s1"); got != 0 {
		w.T.Fatal("an expired lease was renewed before the sweep")
	}
	w.Sweep()
	if got := w.Renew("a", "s1"); got != 0 || w.sessionRow("s1").Status != protocol.SessionExpired {
		w.T.Fatalf("an expired lease was renewed: %+v", w.sessionRow("s1"))
	}
}

func workTouches(w *Fixture) {
	a, b := w.Worker("a", Sessions(10, 600*tick), idleTimeout(200*tick), attemptLease(10_000*tick)), w.Worker("b")
	w.startInSessions("s")
	l := w.claimActivity(a)
	w.Pass(250 * tick)
	if got := w.Renew("a", "s"); got != 0 {
		w.T.Fatal("an idle session was renewed")
	}
	hold := engine.Holder{Owner: "a", Delivery: l.Activity.Delivery}
	w.Commit(Step(
		l.Head.ID, engine.HeartbeatActivity{Seq: l.Activity.Seq, Holder: hold},
		store.Keys{Activities: []int64{l.Activity.Seq}},
	))
	if got := w.Renew("a", "s"); got != 1 {
		w.T.Fatal("a heartbeat did not move the idle clock")
	}
	w.Pass(250 * tick)
	w.Finish(l)
	if got := w.Renew("a", "s"); got != 1 {
		w.T.Fatal("a completion did not move the idle clock")
	}
	w.Pass(250 * tick)
	w.startInSessions("s")
	second := w.claimActivity(a)
	if got, row := w.Renew("a", "s"), w.sessionRow("s"); got != 1 ||
		row.LeaseUntil.Sub(second.Activity.LeasedAt.Time) < 600*tick {
		w.T.Fatalf("a fetch did not restart the lease: %+v", row)
	}
	// A late completion under an expired holding does not change the new owner's holding.
	w.Pass(650 * tick)
	w.Sweep()
	w.startInSessions("s")
	w.claimActivity(b)
	before := w.sessionRow("s")
	w.Pass(time.Second)
	w.Finish(second)
	if got := w.sessionRow("s"); !got.LastActivity.Equal(before.LastActivity.Time) || got.Owner != "b" || got.Active != 1 {
		w.T.Fatalf("a's late completion moved b's session: %+v, was %+v", got, before)
	}
}

func capStopsNew(w *Fixture) {
	a, b := w.Worker("a", Sessions(2, 30*time.Second)), w.Worker("b", Sessions(0, 0))
	w.startInSessions("s1", "s2")
	w.Finish(w.claimActivity(a))
	w.Finish(w.claimActivity(a))
	w.startInSessions("new", "", "s1")
	if l := w.LeaseTasks(protocol.KindActivity, a, 5); len(l) != 2 || l[0].Activity.SessionID == "new" ||
		l[1].Activity.SessionID == "new" {
		w.T.Fatalf("at its cap a got %v", types(l))
	}
	w.claimNoActivity(a)
	w.startInSessions("s3", "", "s4")
	for range 3 {
		for _, l := range w.LeaseTasks(protocol.KindActivity, b, 1) {
			if l.Activity.SessionID != "" {
				w.T.Fatalf("a worker with cap 0 got %+v", l.Activity)
			}
		}
	}
	w.claimNoActivity(b)
	if got := w.sessionRow("s3"); got.Owner != "" || got.EverAcquired {
		w.T.Fatalf("row is %+v, want nobody's", got)
	}
	w.Pass(31 * time.Second)
	w.Sweep()
	if got := len(w.LeaseTasks(protocol.KindActivity, a, 5)); got != 2 {
		w.T.Fatalf("after its leases ended a claimed %d, want 2", got)
	}
}

func storedAsScheduled(w *Fixture) {
	run := w.startInSessions("tool box/7", "")
	open := w.Run(run)
	if x, _ := open.Activities.Get(1); x.SessionID != "tool box/7" {
		w.T.Fatalf("stored session %q", x.SessionID)
	}
	if y, _ := open.Activities.Get(2); y.SessionID != "" {
		w.T.Fatalf("stored session %q, want none", y.SessionID)
	}
	if l := w.claimActivity(w.Worker("a")); l.Activity.SessionID != "tool box/7" {
		w.T.Fatalf("leased in %q", l.Activity.SessionID)
	}
	w.claimOutsideSession(w.Worker("b", Sessions(0, 0)), "tool box/7")
}

func cleanUp(w *Fixture) {
	short, long := w.Worker("short", Sessions(10, 50*tick)), w.Worker("long", Sessions(10, 300*tick))
	w.startInSessions("e1", "e2", "e3", "full")
	for range 4 {
		w.Finish(w.claimActivity(short))
	}
	w.startInSessions("live")
	w.Finish(w.claimActivity(long))
	if got := w.cleanUp(); got != 0 {
		w.T.Fatalf("removed %d while all leases live", got)
	}
	w.startInSessions("full")
	w.Pass(100 * tick)
	w.Sweep()
	if first, second := w.cleanUp(), w.cleanUp(); first != 3 || second != 0 {
		w.T.Fatalf("removed %d, then %d, want 3 and 0", first, second)
	}
	if _, err := w.Session("e1"); !errors.Is(err, store.ErrNotFound) {
		w.T.Fatalf("e1: %v, want not found", err)
	}
	w.sessionRow("live")
	if l := w.claimActivity(long); l.Activity.SessionID != "full" {
		w.T.Fatalf("leased in %q", l.Activity.SessionID)
	}
}

func independent(w *Fixture) {
	a, b := w.Worker("a"), w.Worker("b")
	w.startInSessions("s1", "s2", "s3")
	var held []store.Leased
	for range 3 {
		held = append(held, w.claimActivity(a))
	}
	w.Finish(held[0])
	w.Commit(SessionStep("s2", engine.ReleaseSession{SessionHolder: engine.SessionHolder{Worker: "a"}, Why: "test"}))
	w.startInSessions("s1", "s3")
	w.claimNoActivity(b)
	for _, id := range []string{"s1", "s3"} {
		if row := w.sessionRow(id); row.Owner != "a" {
			w.T.Fatalf("%s is %+v", id, row)
		}
	}
	if got := len(w.LeaseTasks(protocol.KindActivity, a, 5)); got != 2 {
		w.T.Fatalf("a got %d, want both", got)
	}
}

func activityCap(w *Fixture) {
	a := w.Worker("a", Sessions(10, 30*time.Second))
	one := protocol.Command{Type: protocol.ScheduleActivity, WorkerSession: &protocol.SessionOptions{SessionID: "one"}}
	var commands []protocol.Command
	for i := range 3 {
		c := one
		c.ActivityType = fmt.Sprint("t", i+1)
		commands = append(commands, c)
	}
	w.Begun("capped", commands...)
	for i := range 3 {
		list := w.LeaseTasks(protocol.KindActivity, a, 5)
		if len(list) != 1 || list[0].Activity.Type != fmt.Sprint("t", i+1) {
			w.T.Fatalf("turn %d brought %v", i+1, types(list))
		}
		w.claimNoActivity(a)
		w.Finish(list[0])
	}
	w.startInSessions("many", "many", "many")
	list := w.LeaseTasks(protocol.KindActivity, a, 5)
	if len(list) != 3 || list[2].Session.Active != 3 || list[0].Session.Epoch != list[2].Session.Epoch || !list[0].IsNew ||
		list[1].IsNew {
		w.T.Fatalf("without a cap %d came", len(list))
	}
}

func watermarkInSameBatch(w *Fixture) {
	a := w.Worker("a")
	w.startInSessions("s")
	w.Finish(w.claimActivity(a))
	k := engine.SessionKey{Namespace: Namespace, ID: "s"}
	var removed, watermark int64
	errs := w.together(
		store.Transaction{
			Needs: store.Keys{Sessions: []engine.SessionKey{k}},
			Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
				s := *rows.Session(k)
				removed = s.Epoch
				return store.Writes{Sessions: []engine.SessionChange{{Session: s, Delete: true}}}, nil
			},
		},
		store.Transaction{Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
			watermark = rows.EpochWatermark(Namespace)
			return store.Writes{}, errNo
		}},
	)
	if errs[0] != nil || removed == 0 || watermark != removed {
		w.T.Fatalf("the watermark is %d behind the removal of epoch %d (%v)", watermark, removed, errs[0])
	}
}

func fenceRises(w *Fixture) {
	a, b := w.Worker("a", Sessions(10, 50*tick)), w.Worker("b")
	w.startInSessions("s")
	first := w.claimActivity(a)
	w.Finish(first)
	w.Pass(100 * tick)
	w.Sweep()
	if got := w.cleanUp(); got != 1 {
		w.T.Fatalf("removed %d, want 1", got)
	}
	w.Pass(-time.Minute) // a clock that steps back must not repeat a fence
	w.startInSessions("s")
	l := w.claimActivity(b)
	if l.Session.Epoch <= first.Session.Epoch || w.sessionRow("s").Owner != "b" {
		w.T.Fatalf("epoch %d after %d", l.Session.Epoch, first.Session.Epoch)
	}
	old := engine.SessionHolder{Worker: "a", Epoch: first.Session.Epoch}
	for _, in := range []engine.SessionInput{
		engine.RenewSession{SessionHolder: old},
		engine.ReleaseSession{SessionHolder: old},
		engine.CloseSession{SessionHolder: old},
		engine.RenewSession{SessionHolder: engine.SessionHolder{Worker: "b", Epoch: first.Session.Epoch}},
	} {
		if _, err := w.S.Commit(w.T.Context(), SessionStep("s", in)); protocol.ReasonOf(err) != protocol.ReasonSessionOwner {
			w.T.Fatalf("%T under the old epoch: %v", in, err)
		}
	}
}

func attemptsApart(w *Fixture) {
	a, b := w.Worker("a", Sessions(10, 10_000*tick), attemptLease(500*tick)), w.Worker("b", Sessions(10, 10_000*tick))
	w.startInSessions("s")
	l := w.claimActivity(a)
	back := engine.ReleaseActivity{Seq: l.Activity.Seq, Delivery: 1, Why: "worker_error"}
	w.Commit(Step(l.Head.ID, back, store.Keys{Activities: []int64{l.Activity.Seq}}))
	w.claimNoActivity(b)
	if l = w.claimActivity(a); l.Activity.Attempt != 2 || l.IsNew {
		w.T.Fatalf("after the hand-back a got %+v", l.Activity)
	}
	w.Pass(600 * tick) // the attempt's lease ends, the session's does not
	w.Sweep()
	w.claimNoActivity(b)
	if l = w.claimActivity(a); l.Activity.Attempt != 3 || l.Activity.Delivery != 3 {
		w.T.Fatalf("after the lapse a got %+v", l.Activity)
	}
	short := w.Worker("short", Sessions(10, 500*tick), attemptLease(10_000*tick))
	w.startInSessions("t")
	mine := w.claimActivity(short)
	w.Pass(600 * tick) // in the opposite order
	w.Sweep()
	w.startInSessions("t")
	theirs := w.claimActivity(b)
	before := w.sessionRow("t")
	w.Finish(mine)
	if got := w.sessionRow("t"); theirs.Activity.SessionID != "t" || got.Owner != "b" || got.Active != 1 ||
		!got.LastActivity.Equal(before.LastActivity.Time) {
		w.T.Fatalf("row is %+v", got)
	}
}

// testFullWorkers claims as workers below, at and above their limit, and checks the tasks that were left for them.
func testFullWorkers(w *Fixture) {
	a, b := w.Worker("a", Sessions(2, time.Minute)), w.Worker("b")
	counts := map[string][]string{}
	claim := func(most int, workers ...*engine.Worker) int {
		w.T.Helper()
		clear(counts)
		r := store.LeaseRequest{Namespace: Namespace, Queue: w.Queue, Kind: protocol.KindActivity, Full: func(
			k engine.WorkerKey, routes []string,
		) {
			counts[k.ID] = routes
		}}
		for _, one := range workers {
			r.Pollers = append(r.Pollers, store.Poller{Lessee: engine.Lessee{Worker: one}, Max: most})
		}
		got, err := w.S.LeaseTasks(w.T.Context(), r)
		if err != nil {
			w.T.Fatal(err)
		}
		return len(got)
	}
	w.startInSessions("one")
	if n := claim(1, a); n != 1 || len(counts) != 0 {
		w.T.Errorf("below its cap the worker got %d sessions, and %v were reported", n, counts)
	}
	w.startInSessions("two", "three", "four")
	if n := claim(1, a); n != 1 || len(counts["a"]) == 0 {
		w.T.Errorf("with its last session the worker got %d, and %v were reported", n, counts)
	}
	if n := claim(1, a); n != 0 || len(counts["a"]) == 0 {
		w.T.Errorf("at its cap the worker got %d sessions, and %v were reported", n, counts)
	}
	w.View(func(r store.Reader) error {
		waiting, err := r.ReadyOn(w.T.Context(), Namespace, counts["a"], 10)
		if len(waiting) != 2 || waiting[0].SessionID != "three" || waiting[1].SessionID != "four" ||
			waiting[0].ReadyAt.IsZero() || waiting[0].Queue != w.Queue {
			w.T.Errorf("it was not shown %+v", waiting)
		}
		none, nerr := r.ReadyOn(w.T.Context(), Namespace, nil, 10)
		if nerr != nil || len(none) != 0 {
			w.T.Errorf("on no route: %+v, %v", none, nerr)
		}
		return err
	})
	if n := claim(1, a, b); n != 1 || len(counts["a"]) == 0 || counts["b"] != nil {
		w.T.Errorf("next to a worker with room it got %d sessions, and %v were reported", n, counts)
	}
}
