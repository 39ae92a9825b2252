package workflow_test

import (
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// app plays the app for one run: it uses the real engine, without a store. Tests apply inputs step by step.
type app struct {
	t         testing.TB
	def       *workflow.Definition
	options   replay.Options
	run       *engine.Run
	events    []history.Event
	begins    int // number of the events with which a reset began the run
	sessions  map[string]engine.Session
	next      *engine.Start // first event of the next run; set once the run continued as new
	otherRuns map[string]*engine.Run
	inherited map[string]*engine.InheritedChild
	ends      map[string]engine.Message // reports of closed children of earlier runs, by workflow ID
	now       time.Time
	batches   []batch
}

// batch is one completed workflow task: the number of events that it had seen, and its commands.
type batch struct {
	shown    int64
	update   *string // ID of the update for which the task was created; nil: none
	commands []protocol.Command
}

var lessee = engine.Lessee{
	Worker: &engine.Worker{ID: "w", Incarnation: "i", AttemptLease: 3600e6, SessionLease: 3600e6, MaxSessions: 100},
}

func define(t testing.TB, fn any) *workflow.Definition {
	t.Helper()
	d, err := workflow.NewDefinition("flow", fn)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func start(t testing.TB, fn any, args ...any) *app {
	t.Helper()
	p, err := payload.EncodeArgs(args...)
	if err != nil {
		t.Fatal(err)
	}
	return startRun(t, define(t, fn), engine.Start{
		RunID: "RUN", Number: 1, Arguments: p.Blob,
		Request: protocol.StartRequest{Namespace: "default", WorkflowID: "wf", WorkflowType: "flow", TaskQueue: "default"},
	})
}

func startRun(t testing.TB, def *workflow.Definition, in engine.Start) *app {
	a := &app{t: t, def: def, sessions: map[string]engine.Session{}, now: epoch}
	a.applyDecision(engine.DecideStart(in, a.now))
	return a
}

func (a *app) applyDecision(d engine.Decision) {
	if a.run == nil {
		a.run = d.Next
	} else {
		a.run.Merge(d.Next)
	}
	a.events = append(a.events, d.Events...)
	for _, c := range d.Sessions {
		a.sessions[c.Session.ID] = c.Session
	}
	for _, c := range d.Inherited {
		if a.inherited == nil {
			a.inherited = map[string]*engine.InheritedChild{}
		}
		if a.inherited[c.Child.Child.WorkflowID] = &c.Child; c.Deleted {
			delete(a.inherited, c.Child.Child.WorkflowID)
		}
	}
	if d.Continue != nil {
		a.next = d.Continue
	}
}

func (a *app) decide(in engine.Input) {
	a.t.Helper()
	a.now = a.now.Add(time.Millisecond)
	d, err := engine.DecideRun(a.run, engine.Environment{
		Session: func(id string) *engine.Session {
			if s, ok := a.sessions[id]; ok {
				return &s
			}
			return nil
		}, Workflow: func(id string) (*engine.Run, bool) { return a.otherRuns[id], a.otherRuns[id] != nil },
		Inherited: func(id string) *engine.InheritedChild { return a.inherited[id] },
	}, in, a.now)
	if err != nil {
		a.t.Fatalf("%T: %v", in, err)
	}
	a.applyDecision(d)
}

// lease leases the workflow task; false if no task is ready.
func (a *app) lease() (*protocol.WorkflowTask, bool) {
	t := a.run.Task
	if t == nil || t.State != engine.Ready {
		return nil, false
	}
	a.run.Merge(a.run.Leased(lessee, a.now))
	task := a.task(len(a.events))
	if t.Cause.Kind == engine.UpdateTask {
		task.UpdateID = &t.Cause.ID
	}
	return task, true
}

// task returns a workflow task that contains the first n events.
func (a *app) task(n int) *protocol.WorkflowTask {
	return &protocol.WorkflowTask{
		RunID: a.run.ID, WorkflowID: "wf", Namespace: "default", WorkflowType: "flow", TaskQueue: "default",
		Events: a.events[:n:n], LastSequence: int64(n),
		Arguments: payload.Payload{Blob: a.events[0].Data.(*history.WorkflowStarted).Arguments},
	}
}

// answer completes the leased task with the commands. Without commands it reports that the run waits.
func (a *app) answer(shown int64, commands []protocol.Command) {
	a.t.Helper()
	h := engine.Holder{Owner: "w", Incarnation: "i", Delivery: a.run.Task.Delivery}
	b := batch{shown: shown, commands: commands}
	if c := &a.run.Task.Cause; c.Kind == engine.UpdateTask {
		b.update = &c.ID
	}
	a.batches = append(a.batches, b)
	if len(commands) == 0 {
		a.decide(engine.FailTask{Number: a.run.Task.Number, Holder: h, Failure: *replay.Waiting()})
		return
	}
	var wire []protocol.Command // encode and decode the commands as JSON, as the network does
	raw, err := json.Marshal(commands)
	if err == nil {
		err = json.Unmarshal(raw, &wire)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	a.decide(engine.CompleteTask{Number: a.run.Task.Number, Holder: h, Commands: wire, Ends: a.ends})
}

// drain completes workflow tasks until none is ready, and returns their number. It applies them to the given machine,
// or each to a new machine if kept is nil.
func (a *app) drain(kept replay.Machine) int {
	a.t.Helper()
	n := 0
	for ; ; n++ {
		task, ok := a.lease()
		if !ok {
			return n
		}
		m := kept
		if m == nil {
			m = replay.New(a.def, a.options)
		}
		commands, err := m.Apply(task, task.Events)
		if kept == nil {
			m.Close()
		}
		if err != nil {
			a.t.Fatalf("task at event %d: %v", len(task.Events), err)
		}
		a.answer(task.LastSequence, commands)
	}
}

// leaseActivity leases the activity of a command.
func (a *app) leaseActivity(seq int64) engine.Holder {
	a.t.Helper()
	act, ok := a.run.Activities.Get(seq)
	if !ok {
		a.t.Fatalf("no open activity %d", seq)
	}
	var sess *engine.Session
	if s, ok := a.sessions[act.SessionID]; ok && act.SessionID != "" {
		sess = &s
	}
	leased, _, _ := engine.LeaseActivity(act, sess, lessee, func(string) int64 { return 0 }, a.now)
	if sess != nil {
		a.sessions[act.SessionID] = *sess
	}
	f := a.run.Fork()
	f.Activities.Put(seq, leased)
	a.run.Merge(f)
	return engine.Holder{Owner: "w", Incarnation: "i", Delivery: leased.Delivery}
}

// complete completes an activity with a result.
func (a *app) complete(seq int64, result any) {
	a.t.Helper()
	p, err := payload.Encode(result)
	if err != nil {
		a.t.Fatal(err)
	}
	a.decide(engine.CompleteActivity{Seq: seq, Holder: a.leaseActivity(seq), Result: p.Blob})
}

func (a *app) failActivity(seq int64, f *protocol.Failure) {
	a.t.Helper()
	a.decide(engine.FailActivity{Seq: seq, Holder: a.leaseActivity(seq), Failure: *f})
}

func (a *app) fire(seq int64) {
	a.t.Helper()
	timer, ok := a.run.Timers.Get(seq)
	if !ok {
		a.t.Fatalf("no open timer %d", seq)
	}
	if timer.FireAt.After(a.now) {
		a.now = timer.FireAt.Time
		if t := a.run.Task; t != nil && t.State == engine.LeasedState {
			// renew the lease: time passes, and the worker is alive
			t.Until = history.At(a.now.Add(engine.WorkflowLease))
		}
	}
	a.decide(engine.FireTimer{Seq: seq})
}

func (a *app) signal(name string, args ...any) {
	a.t.Helper()
	p, err := payload.EncodeArgs(args...)
	if err != nil {
		a.t.Fatal(err)
	}
	a.decide(engine.SignalRun{Name: name, Value: p.Blob})
}

// update sends an update and returns its ID.
func (a *app) update(name string, args ...any) string {
	a.t.Helper()
	p, err := payload.EncodeArgs(args...)
	if err != nil {
		a.t.Fatal(err)
	}
	a.decide(engine.AcceptUpdate{Name: name, Value: p.Blob})
	return a.events[len(a.events)-1].Data.(*history.UpdateAccepted).UpdateID
}

// answered returns the event that completed an update.
func (a *app) answered(id string) *history.UpdateCompleted {
	a.t.Helper()
	for _, e := range a.events {
		if d, ok := e.Data.(*history.UpdateCompleted); ok && d.UpdateID == id {
			return d
		}
	}
	a.t.Fatalf("update %s is not completed", id)
	return nil
}

// child reports the end of a child: with a result if it completed, otherwise with a failure.
func (a *app) child(seq int64, status protocol.RunStatus, result any, f *history.Failure) {
	a.t.Helper()
	c, ok := a.run.Children.Get(seq)
	if !ok {
		a.t.Fatalf("no open child %d", seq)
	}
	m := engine.Message{Kind: engine.ChildEnded, ToSeq: seq, Run: c.RunID, Number: c.Number, Status: status, Failure: f}
	if status == protocol.RunCompleted {
		p, err := payload.Encode(result)
		if err != nil {
			a.t.Fatal(err)
		}
		m.Value = p.Blob
	}
	a.decide(engine.ChildReport{Message: m})
}

// ask runs a query on the state of the run after its first n events.
func (a *app) ask(n int, name string, args ...any) (any, error) {
	a.t.Helper()
	p, err := payload.EncodeArgs(args...)
	if err != nil {
		a.t.Fatal(err)
	}
	m := replay.New(a.def, replay.Options{ForQueries: true})
	defer m.Close()
	if _, err := m.Apply(a.task(n), a.events[:n]); err != nil {
		a.t.Fatal(err)
	}
	answer, err := m.Query(name, p, nil)
	if err != nil {
		return nil, err
	}
	var v any
	err = payload.Decode(answer, &v)
	return v, err
}

// output returns the decoded result of the run.
func (a *app) output() any {
	a.t.Helper()
	last, ok := a.events[len(a.events)-1].Data.(*history.WorkflowCompleted)
	if !ok {
		raw, _ := json.Marshal(a.events[len(a.events)-1])
		a.t.Fatalf("the run ended with %s", raw)
	}
	var v any
	if err := payload.Decode(payload.Payload{Blob: last.Output}, &v); err != nil {
		a.t.Fatal(err)
	}
	return v
}

func (a *app) failure() *history.WorkflowFailed {
	a.t.Helper()
	last, ok := a.events[len(a.events)-1].Data.(*history.WorkflowFailed)
	if !ok {
		a.t.Fatalf("the run ended with %s", a.events[len(a.events)-1].Type())
	}
	return last
}

// cancelled checks that the run was closed as cancelled.
func (a *app) cancelled() {
	a.t.Helper()
	if last := a.events[len(a.events)-1]; last.Type() != "WorkflowCancelled" {
		a.t.Errorf("the run ended with %s", last.Type())
	}
}

// commandsAt replays the first n events in one call of Apply and returns the commands.
func (a *app) commandsAt(n int) []protocol.Command {
	a.t.Helper()
	return a.commandsFor(n, nil)
}

func (a *app) commandsFor(n int, update *string) []protocol.Command {
	a.t.Helper()
	m := replay.New(a.def, a.options)
	defer m.Close()
	task := a.task(n)
	task.UpdateID = update
	commands, err := m.Apply(task, a.events[:n])
	if err != nil {
		a.t.Fatalf("replay of %d events: %v", n, err)
	}
	return commands
}

// replays replays every prefix of the history twice, in one call of Apply and event by event, and checks that both
// yield the same commands, and the commands of the task that ended with that prefix. Prefixes include all events with
// which a reset began the run, because its first task does.
func (a *app) replays() {
	a.t.Helper()
	kept := replay.New(a.def, a.options)
	defer kept.Close()
	applied := 0
	for n := max(1, a.begins); n <= len(a.events); n++ {
		at := a.commandsAt(n)
		step, err := kept.Apply(a.task(n), a.events[applied:n])
		applied = n
		if err != nil {
			a.t.Fatalf("event %d: %v", n, err)
		}
		if d := cmp.Diff(at, step, ungrouped); d != "" {
			a.t.Fatalf("after event %d: replayed in one go (-) and step by step (+) differ:\n%s", n, d)
		}
		for _, b := range a.batches {
			if b.shown == int64(n) {
				if d := cmp.Diff(b.commands, a.commandsFor(n, b.update)); d != "" {
					a.t.Fatalf("after event %d: the run (-) and its replay (+) differ:\n%s", n, d)
				}
			}
		}
	}
}

// ungrouped is a comparison that ignores the parallel group of a command, because the group depends on the batches of
// commands.
var ungrouped = cmp.Transformer("ungrouped", func(c protocol.Command) string {
	c.Parallel = history.Parallel{}
	raw, err := json.Marshal(c)
	if err != nil {
		panic(err)
	}
	return string(raw)
})

// golden compares events with a file of testdata and returns the events of the file. With UPDATE=1 it writes the file.
func golden(t *testing.T, name string, events []history.Event) []history.Event {
	t.Helper()
	path := "testdata/" + name
	if os.Getenv("UPDATE") != "" {
		text := "[\n"
		for i, e := range events {
			raw, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			text += string(raw)
			if i < len(events)-1 {
				text += ","
			}
			text += "\n"
		}
		if err := os.WriteFile(path, []byte(text+"]\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var kept []history.Event
	if err := json.Unmarshal(raw, &kept); err != nil {
		t.Fatal(err)
	}
	return kept
}

func types(commands []protocol.Command) []string {
	var all []string
	for _, c := range commands {
		all = append(all, string(c.Type))
	}
	return all
}

func want[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}
