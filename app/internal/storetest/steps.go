package storetest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Fixture is a store with the steps of a test: requests of the control plane, each as one call. All rows are in one
// namespace, and in one queue unless the test changes it.
type Fixture struct {
	T     testing.TB
	S     store.Store
	Queue string
	shift atomic.Int64
}

// ids is the number of generated run IDs.
var ids atomic.Int64

// Namespace and Queue are where a Fixture begins.
const (
	Namespace = "default"
	Queue     = "default"
)

// New opens a fixture over a fresh database.
func (s Suite) New(t testing.TB) *Fixture { return s.Fixture(t, "a", Options{}) }

// Fixture opens a store as part of a fixture, over a database of this test.
func (s Suite) Fixture(t testing.TB, name string, o Options) *Fixture {
	w := &Fixture{T: t, Queue: Queue}
	if o.Shift == nil {
		o.Shift = func() time.Duration { return time.Duration(w.shift.Load()) }
	}
	w.S = s.Open(t, fmt.Sprintf("%.6x-%s", sha256.Sum256([]byte(t.Name())), name), o)
	t.Cleanup(func() { compareCounts(t, w.S) })
	return w
}

// compareCounts checks, at the end of a test, that the exact and the limited count of sessions are equal.
func compareCounts(t testing.TB, s store.Store) {
	err := s.View(context.Background(), func(r store.Reader) error {
		all, err := r.SessionCounts(context.Background(), Namespace)
		if err != nil {
			return err
		}
		few, err := r.SessionCountsUpTo(context.Background(), Namespace, 1<<30)
		if err == nil && !maps.Equal(all, few) {
			t.Errorf("sessions are %v, counted by indexes %v", all, few)
		}
		return err
	})
	if err != nil && !errors.Is(err, store.ErrClosed) {
		t.Errorf("counts of sessions: %v", err)
	}
}

// Pass moves the store's clock forward.
func (w *Fixture) Pass(d time.Duration) { w.shift.Add(int64(d)) }

// Commit commits a change that must succeed.
func (w *Fixture) Commit(c store.Transaction) any {
	w.T.Helper()
	a, err := w.S.Commit(w.T.Context(), c)
	if err != nil {
		w.T.Fatalf("commit: %v", err)
	}
	return a
}

// ID returns a new run ID; IDs are in the order of their generation.
func (w *Fixture) ID() string { return fmt.Sprintf("%026d", ids.Add(1)) }

// Start starts a run of type "flow" under a workflow id and returns its id.
func (w *Fixture) Start(workflow string) string {
	w.T.Helper()
	return w.StartAs(engine.Start{RunID: w.ID(), Number: 1, Request: protocol.StartRequest{
		Namespace: Namespace, WorkflowID: workflow, WorkflowType: "flow", TaskQueue: w.Queue,
	}})
}

// StartAs starts a run as described by in.
func (w *Fixture) StartAs(in engine.Start) string {
	w.T.Helper()
	w.Commit(StartChange(in))
	return in.RunID
}

// ErrExists is the error of StartChange when the workflow ID is in use.
var ErrExists = errors.New("workflow id is taken")

// StartChange returns the change that starts a run under an unused workflow ID.
func StartChange(in engine.Start) store.Transaction {
	k := engine.WorkflowKey{Namespace: in.Request.Namespace, ID: in.Request.WorkflowID}
	return store.Transaction{
		Needs: store.Keys{Workflows: []engine.WorkflowKey{k}, New: true}, Recall: true,
		Decide: func(r store.Rows, now time.Time) (store.Writes, error) {
			if r.Workflow(k) != nil {
				return store.Writes{}, ErrExists
			}
			return store.Writes{
				Runs:      []engine.Decision{engine.DecideStart(in, now)},
				Workflows: []engine.Workflow{{Namespace: k.Namespace, ID: k.ID, RunID: in.RunID, Runs: 1}},
				Answer:    in.RunID,
			}, nil
		},
	}
}

// Step returns a change that applies one input to one run.
func Step(run string, in engine.Input, needs store.Keys) store.Transaction {
	needs.Runs = []string{run}
	return store.Transaction{Needs: needs, Recall: true, Decide: func(r store.Rows, now time.Time) (store.Writes, error) {
		s := r.Run(run)
		if s == nil {
			return store.Writes{}, store.ErrNotFound
		}
		d, err := engine.DecideRun(s, environment(r, s), in, now)
		return store.Writes{Runs: []engine.Decision{d}, Answer: d.Answer}, err
	}}
}

// environment returns the rows that a decision on a run may read.
func environment(r store.Rows, s *engine.Run) engine.Environment {
	chain := engine.WorkflowKey{Namespace: s.Namespace, ID: s.WorkflowID}
	return engine.Environment{
		Session: func(id string) *engine.Session { return r.Session(engine.SessionKey{Namespace: s.Namespace, ID: id}) },
		Chain:   r.ChainSessions(chain),
		Inherited: func(id string) *engine.InheritedChild {
			return r.InheritedChild(engine.InheritedKey{Chain: chain, Child: id})
		},
		Bound: func() []*engine.InheritedChild { return r.BoundChildren(chain) },
	}
}

// Do applies one input to a run, which must accept it.
func (w *Fixture) Do(run string, in engine.Input) engine.Answer {
	w.T.Helper()
	a, _ := w.Commit(Step(run, in, store.Keys{AllTasks: true, Chain: true, Bound: true})).(engine.Answer)
	return a
}

// Worker registers a worker of one process that runs everything and returns it.
func (w *Fixture) Worker(id string, change ...func(*engine.Worker)) *engine.Worker {
	w.T.Helper()
	row := NewWorker(id, change...)
	w.Commit(store.Transaction{
		Needs: store.Keys{Workers: []engine.WorkerKey{row.Key()}},
		Decide: func(store.Rows, time.Time) (store.Writes, error) {
			return store.Writes{Workers: []engine.Worker{*row}}, nil
		},
	})
	return row
}

// NewWorker returns a worker for all types, with the default leases.
func NewWorker(id string, change ...func(*engine.Worker)) *engine.Worker {
	w := &engine.Worker{
		Namespace: Namespace, ID: id, Incarnation: "1", Status: protocol.WorkerActive, Queues: []string{Queue},
		WorkflowTypes: []string{"flow"},
		AnyActivity:   true, WorkflowSlots: 4, ActivitySlots: 4, MaxSessions: 10,
		SessionLease: (30 * time.Second).Microseconds(),
		SessionIdle:  (5 * time.Minute).Microseconds(), AttemptLease: (120 * time.Second).Microseconds(),
	}
	for _, c := range change {
		c(w)
	}
	return w
}

// Sessions sets a worker's cap, and how long its sessions are leased.
func Sessions(most int, lease time.Duration) func(*engine.Worker) {
	return func(w *engine.Worker) { w.MaxSessions, w.SessionLease = most, lease.Microseconds() }
}

// LeaseTasks claims tasks like one poll of a worker.
func (w *Fixture) LeaseTasks(kind protocol.TaskKind, worker *engine.Worker, most int) []store.Leased {
	w.T.Helper()
	l, err := w.S.LeaseTasks(w.T.Context(), store.LeaseRequest{
		Namespace: Namespace, Queue: w.Queue, Kind: kind,
		Pollers: []store.Poller{{Lessee: engine.Lessee{Worker: worker, BuildID: worker.BuildID}, Max: most}},
	})
	if err != nil {
		w.T.Fatalf("claim: %v", err)
	}
	return l
}

// One claims one task, which must exist.
func (w *Fixture) One(kind protocol.TaskKind, worker *engine.Worker) store.Leased {
	w.T.Helper()
	l := w.LeaseTasks(kind, worker, 1)
	if len(l) != 1 {
		w.T.Fatalf("worker %s claimed %d %s tasks, want 1", worker.ID, len(l), kind)
	}
	return l[0]
}

// None claims tasks and fails the test if it receives any.
func (w *Fixture) None(kind protocol.TaskKind, worker *engine.Worker) {
	w.T.Helper()
	if l := w.LeaseTasks(kind, worker, 1); len(l) != 0 {
		w.T.Fatalf("worker %s claimed %s, want nothing", worker.ID, Name(l[0]))
	}
}

// Name returns the ID of a leased task's delivery.
func Name(l store.Leased) string {
	if l.Kind == protocol.KindWorkflow {
		return engine.TaskID(l.Head.ID, l.Head.Task.Number)
	}
	return engine.AttemptID(l.Head.ID, l.Activity.Seq, l.Activity.Delivery)
}

// Finish completes a leased activity with a result.
func (w *Fixture) Finish(l store.Leased) {
	w.T.Helper()
	w.Commit(Finishing(l))
}

// Finishing returns the change that completes a leased activity.
func Finishing(l store.Leased) store.Transaction {
	return Step(l.Head.ID, engine.CompleteActivity{
		Seq: l.Activity.Seq, Holder: engine.Holder{Owner: l.Activity.Owner, Delivery: l.Activity.Delivery},
		Result: "cmVzdWx0", Hash: "h",
	}, store.Keys{Activities: []int64{l.Activity.Seq}})
}

// Answering returns the change that completes a leased workflow task with commands.
func Answering(l store.Leased, commands ...protocol.Command) store.Transaction {
	needs := store.Keys{Chain: true, AllTasks: true, Bound: true, Sessions: sessionsOf(commands)}
	return Step(l.Head.ID, engine.CompleteTask{
		Number: l.Head.Task.Number, Holder: engine.Holder{Owner: l.Head.Task.Owner, Delivery: l.Head.Task.Delivery},
		Commands: commands, Hash: "h",
	}, needs)
}

// sessionsOf returns the sessions that commands name.
func sessionsOf(commands []protocol.Command) (keys []engine.SessionKey) {
	for _, c := range commands {
		for _, id := range []string{c.SessionID, optioned(c)} {
			if id != "" {
				keys = append(keys, engine.SessionKey{Namespace: Namespace, ID: id})
			}
		}
	}
	return keys
}

func optioned(c protocol.Command) string {
	if c.WorkerSession == nil {
		return ""
	}
	return c.WorkerSession.SessionID
}

// Decide completes a leased workflow task with commands.
func (w *Fixture) Decide(l store.Leased, commands ...protocol.Command) engine.Answer {
	w.T.Helper()
	a, _ := w.Commit(Answering(l, commands...)).(engine.Answer)
	return a
}

// Activity returns a command to run an activity, in a session unless that is empty.
func Activity(typ, session string) protocol.Command {
	return protocol.Command{Type: protocol.ScheduleActivity, ActivityType: typ, SessionID: session}
}

// Begun starts a run whose first workflow task was completed with these commands, all in one change.
func (w *Fixture) Begun(workflow string, commands ...protocol.Command) string {
	w.T.Helper()
	in := engine.Start{RunID: w.ID(), Number: 1, Request: protocol.StartRequest{
		Namespace: Namespace, WorkflowID: workflow, WorkflowType: "flow", TaskQueue: w.Queue,
	}}
	c := StartChange(in)
	c.Needs.Sessions = sessionsOf(commands)
	start := c.Decide
	c.Decide = func(r store.Rows, now time.Time) (store.Writes, error) {
		ws, err := start(r, now)
		if err != nil {
			return ws, err
		}
		run := ws.Runs[0].Next.Fork().Leased(engine.Lessee{Worker: NewWorker("starter")}, now)
		d, err := engine.DecideRun(run, environment(r, run), engine.CompleteTask{
			Number: 1, Holder: engine.Holder{Owner: "starter", Delivery: 1}, Commands: commands, Hash: "h",
		}, now)
		ws.Runs = append(ws.Runs, d)
		return ws, err
	}
	w.Commit(c)
	return in.RunID
}

// Run reads a run.
func (w *Fixture) Run(id string) *engine.Run {
	w.T.Helper()
	var run *engine.Run
	w.View(func(r store.Reader) (err error) {
		run, err = r.Run(w.T.Context(), id)
		return err
	})
	return run
}

// History reads a run's events.
func (w *Fixture) History(id string) []history.Event {
	w.T.Helper()
	var list []history.Event
	w.View(func(r store.Reader) (err error) {
		list, err = r.Events(w.T.Context(), id, 0, 0, 100_000, 0)
		return err
	})
	return list
}

// Session reads a session.
func (w *Fixture) Session(id string) (engine.Session, error) {
	var row engine.Session
	err := w.S.View(w.T.Context(), func(r store.Reader) (err error) {
		row, err = r.Session(w.T.Context(), engine.SessionKey{Namespace: Namespace, ID: id})
		return err
	})
	return row, err
}

// View reads from the store; an error fails the test.
func (w *Fixture) View(fn func(store.Reader) error) {
	w.T.Helper()
	if err := w.S.View(w.T.Context(), fn); err != nil {
		w.T.Fatalf("view: %v", err)
	}
}

// Sweep processes everything that is due, as the sweeper does, and returns it.
func (w *Fixture) Sweep() []store.DueKind {
	w.T.Helper()
	var done []store.DueKind
	for {
		now, err := w.S.Now(w.T.Context())
		if err != nil {
			w.T.Fatal(err)
		}
		var due []store.Due
		w.View(func(r store.Reader) (err error) {
			due, err = r.Due(w.T.Context(), now, 100)
			return err
		})
		for _, d := range due {
			if err := w.advance(d); err != nil {
				w.T.Fatalf("sweep %v: %v", d, err)
			}
			done = append(done, d.Kind)
		}
		if len(due) == 0 {
			slices.Sort(done)
			return done
		}
	}
}

func (w *Fixture) advance(d store.Due) error {
	var c store.Transaction
	switch d.Kind {
	case store.DueRun:
		c = Step(d.Run, engine.Due{}, store.Keys{AllTasks: true, Chain: true, Bound: true})
	case store.DueActivity:
		c = Step(d.Run, engine.DueActivity{Seq: d.Seq}, store.Keys{Activities: []int64{d.Seq}})
	case store.DueTimer:
		c = Step(d.Run, engine.FireTimer{Seq: d.Seq}, store.Keys{})
	case store.DueSession:
		c = SessionStep(d.Session.ID, engine.DueSession{})
	}
	_, err := w.S.Commit(context.WithoutCancel(w.T.Context()), c)
	return err
}

// SessionStep returns a change that applies one input to a session.
func SessionStep(id string, in engine.SessionInput) store.Transaction {
	k := engine.SessionKey{Namespace: Namespace, ID: id}
	return store.Transaction{Needs: store.Keys{
		Sessions: []engine.SessionKey{k}, RecentActivity: true,
	}, Decide: func(r store.Rows, now time.Time) (store.Writes, error) {
		c, err := engine.DecideSession(r.Session(k), in, now)
		if err != nil {
			return store.Writes{}, err
		}
		return store.Writes{Sessions: []engine.SessionChange{c}, Answer: c.Session}, nil
	}}
}

// Renew renews sessions of a worker and returns how many renewals succeeded.
func (w *Fixture) Renew(worker string, ids ...string) int {
	n := 0
	for _, id := range ids {
		if _, err := w.S.Commit(w.T.Context(), SessionStep(id, engine.RenewSession{
			SessionHolder: engine.SessionHolder{Worker: worker},
		})); err == nil {
			n++
		}
	}
	return n
}
