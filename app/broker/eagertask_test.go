package broker_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

var work = []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity}

// fuses registers a process of worker w that sends eager workflow tasks, and lets the app find out that its queue is
// empty.
func (a *app) fuses(incarnation string, change ...func(*protocol.RegisterRequest)) {
	a.t.Helper()
	in := protocol.RegisterRequest{
		WorkerID: "w", Incarnation: incarnation, TaskQueue: "default", WorkflowTypes: []string{"wf"}, AnyActivity: true,
		Capabilities: []string{broker.CapSessions},
	}
	for _, c := range change {
		c(&in)
	}
	must[protocol.RegisterResponse](a.t)(a.Register(a.t.Context(), in))
	if got := a.pollBoth("w", work); len(got) > 0 {
		a.t.Fatalf("before anything was started: %+v", got)
	}
}

// along returns the poll that w sends together with outcomes.
func along(incarnation string) *protocol.PollRequest {
	return &protocol.PollRequest{WorkerID: "w", Incarnation: incarnation, Kinds: work, Max: 2, EagerTasks: true}
}

// first starts a run and completes its first task as worker w, which caches the run. The task schedules an activity,
// which first leases and returns.
func (a *app) first(id, incarnation string) (*protocol.ActivityTask, history.Time) {
	a.t.Helper()
	a.start(id)
	wf := a.poll("w", protocol.KindWorkflow, 5).Workflow
	out := must[protocol.CompleteBatchResponse](a.t)(a.Complete(a.t.Context(), protocol.CompleteRequest{
		Next: along(incarnation), Items: []protocol.CompleteItem{{
			Kind: protocol.KindWorkflow, TaskID: wf.TaskID, Owner: "w", Incarnation: incarnation, Attempt: wf.Attempt, Kept: 1,
			Commands: []protocol.Command{greet()},
		}},
	}))
	if out.Next == nil || len(out.Next.Tasks) != 1 || out.Next.Tasks[0].Activity == nil {
		a.t.Fatalf("after the first decision: %+v %+v", out.Items, out.Next)
	}
	return out.Next.Tasks[0].Activity, out.Next.StoreTime
}

// withEagerTask returns the outcome of an activity together with an eager workflow task.
func withEagerTask(t *protocol.ActivityTask, incarnation string, eager protocol.EagerTask) protocol.CompleteItem {
	p, _ := payload.Encode("done")
	return protocol.CompleteItem{
		Kind: protocol.KindActivity, TaskID: t.TaskID, Owner: "w", Incarnation: incarnation, AttemptID: t.AttemptID,
		Result: p,
		Eager:  &eager,
	}
}

func (a *app) send(next *protocol.PollRequest, item protocol.CompleteItem) protocol.CompleteResponse {
	a.t.Helper()
	return must[protocol.CompleteBatchResponse](a.t)(a.Complete(
		a.t.Context(), protocol.CompleteRequest{Items: []protocol.CompleteItem{item}, Next: next},
	)).Items[0]
}

// seqs returns the numbers of events, with their types.
func seqs(events []history.Event) (list []string) {
	for _, e := range events {
		list = append(list, e.Type())
	}
	return list
}

// An activity result with an eager workflow task is one transaction; its response contains the new events and the next
// activity. A repeated request gets the same response at any app, with the activity only while the same process still
// holds its lease.
func TestRepeatedEagerTaskGetsItsFirstResponse(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		one := apptest.Start(t, apptest.Options{Database: database})
		a := &app{Broker: one.Broker(), store: one.Store(), t: t}
		a.fuses("w1")
		// Another run of the same worker has reached the same step, and its steps have the same numbers.
		other, then := a.first("other", "w1")
		a.send(along("w1"), withEagerTask(other, "w1", protocol.EagerTask{
			SeenThrough: 2, At: then, Commands: []protocol.Command{greet()}, Slot: true,
		}))
		act, at := a.first("one", "w1")
		if got := seqs(act.Unseen); !slices.Equal(got, []string{"ActivityScheduled"}) || act.Unseen[0].Seq != 2 {
			t.Fatalf("the activity shows %v", got)
		}
		item := withEagerTask(
			act, "w1", protocol.EagerTask{SeenThrough: 2, At: at, Commands: []protocol.Command{greet()}, Slot: true},
		)
		before := a.store.Stats().Commits
		first := a.send(along("w1"), item)
		if first.Err != nil || !first.Recorded || first.Eager == nil || first.Eager.Next == nil {
			t.Fatalf("the first time: %+v", first)
		}
		if n := a.store.Stats().Commits - before; n != 1 {
			t.Errorf("result, eager task and next activity took %d commits", n)
		}
		next := first.Eager.Next
		if got := seqs(first.Eager.Events); !slices.Equal(got, []string{"ActivityScheduled"}) ||
			first.Eager.Events[0].Seq != 4 || next.AttemptID != act.RunID+"-2-1" || next.Arguments.Blob == "" {
			t.Fatalf("the first response: %v, %+v", got, next)
		}
		same := func(where string, a *app, poll *protocol.PollRequest, lives bool) {
			t.Helper()
			repeated := a.send(poll, item)
			switch {
			case repeated.Err != nil || repeated.Recorded || repeated.Reason == nil || *repeated.Reason != "already_completed":
				t.Errorf("%s: %+v", where, repeated)
			case repeated.Eager == nil || !slices.Equal(seqs(repeated.Eager.Events), seqs(first.Eager.Events)):
				t.Errorf("%s the eager task differs: %+v", where, repeated.Eager)
			case lives && (repeated.Eager.Next == nil || repeated.Eager.Next.AttemptID != next.AttemptID ||
				repeated.Eager.Next.Arguments != next.Arguments):
				t.Errorf("%s the next activity is %+v", where, repeated.Eager.Next)
			case !lives && repeated.Eager.Next != nil:
				t.Errorf("%s a completed activity is dispatched: %+v", where, repeated.Eager.Next)
			}
			other := item
			other.Eager = &protocol.EagerTask{SeenThrough: 2, At: at, Commands: []protocol.Command{done()}}
			if c := a.send(poll, other); c.Err != nil || c.Eager != nil {
				t.Errorf("%s a different eager task: %+v", where, c)
			}
			other = item
			other.Eager = nil
			if c := a.send(poll, other); c.Err != nil || c.Eager != nil {
				t.Errorf("%s no eager task: %+v", where, c)
			}
		}
		same("at the same app", a, along("w1"), true)
		if strings.HasPrefix(database, "sqlite:") {
			one.Stop() // only one app can open an SQLite file
		}
		two := on(t, database)
		// Send this request without a poll. A poll of the same process would lease the next activity again, because an
		// app that has just started requeues tasks that the ended app had leased and may not have delivered.
		same("at the other app", two, nil, true)
		out := two.send(along("w1"), withEagerTask(next, "w1", protocol.EagerTask{
			SeenThrough: 4, At: first.Eager.StoreTime, Commands: []protocol.Command{done()},
		}))
		if out.Eager == nil || out.RunStatus != "completed" ||
			!slices.Equal(seqs(out.Eager.Events), []string{"WorkflowCompleted"}) {
			t.Fatalf("the last eager task: %+v", out)
		}
		same("when the next activity has completed,", two, along("w1"), false)
		page := must[protocol.HistoryPage](t)(two.History(
			t.Context(), protocol.HistoryQuery{Target: protocol.Target{WorkflowID: "one"}},
		))
		if got := seqs(page.Events); !slices.Equal(got, []string{
			"WorkflowStarted", "ActivityScheduled", "ActivityCompleted", "ActivityScheduled", "ActivityCompleted",
			"WorkflowCompleted",
		}) {
			t.Errorf("history: %v", got)
		}
	})
}

// If an eager workflow task or its sender is invalid, the result is still recorded, and the app creates an ordinary
// workflow task. The validity also depends on events that were recorded meanwhile, at any app.
func TestRejectedEagerTaskKeepsItsResult(t *testing.T) {
	type call struct {
		next *protocol.PollRequest
		item *protocol.CompleteItem
	}
	type wrong struct {
		before func(*app)
		known  func(*app) bool // whether this app knows the result that another app recorded
		change func(*call)
	}
	decided := func(of func(*engine.Queue) bool, queue string) func(*app) bool {
		return func(a *app) bool {
			return of(a.store.Queue(engine.QueueKey{Namespace: store.DefaultNamespace, Name: queue}))
		}
	}
	bounded := func(q *engine.Queue) bool { return q.Budget(protocol.KindWorkflow).Bounded() }
	cases := map[string]wrong{
		"nobody polls along":            {change: func(c *call) { c.next = nil }},
		"another worker polls":          {change: func(c *call) { c.next.WorkerID, c.next.Incarnation = "v", "" }},
		"the process is not named":      {change: func(c *call) { c.item.Incarnation = "" }},
		"it has not seen everything":    {change: func(c *call) { c.item.Eager.SeenThrough = 1 }},
		"it has seen what is not there": {change: func(c *call) { c.item.Eager.SeenThrough = 3 }},
		"its time is to come":           {change: func(c *call) { c.item.Eager.At.Time = c.item.Eager.At.AddDate(1, 0, 0) }},
		"its time is too long ago":      {change: func(c *call) { c.item.Eager.At.Time = c.item.Eager.At.AddDate(-1, 0, 0) }},
		"it is unreadable": {change: func(c *call) {
			_ = c.item.Eager.UnmarshalJSON([]byte(`{"seen_through":2,"commands":"none"}`))
		}},
		"a command is invalid": {change: func(c *call) { c.item.Eager.Commands[0].ActivityType = "" }},
		"a payload is none":    {change: func(c *call) { c.item.Eager.Commands[0].Arguments.Blob = "?" }},
		"a payload is too large": {change: func(c *call) {
			c.item.Eager.Commands[0].Arguments.Blob = strings.Repeat("A", payload.MaxBytes+4)
		}},
		"there are too many commands": {change: func(c *call) {
			c.item.Eager.Commands = slices.Repeat(c.item.Eager.Commands, 1001)
		}},
		"a command is not offered": {change: func(c *call) { c.item.Eager.Commands[0].Type = "launch_rocket" }},
		"it continues as new":      {change: func(c *call) { c.item.Eager.Commands[0].Type = protocol.ContinueAsNew }},
		"the releases differ":      {change: func(c *call) { c.next.Gated, c.next.Release = true, "older" }},
		"the worker drains": {before: func(a *app) {
			must[protocol.WorkerHeartbeatResponse](a.t)(a.WorkerHeartbeat(
				a.t.Context(), protocol.WorkerHeartbeat{WorkerID: "w", Incarnation: "w1", Draining: true},
			))
		}, known: func(a *app) bool {
			none := int64(0)
			return must[protocol.PollResponse](a.t)(a.Poll(a.t.Context(), protocol.PollRequest{
				WorkerID: "w", Incarnation: "w1", Timeout: &none, Kinds: []protocol.TaskKind{protocol.KindQuery},
			})).Status == protocol.PollDraining
		}},
		"the build is drained": {before: func(a *app) {
			must[protocol.BuildState](a.t)(a.DecideBuild(a.t.Context(), protocol.BuildRequest{Queue: "default", Verb: "drain"}))
		}, known: decided(func(q *engine.Queue) bool { return q.Drained("") }, "default")},
		"the app drains": {before: func(a *app) { a.Drain() }},
		"a budget counts workflow tasks": {before: func(a *app) {
			must[protocol.LimitState](a.t)(a.Limit(a.t.Context(), protocol.LimitRequest{
				Queue: "default", Workflow: &protocol.Budget{MaxLeases: new(5)},
			}))
		}, known: decided(bounded, "default")},
		"a budget of the namespace does": {before: func(a *app) {
			must[protocol.LimitState](a.t)(a.Limit(a.t.Context(), protocol.LimitRequest{
				Workflow: &protocol.Budget{MaxLeases: new(5)},
			}))
		}, known: decided(bounded, "")},
		"a signal came": {before: func(a *app) {
			must[protocol.CommandReceipt](a.t)(a.Signal(a.t.Context(), protocol.SignalRequest{
				Target: protocol.Target{WorkflowID: "one"}, SignalName: "go",
			}))
		}, known: func(*app) bool { return true }}, // it reads the run's row
	}
	judge := func(t *testing.T, c wrong, a, there *app) {
		a.register("v")
		a.fuses("w1")
		act, at := a.first("one", "w1")
		item := withEagerTask(
			act, "w1", protocol.EagerTask{SeenThrough: 2, At: at, Commands: []protocol.Command{greet()}, Slot: true},
		)
		if c.before != nil {
			c.before(there)
		}
		for late := time.Now().Add(20 * time.Second); c.known != nil && !c.known(a); time.Sleep(time.Millisecond) {
			if time.Now().After(late) {
				t.Fatal("the result reported at the other app is not known at this one")
			}
		}
		in := &call{along("w1"), &item}
		if c.change != nil {
			c.change(in)
		}
		out := a.send(in.next, *in.item)
		if out.Err != nil || !out.Recorded || out.Outcome != "completed" || out.Eager != nil {
			t.Fatalf("the result: %+v", out)
		}
		page := must[protocol.HistoryPage](t)(a.History(
			t.Context(), protocol.HistoryQuery{Target: protocol.Target{WorkflowID: "one"}},
		))
		last := page.Events[len(page.Events)-1]
		d, ok := last.Data.(*history.ActivityCompleted)
		if !ok || d.EagerHash != "" || last.At.Before(at.Time) {
			t.Fatalf("the last event: %+v", last)
		}
		v := must[protocol.RunView](t)(a.Describe(t.Context(), protocol.Target{WorkflowID: "one"}))
		if v.Pending == nil || v.Pending.Task == nil {
			t.Errorf("no workflow task was made: %+v", v.Pending)
		}
		if repeated := a.send(in.next, *in.item); repeated.Err != nil || repeated.Eager != nil {
			t.Errorf("the repeated request: %+v", repeated)
		}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			judge(t, c, a, a)
		})
		if c.known != nil {
			t.Run(name+", reported at another app", func(t *testing.T) {
				database := apptest.Postgres(t)
				judge(t, c, on(t, database), on(t, database))
			})
		}
	}
}

// An eager workflow task without commands means that the code continues to wait: the result counts as seen, and no task
// is created.
func TestEagerTaskWithoutCommands(t *testing.T) {
	a := newApp(t)
	a.fuses("w1")
	act, at := a.first("one", "w1")
	out := a.send(along("w1"), withEagerTask(act, "w1", protocol.EagerTask{SeenThrough: 2, At: at}))
	if out.Eager == nil || len(out.Eager.Events) > 0 || out.Eager.Next != nil || len(out.CreatedTaskIDs) > 0 {
		t.Fatalf("the eager task: %+v", out)
	}
	if task := a.poll("w", protocol.KindWorkflow, 0); task != nil {
		t.Fatalf("a task although the eager task was accepted: %+v", task.Workflow)
	}
	must[protocol.CommandReceipt](t)(a.Signal(t.Context(), protocol.SignalRequest{
		Target: protocol.Target{WorkflowID: "one"}, SignalName: "go",
	}))
	if v := must[protocol.RunView](t)(a.Describe(t.Context(), protocol.Target{WorkflowID: "one"})); v.Status != "waiting" {
		t.Errorf("the run is %s", v.Status)
	}
}

// The next activity follows all rules of dispatch. It is not sent with the response if a limit counts activities, if
// fairness classes share the queue, if a more urgent task waits, if the worker has no free slot, or if the worker may
// not acquire the activity's session.
func TestNextActivityOfAnEagerTaskIsDispatchedNormally(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*app)
		change func(*protocol.EagerTask)
	}{
		"no slot": {change: func(t *protocol.EagerTask) { t.Slot = false }},
		"a budget": {before: func(a *app) {
			must[protocol.LimitState](a.t)(a.Limit(a.t.Context(), protocol.LimitRequest{
				Queue: "default", Activity: &protocol.Budget{MaxLeases: new(5)},
			}))
		}},
		"a class":       {change: func(t *protocol.EagerTask) { t.Commands[0].FairnessKey = "tenant" }},
		"another queue": {change: func(t *protocol.EagerTask) { t.Commands[0].Queue = "elsewhere" }},
		"requirements":  {change: func(t *protocol.EagerTask) { t.Commands[0].Requirements = []string{"gpu"} }},
		"a session of another worker": {before: func(a *app) {
			must[protocol.SessionResponse](a.t)(a.CreateSession(a.t.Context(), protocol.SessionCreate{
				WorkerID: "v", SessionOptions: protocol.SessionOptions{SessionID: "held", Queue: "default"},
			}))
		}, change: func(t *protocol.EagerTask) { t.Commands[0].SessionID = "held" }},
		"a more urgent task": {before: func(a *app) {
			must[protocol.DeregisterResponse](a.t)(a.Deregister(a.t.Context(), protocol.DeregisterRequest{WorkerID: "v"}))
			a.start("two")
			urgent := greet()
			urgent.Priority = new(1)
			a.taken(a.decide(a.poll("w", protocol.KindWorkflow, 5), urgent))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			a.register("v")
			a.fuses("w1")
			act, at := a.first("one", "w1")
			if c.before != nil {
				c.before(a)
			}
			then := protocol.EagerTask{SeenThrough: 2, At: at, Commands: []protocol.Command{greet()}, Slot: true}
			if c.change != nil {
				c.change(&then)
			}
			next := along("w1")
			next.Kinds, next.Free = work, map[protocol.TaskKind]int{protocol.KindWorkflow: 0, protocol.KindActivity: 0}
			out := a.send(next, withEagerTask(act, "w1", then))
			if out.Err != nil || out.Eager == nil {
				t.Fatalf("the eager task: %+v", out)
			}
			if out.Eager.Next != nil {
				t.Errorf("the response has %+v", out.Eager.Next)
			}
			if got := seqs(out.Eager.Events); !slices.Equal(got, []string{"ActivityScheduled"}) {
				t.Errorf("it made %v", got)
			}
		})
	}
}

// A run of many activities with eager workflow tasks does not starve ready tasks of other runs, although its worker
// would also get the next activity: the worker's only slot serves them first.
func TestARunOfManyStepsStarvesNoOlderTask(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.fuses("w1")
		act, at := a.first("long", "w1")
		const others, steps = 3, 20
		for i := range others { // these activities find no free slot
			a.start(string(rune('a' + i)))
			a.taken(a.decide(a.poll("w", protocol.KindWorkflow, 5), greet()))
		}
		decisions := along("w1") // the eager workflow task uses the activity's slot
		decisions.Kinds = []protocol.TaskKind{protocol.KindWorkflow}
		seen, given := int64(2), 0
		var order []string
		for range steps {
			if order = append(order, act.WorkflowID); act.WorkflowID != "long" {
				a.taken(a.result(&protocol.Task{Activity: act}, "done"))
			} else {
				out := a.send(decisions, withEagerTask(act, "w1", protocol.EagerTask{
					SeenThrough: seen, At: at, Commands: []protocol.Command{greet()}, Slot: true,
				}))
				if out.Eager == nil {
					t.Fatalf("after %v the eager task was not accepted: %+v", order, out)
				}
				seen, at = out.Eager.Events[len(out.Eager.Events)-1].Seq, out.Eager.StoreTime
				if act = out.Eager.Next; act != nil {
					given++
					continue
				}
			}
			slot := along("w1")
			slot.Kinds, slot.Max = []protocol.TaskKind{protocol.KindActivity}, 1
			got := must[protocol.PollResponse](t)(a.Poll(t.Context(), *slot))
			if len(got.Tasks) != 1 {
				t.Fatalf("after %v %d tasks were ready", order, len(got.Tasks))
			}
			act, at = got.Tasks[0].Activity, got.StoreTime
		}
		// the run's next activity is dispatched before the others eight times in a row, and then after them
		want := append(slices.Repeat([]string{"long"}, 9), "a", "b", "c", "long")
		if !slices.Equal(order[:len(want)], want) {
			t.Errorf("tasks came in the order %v", order)
		}
		if given == 0 {
			t.Error("no step came with the answer to the one before, though nothing older was ready")
		}
	})
}
