package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// DecideQueue is the change that stores a decision about a queue; a queue without a name means the whole namespace.
func DecideQueue(name string, in engine.QueueChange) store.Transaction {
	k := engine.QueueKey{Namespace: Namespace, Name: name}
	return store.Transaction{Needs: store.Keys{
		Queues: []engine.QueueKey{k},
	}, Decide: func(r store.Rows, now time.Time) (store.Writes, error) {
		q, err := engine.DecideQueue(r.Queue(k), k, in, now)
		return store.Writes{Queues: []engine.Queue{q}, Answer: q}, err
	}}
}

func limit(kind protocol.TaskKind, b engine.Budget) engine.LimitQueue {
	return engine.LimitQueue{Limits: map[protocol.TaskKind]engine.Budget{kind: b}}
}

// startWide starts a run with n ready activities.
func (w *Fixture) startWide(workflow string, n int) string {
	commands := make([]protocol.Command, n)
	for i := range commands {
		commands[i] = Activity("x", "")
	}
	return w.Begun(workflow, commands...)
}

func testDrained(t *testing.T, s Suite) {
	line := &Line{}
	w := s.Fixture(t, "a", Options{Dispatch: line})
	build := func(id string) func(*engine.Worker) { return func(w *engine.Worker) { w.BuildID = id } }
	old, next, plain := w.Worker("old", build("v1")), w.Worker("next", build("v2")), w.Worker("plain")
	w.startWide("flow", 4)
	w.Commit(DecideQueue(Queue, engine.DrainBuild{BuildID: "v1"}))
	if q := w.S.Queue(engine.QueueKey{Namespace: Namespace, Name: Queue}); !q.Drained("v1") || q.Drained("v2") ||
		q.Drained("") {
		t.Fatalf("after the drain of v1 the store knows %+v", q)
	}
	if len(line.decided) != 1 {
		t.Fatalf("the dispatcher was told %d decisions, want 1", len(line.decided))
	}
	w.None(protocol.KindActivity, old)
	w.One(protocol.KindActivity, next)
	w.One(protocol.KindActivity, plain)
	// A task that becomes ready is not dispatched to a drained poller that still waits.
	waiting := line.Wait(old)
	w.startWide("flow2", 1)
	select {
	case l := <-waiting.Got:
		t.Fatalf("a drained build was handed %s", Name(l))
	default:
	}
	w.Commit(DecideQueue(Queue, engine.DrainBuild{BuildID: ""}))
	w.None(protocol.KindActivity, plain)
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	reopened := s.Fixture(t, "a", Options{})
	reopened.None(protocol.KindActivity, old)
	reopened.Commit(DecideQueue(Queue, engine.ResumeBuild{BuildID: "v1"}))
	reopened.One(protocol.KindActivity, old)
	reopened.None(protocol.KindActivity, plain)
}

func testPinned(t *testing.T, s Suite) {
	w := s.New(t)
	build := func(id string) func(*engine.Worker) { return func(w *engine.Worker) { w.BuildID = id } }
	w.Commit(DecideQueue(Queue, engine.PromoteBuild{BuildID: "v2"}))
	k := engine.QueueKey{Namespace: Namespace, Name: Queue}
	in := start(w, "flow")
	c := StartChange(in)
	decide := c.Decide
	c.Decide = func(r store.Rows, now time.Time) (store.Writes, error) {
		in.BuildID = r.Queue(k).NewRuns()
		ws, err := decide(r, now)
		ws.Runs[0] = engine.DecideStart(in, now)
		return ws, err
	}
	w.Commit(c)
	w.None(protocol.KindWorkflow, w.Worker("old", build("v1")))
	w.None(protocol.KindWorkflow, w.Worker("plain"))
	w.One(protocol.KindWorkflow, w.Worker("next", build("v2")))
}

func testLeaseBudget(t *testing.T, s Suite) {
	line := &Line{}
	w := s.Fixture(t, "a", Options{Dispatch: line})
	worker := w.Worker("w")
	w.Commit(DecideQueue(Queue, limit(protocol.KindActivity, engine.Budget{Leases: 2})))
	w.startWide("flow", 5)
	line.hints()
	got := w.LeaseTasks(protocol.KindActivity, worker, 10)
	if len(got) != 2 {
		t.Fatalf("a budget of 2 leases gave %d", len(got))
	}
	if n := len(line.throttled); n != 1 || line.throttled[0].Wait != 0 || line.throttled[0].Why == nil {
		t.Fatalf("told of throttling: %+v", line.throttled)
	}
	if b, _, _ := line.hints(); len(b) != 0 {
		t.Fatalf("what a budget withholds was told as a backlog: %v", b)
	}
	w.None(protocol.KindActivity, worker)
	// The end of a lease frees room, and the store reports this; it dispatches no task beyond the limit.
	waiting := line.Wait(worker)
	line.hints()
	w.Finish(got[0])
	if b, _, _ := line.hints(); !hinted(b, "default/default/activity") {
		t.Fatalf("the end of a lease told %v", b)
	}
	select {
	case l := <-waiting.Got:
		if l.Kind == protocol.KindActivity {
			t.Fatal("a counted task was handed over")
		}
	default:
	}
	if n := len(w.LeaseTasks(protocol.KindActivity, worker, 10)); n != 1 {
		t.Fatalf("with one lease ended %d began, want 1", n)
	}
	// Lapsed leases make room as well.
	w.Pass(time.Hour)
	w.Sweep()
	if n := len(w.LeaseTasks(protocol.KindActivity, worker, 10)); n != 2 {
		t.Fatalf("with both leases lapsed %d began, want 2", n)
	}
	// Workflow tasks are counted apart; of the namespace all queues together.
	w.Start("other")
	w.Commit(DecideQueue("", limit(protocol.KindActivity, engine.Budget{Leases: 3})))
	w.Queue = "second"
	w.startWide("flow2", 5)
	if n := len(w.LeaseTasks(protocol.KindActivity, worker, 10)); n != 1 {
		t.Fatalf("with 2 of 3 leases of the namespace taken %d began, want 1", n)
	}
	w.Commit(DecideQueue("", limit(protocol.KindActivity, engine.Budget{})))
	if n := len(w.LeaseTasks(protocol.KindActivity, worker, 10)); n != 4 {
		t.Fatalf("without the budget of the namespace %d began, want the other 4", n)
	}
}

func hinted(backlog []string, what string) bool {
	for _, b := range backlog {
		if b == what {
			return true
		}
	}
	return false
}

func testRateBudget(t *testing.T, s Suite) {
	line := &Line{}
	w := s.Fixture(t, "a", Options{Dispatch: line})
	worker := w.Worker("w")
	now, err := w.S.Now(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.Pass(now.Truncate(time.Minute).Add(time.Minute + time.Second).Sub(now)) // not near the end of a minute
	w.Commit(DecideQueue(Queue, limit(protocol.KindActivity, engine.Budget{PerMinute: 3})))
	w.startWide("flow", 8)
	for _, l := range w.LeaseTasks(protocol.KindActivity, worker, 2) {
		w.Finish(l)
	}
	if n := len(w.LeaseTasks(protocol.KindActivity, worker, 10)); n != 1 {
		t.Fatalf("with 2 of 3 handed out in this minute came %d, want 1", n)
	}
	if n := len(line.throttled); n != 1 || line.throttled[0].Wait <= 0 || line.throttled[0].Wait > time.Minute {
		t.Fatalf("told of throttling: %+v", line.throttled)
	}
	w.None(protocol.KindActivity, worker)
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	reopened := s.Fixture(t, "a", Options{Shift: func() time.Duration { return time.Duration(w.shift.Load()) }})
	reopened.None(protocol.KindActivity, worker) // a restart does not reset the budget
	w.Pass(time.Minute)
	if n := len(reopened.LeaseTasks(protocol.KindActivity, worker, 10)); n != 3 {
		t.Fatalf("in the next minute came %d, want 3", n)
	}
}

// Without a budget no leases are counted, so a claim costs the same as before, even if another queue has a budget.
func testBudgetCost(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w")
	cost := func() int64 {
		before := w.S.Stats().Statements
		w.One(protocol.KindActivity, worker)
		return w.S.Stats().Statements - before
	}
	w.startWide("flow", 4)
	cost()
	plain := cost()
	w.Commit(DecideQueue("another", limit(protocol.KindActivity, engine.Budget{Leases: 1})))
	if got := cost(); got != plain {
		t.Fatalf("a claim beside a queue with a budget took %d statements, %d before", got, plain)
	}
}

// testTwoBudgets lets two apps claim from one budget at once: it is never exceeded, and both apps know its usage.
func testTwoBudgets(t *testing.T, s Suite) {
	if !s.Shared {
		t.Skip("one process has this database to itself")
	}
	one, two := s.Fixture(t, "a", Options{App: "one"}), s.Fixture(t, "a", Options{App: "two"})
	worker := one.Worker("w")
	const most = 7
	one.Commit(DecideQueue(Queue, limit(protocol.KindActivity, engine.Budget{Leases: most})))
	two.until("the other app's decision", func() bool {
		return two.S.Queue(engine.QueueKey{Namespace: Namespace, Name: Queue}).Budget(protocol.KindActivity).Leases == most
	})
	for i := range 4 {
		one.startWide(fmt.Sprint("flow", i), 25)
	}
	if leased := contend(t, worker, 3, one, two); leased != most {
		t.Fatalf("two apps leased %d tasks of a budget of %d", leased, most)
	}
}
