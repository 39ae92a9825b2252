package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Line is a dispatcher for tests: one FIFO queue of pollers, each of which waits for one task.
type Line struct {
	mu        sync.Mutex
	pollers   []*LinePoller // waiting; guarded by mu
	backlog   []string      // guarded by mu
	due       []time.Time   // guarded by mu
	changed   []store.Changed
	throttled []engine.Throttle
	decided   []*engine.Queue
}

// LinePoller waits for one task in a Line.
type LinePoller struct {
	line   *Line
	lessee engine.Lessee
	Got    chan store.Leased
	Undone int
	// Doubted counts deliveries for which the store does not know whether the poller received them.
	Doubted int
}

// Wait puts a poller at the end of the line.
func (l *Line) Wait(w *engine.Worker) *LinePoller {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &LinePoller{line: l, lessee: engine.Lessee{Worker: w}, Got: make(chan store.Leased, 1)}
	l.pollers = append(l.pollers, p)
	return p
}

// Reserve removes the first poller that may receive the task from the line.
func (l *Line) Reserve(o store.Offer) store.Reservation {
	l.mu.Lock()
	defer l.mu.Unlock()
	want := engine.TaskRequirements{
		Kind: o.Kind, Type: o.Type, BuildID: o.BuildID, Requirements: o.Requirements, Session: o.Session, Queue: o.Settings,
	}
	for i, p := range l.pollers {
		lessee := p.lessee
		lessee.Counted = lessee.Counted || o.AcquiresSession
		if engine.Admit(want, lessee, o.Now).OK {
			l.pollers = append(l.pollers[:i:i], l.pollers[i+1:]...)
			return p
		}
	}
	return nil
}

// Backlog records the queue.
func (l *Line) Backlog(ns, queue string, kind protocol.TaskKind, _ ...store.RoutingKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backlog = append(l.backlog, fmt.Sprintf("%s/%s/%s", ns, queue, kind))
}

// Due records the time.
func (l *Line) Due(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = append(l.due, at)
}

// Changed records the changes.
func (l *Line) Changed(c store.Changed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed = append(l.changed, c)
}

// Isolate does nothing: this dispatcher isolates no processes.
func (l *Line) Isolate(store.Process, bool) {}

// LeaseExpired removes the worker's pollers from the line.
func (l *Line) LeaseExpired(k engine.WorkerKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pollers = slices.DeleteFunc(l.pollers, func(p *LinePoller) bool { return p.lessee.Worker.Key() == k })
}

// Deregistered removes the process's pollers from the line.
func (l *Line) Deregistered(p store.Process) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pollers = slices.DeleteFunc(l.pollers, func(o *LinePoller) bool {
		return o.lessee.Worker.Key() == p.Worker && o.lessee.Worker.Incarnation == p.Incarnation
	})
}

func (l *Line) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pollers)
}

// Throttled records the queue.
func (l *Line) Throttled(_, _ string, _ protocol.TaskKind, t engine.Throttle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.throttled = append(l.throttled, t)
}

// Queue records the queue.
func (l *Line) Queue(q *engine.Queue) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decided = append(l.decided, q)
}

// missed is the hint that any notice may have been lost, for example because a connection broke: a lost notice is not
// repeated.
const missed = "any queue, also elsewhere"

// Missed records that any notice may have been lost.
func (l *Line) Missed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.backlog, l.changed = append(l.backlog, missed), append(l.changed, store.Changed{})
}

// hints returns the recorded hints and clears them.
func (l *Line) hints() (backlog []string, due []time.Time, changed []store.Changed) {
	l.mu.Lock()
	defer l.mu.Unlock()
	backlog, due, changed = l.backlog, l.due, l.changed
	l.backlog, l.due, l.changed = nil, nil, nil
	return backlog, due, changed
}

// Lessee returns the poller's worker.
func (p *LinePoller) Lessee() engine.Lessee { return p.lessee }

// Overtakes returns false: this dispatcher knows of no older tasks.
func (p *LinePoller) Overtakes() bool { return false }

// Deliver passes the task to the poller.
func (p *LinePoller) Deliver(l store.Leased) { p.Got <- l }

// Undo puts the poller back at the front of the line.
func (p *LinePoller) Undo() {
	p.line.mu.Lock()
	defer p.line.mu.Unlock()
	p.Undone++
	p.line.pollers = append([]*LinePoller{p}, p.line.pollers...)
}

// Doubt counts the delivery and does not return the poller to the line, because it may have received the task.
func (p *LinePoller) Doubt(error) { p.Doubted++ }

// receivedTask returns the task that a poller received; it fails the test if there is none.
func (w *Fixture) receivedTask(p *LinePoller) store.Leased {
	w.T.Helper()
	select {
	case l := <-p.Got:
		return l
	case <-time.After(2 * time.Minute):
		w.T.Fatal("the poller got nothing")
		return store.Leased{}
	}
}

func testHandOver(t *testing.T, s Suite) {
	line := &Line{}
	w := s.Fixture(t, "a", Options{Dispatch: line})
	a, b := w.Worker("a"), w.Worker("b")
	first := line.Wait(a)
	in := start(w, "flow")
	in.Arguments = "aW4="
	run := w.StartAs(in)
	task := w.receivedTask(first)
	if task.Kind != protocol.KindWorkflow || task.Head.ID != run || task.Head.Task.Owner != "a" ||
		task.Head.Task.Delivery != 1 {
		t.Fatalf("handed %+v", task.Head.Task)
	}
	if task.Cached && task.Arguments != "aW4=" {
		t.Fatalf("arguments are %q", task.Arguments)
	}
	// An activity takes two commits: one schedules and dispatches it, one completes it and dispatches the workflow
	// task.
	commits := w.S.Stats().Commits
	second := line.Wait(b)
	x := Activity("x", "")
	x.Arguments.Blob = "eA=="
	w.Decide(task, x)
	l := w.receivedTask(second)
	if l.Kind != protocol.KindActivity || l.Activity.Owner != "b" || !l.Cached || l.Arguments != "eA==" || l.IsNew {
		t.Fatalf("handed %+v", l)
	}
	third := line.Wait(a)
	w.Finish(l)
	next := w.receivedTask(third)
	if next.Head.Task.Number != 2 || next.Head.LastSeq != 3 || (next.Events != nil && len(next.Events) != 3) {
		t.Fatalf("handed %+v with %d events", next.Head.Task, len(next.Events))
	}
	if got := w.S.Stats().Commits - commits; got != 2 {
		t.Fatalf("an activity took %d commits, want 2", got)
	}
	w.None(protocol.KindWorkflow, b)
	// A session's first task is claimed, the following ones are dispatched to the owner.
	w.Decide(next, Activity("y", "s"))
	y := w.One(protocol.KindActivity, a)
	other, holder := line.Wait(b), line.Wait(a)
	w.Finish(y)
	turn := w.receivedTask(other) // any worker may run a workflow task
	w.Decide(turn, Activity("z", "s"))
	z := w.receivedTask(holder)
	if z.Activity.Type != "z" || z.Session == nil || z.Session.Epoch != y.Session.Epoch || z.IsNew {
		t.Fatalf("handed %+v in %+v", z.Activity, z.Session)
	}
}

func testUndone(t *testing.T, s Suite) {
	line := &Line{}
	w := s.Fixture(t, "a", Options{Dispatch: line})
	worker := w.Worker("w")
	p := line.Wait(worker)
	in := start(w, "bad")
	c := StartChange(in)
	decide := c.Decide
	c.Decide = func(r store.Rows, now time.Time) (store.Writes, error) {
		ws, err := decide(r, now)
		ws.Runs[0].Next.Memo = json.RawMessage("{")
		return ws, err
	}
	if _, err := w.S.Commit(context.Background(), c); err == nil {
		t.Fatal("a row that cannot be written was stored")
	}
	if p.Undone == 0 {
		t.Fatal("the reservation was not undone")
	}
	err := w.S.View(t.Context(), func(r store.Reader) error { _, err := r.Run(t.Context(), in.RunID); return err })
	if !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("the run of the failed change: %v", err)
	}
	good := w.Start("good")
	if l := w.receivedTask(p); l.Head.ID != good {
		t.Fatalf("handed a task of %s, want %s", l.Head.ID, good)
	}
}

func testBacklog(t *testing.T, s Suite) {
	line := &Line{}
	w := s.Fixture(t, "a", Options{Dispatch: line})
	worker := w.Worker("w")
	line.hints()
	w.Start("flow")
	w.until("the hint", func() bool { b, _, _ := line.hints(); return fmt.Sprint(b) == "[default/default/workflow]" })
	w.Decide(w.One(protocol.KindWorkflow, worker), Activity("x", "s"), Activity("y", "s"))
	w.until("the hint", func() bool {
		b, _, _ := line.hints()
		return len(b) > 0 && b[len(b)-1] == "default/default/activity"
	})
	l := w.One(protocol.KindActivity, worker)
	w.Pass(time.Minute)
	line.hints()
	w.Sweep() // the session's lease ended: any worker may run its tasks
	w.until("the hint", func() bool { b, _, _ := line.hints(); return len(b) > 0 && b[0] == "default/default/activity" })
	_ = l
}

// testTasksLeftForFullWorker claims for two workers, one of which has no room for a session: the store reports the
// tasks that it leaves for that worker, although the other one has room.
func testTasksLeftForFullWorker(t *testing.T, s Suite) {
	line := &Line{}
	w := s.Fixture(t, "a", Options{Dispatch: line})
	holder, plain := w.Worker("holder"), w.Worker("plain", Sessions(0, 0))
	w.Begun("one", Activity("x", "t"))
	w.One(protocol.KindActivity, holder)
	w.Begun("two", Activity("y1", "t"), Activity("y2", "t"))
	w.None(protocol.KindActivity, plain)
	line.hints()
	got, err := w.S.LeaseTasks(t.Context(),
		store.LeaseRequest{Namespace: Namespace, Queue: w.Queue, Kind: protocol.KindActivity, Pollers: []store.Poller{
			{Lessee: engine.Lessee{Worker: plain}, Max: 5}, {Lessee: engine.Lessee{Worker: holder}, Max: 1},
		}})
	if err != nil || len(got) != 1 || got[0].Poller != 1 {
		t.Fatalf("claimed %+v, %v", got, err)
	}
	w.until("the hint", func() bool {
		b, _, _ := line.hints()
		return len(b) == 1 && b[0] == Namespace+"/"+w.Queue+"/activity"
	})
}

// testNoTaskToPausedPoll checks that a task whose lease expired is not delivered to the open polls of the paused
// worker, at this app or at another one, but to another worker.
func testNoTaskToPausedPoll(t *testing.T, s Suite) {
	line, far := &Line{}, &Line{}
	w := s.Fixture(t, "a", Options{Dispatch: line})
	still, other := w.Worker("still"), w.Worker("other")
	w.Begun("flow", Activity("plain", ""), Activity("kept", "s"))
	w.LeaseTasks(protocol.KindActivity, still, 2)
	line.Wait(still)
	line.Wait(still)
	b := line.Wait(other)
	if s.Shared {
		s.Fixture(t, "a", Options{App: "far", Dispatch: far})
		far.Wait(still)
	}
	w.Pass(10 * time.Minute)
	w.Sweep()
	if got := w.receivedTask(b); got.Activity.Delivery != 2 || got.Activity.Owner != "other" {
		t.Errorf("the other worker was handed %+v", got.Activity)
	}
	if n := line.waiting(); n != 0 {
		t.Errorf("%d polls of the worker that stands still are open", n)
	}
	if s.Shared {
		w.until("the other app's word", func() bool { return far.waiting() == 0 })
	}
}

// testNoTaskToDeregisteredPoll checks that no task is delivered to the polls of a worker that deregisters in the batch
// in which the task becomes ready, at this and at another app, nor by a claim for polls that are no longer open.
func testNoTaskToDeregisteredPoll(t *testing.T, s Suite) {
	line, far := &Line{}, &Line{}
	w := s.Fixture(t, "a", Options{Dispatch: line})
	leaver, marked, other := w.Worker("leaver"), w.Worker("marked"), w.Worker("other")
	for _, leaves := range []*engine.Worker{leaver, marked} {
		line.Wait(leaves)
		if s.Shared {
			s.Fixture(t, "a", Options{App: "far", Dispatch: far})
			far.Wait(leaves)
		}
		start := StartChange(engine.Start{RunID: w.ID(), Number: 1, Request: protocol.StartRequest{
			Namespace: Namespace, WorkflowID: leaves.ID, WorkflowType: "flow", TaskQueue: w.Queue,
		}})
		decide := start.Decide
		start.Needs.Workers = []engine.WorkerKey{leaves.Key()}
		start.Decide = func(r store.Rows, now time.Time) (store.Writes, error) {
			writes, err := decide(r, now)
			if leaves == leaver {
				writes.DropWorkers = start.Needs.Workers
			} else {
				row := *r.Worker(leaves.Key())
				row.DeregisteredAt = history.At(now)
				writes.Workers = []engine.Worker{row}
			}
			return writes, err
		}
		w.Commit(start)
		if n := line.waiting(); n != 0 {
			t.Errorf("%d polls of %s are open", n, leaves.ID)
		}
		var gone atomic.Bool
		gone.Store(true)
		got, err := w.S.LeaseTasks(t.Context(),
			store.LeaseRequest{Namespace: Namespace, Queue: w.Queue, Kind: protocol.KindWorkflow, Pollers: []store.Poller{
				{Lessee: engine.Lessee{Worker: leaves}, Max: 1, Deregistered: &gone},
				{Lessee: engine.Lessee{Worker: other}, Max: 1, Deregistered: &atomic.Bool{}},
			}})
		if err != nil || len(got) != 1 || got[0].Head.Task.Owner != "other" || got[0].Head.Task.Delivery != 1 {
			t.Errorf("what became ready when %s left: %+v, %v", leaves.ID, got, err)
		}
		if s.Shared {
			w.until("the other app's word", func() bool { return far.waiting() == 0 })
		}
	}
}

func testHints(t *testing.T, s Suite) {
	line := &Line{}
	w := s.Fixture(t, "a", Options{Dispatch: line})
	worker := w.Worker("w")
	run := w.Begun("flow", Activity("x", "s"), protocol.Command{Type: protocol.StartTimer, Delay: new(int64(5))})
	l := w.One(protocol.KindActivity, worker)
	w.Commit(store.Transaction{Decide: func(store.Rows, time.Time) (store.Writes, error) {
		return store.Writes{Audit: []store.Audit{{}}}, nil
	}})
	var due bool
	line.mu.Lock()
	now, err := w.S.Now(t.Context())
	for _, at := range line.due {
		d := at.Sub(now)
		due = due || d > 0 && d <= 5*time.Second
	}
	line.mu.Unlock()
	if err != nil || !due {
		t.Fatalf("no hint of the timer among %v (%v)", line.due, err)
	}
	line.hints()
	var changed []store.Changed
	for _, beat := range []engine.Input{
		engine.HeartbeatActivity{
			Seq: l.Activity.Seq, Holder: engine.Holder{Owner: l.Activity.Owner, Delivery: l.Activity.Delivery},
		},
		engine.SignalRun{Name: "s"},
	} {
		w.Commit(Step(run, beat, store.Keys{Activities: []int64{l.Activity.Seq}}))
		w.until("the hint", func() bool { _, _, c := line.hints(); changed = c; return len(changed) > 0 })
		_, renews := beat.(engine.HeartbeatActivity)
		if c := changed[0].Runs; len(c) != 1 || c[0].OnlyRenewed != renews {
			t.Errorf("%T: hints %+v", beat, changed)
		}
	}
	changed = nil
	w.Do(run, engine.EndRun{Terminate: true, Reason: "enough"})
	w.until("the hint", func() bool { _, _, c := line.hints(); changed = append(changed, c...); return len(changed) > 0 })
	if len(changed) != 1 || len(changed[0].Runs) != 1 {
		t.Fatalf("hints %+v", changed)
	}
	c := changed[0].Runs[0]
	want := store.CancelledAttempt{Worker: "w", TaskID: engine.StepID(run, l.Activity.Seq), AttemptID: Name(l)}
	if c.RunID != run || !c.Closed || c.WorkflowID != "flow" || len(c.Cancelled) != 1 || c.Cancelled[0] != want {
		t.Fatalf("hint %+v, want %+v cancelled", c, want)
	}
	if len(changed[0].Sessions) != 1 || changed[0].Sessions[0].ID != "s" {
		t.Fatalf("sessions %v", changed[0].Sessions)
	}
}

// Forget returns the queues whose backlog was reported since the last call.
func (l *Line) Forget() []string {
	backlog, _, _ := l.hints()
	return backlog
}
