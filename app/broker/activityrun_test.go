package broker_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/internal/querytask"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// activity starts an activity run and returns the response.
func (a *app) activity(in protocol.ActivityRequest) protocol.ActivityResponse {
	a.t.Helper()
	in.ActivityType = "greet"
	return must[protocol.ActivityResponse](a.t)(a.StartActivity(a.t.Context(), in))
}

// events returns the types of a run's events.
func (a *app) events(id string) (types []string) {
	a.t.Helper()
	p := must[protocol.HistoryPage](a.t)(a.History(
		a.t.Context(), protocol.HistoryQuery{Target: protocol.Target{WorkflowID: id}},
	))
	for _, e := range p.Events {
		types = append(types, e.Type())
	}
	return types
}

// An activity run has no workflow task: its start schedules the activity, and the end of the activity closes the run.
// All requests that describe runs show it.
func TestActivityRunNeedsNoWorkflow(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := twoApps(t, database)
		a.register("w")
		b.register("w2")
		in := protocol.ActivityRequest{WorkflowID: "one", Input: []byte(`["Ada"]`), Memo: []byte(`{"by":"me"}`)}
		out := a.activity(in)
		if !out.New || out.Status != "running" || out.ActivityType != "greet" || out.Outcome != "started_new" {
			t.Fatalf("the start: %+v", out)
		}
		if _, err := a.StartActivity(t.Context(), protocol.ActivityRequest{
			WorkflowID: "one", ActivityType: "greet",
		}); protocol.ReasonOf(err) != protocol.ReasonDuplicateStart {
			t.Errorf("second start with the ID: %v", err)
		}
		in.DuplicatePolicy = "use-existing"
		if second := b.activity(in); second.New || second.RunID != out.RunID {
			t.Errorf("second start with the policy use-existing: %+v", second)
		}
		open := must[protocol.RunView](t)(b.Describe(t.Context(), protocol.Target{WorkflowID: "one"}))
		if open.Kind != "activity" || open.WorkflowType != "greet" || open.Status != "running" ||
			string(open.Input) != `["Ada"]` || open.Actions.Signal || open.Actions.Query || open.Actions.Update ||
			!open.Actions.Cancel || len(open.Pending.Activities) != 1 || open.Pending.Task != nil {
			t.Errorf("described: %+v %+v", open, open.Actions)
		}
		if got := a.poll("w", protocol.KindWorkflow, 0); got != nil {
			t.Fatalf("a workflow task was made: %+v", got.Workflow)
		}
		task := b.poll("w2", protocol.KindActivity, 5)
		var name string
		if task == nil || payload.DecodeArgs(task.Activity.Arguments, &name) != nil || name != "Ada" {
			t.Fatalf("the task: %+v", task)
		}
		ended := make(chan protocol.RunView)
		go func() {
			v, err := a.Result(t.Context(), protocol.Target{WorkflowID: "one"}, time.Minute, false)
			if err != nil {
				t.Error(err)
			}
			ended <- v
		}()
		if c := b.result(task, "hello Ada"); c.Err != nil || !c.Recorded || c.RunStatus != "completed" {
			t.Fatalf("its result: %+v", c)
		}
		if v := <-ended; v.Status != "completed" || string(v.Output) != `"hello Ada"` || !v.Terminal {
			t.Errorf("the wait: %+v", v)
		}
		if c := b.result(task, "hello Ada"); c.Reason == nil || *c.Reason != "already_completed" {
			t.Errorf("the repeated result: %+v", c)
		}
		want := []string{"WorkflowStarted", "ActivityScheduled", "ActivityCompleted", "WorkflowCompleted"}
		if got := a.events("one"); !slices.Equal(got, want) {
			t.Errorf("its history: %v", got)
		}
		for _, w := range []struct {
			a  *app
			id string
		}{{a, "w"}, {b, "w2"}} {
			if got := w.a.poll(w.id, protocol.KindWorkflow, 0); got != nil {
				t.Errorf("a workflow task was made: %+v", got.Workflow)
			}
		}
	})
}

// An activity run with a start delay is neither dispatched nor queued in its session before the delay ends. Its
// timeouts count from the end of the delay, and its view shows this time.
func TestAnActivityRunBeginsLater(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := twoApps(t, database)
		a.register("w")
		before := time.Now()
		a.activity(protocol.ActivityRequest{
			WorkflowID: "later", StartDelay: 2,
			ActivityOptions: protocol.ActivityOptions{ScheduleToClose: 1, SessionID: "s"},
		})
		a.activity(protocol.ActivityRequest{
			WorkflowID: "much later", StartDelay: 3600, ActivityOptions: protocol.ActivityOptions{SessionID: "s"},
		})
		if got := a.poll("w", protocol.KindActivity, 0); got != nil {
			t.Fatalf("dispatched before its delay: %+v", got.Activity)
		}
		open := must[protocol.RunView](t)(b.Describe(t.Context(), protocol.Target{WorkflowID: "later"}))
		p := open.Pending.Activities[0]
		if p.State != "delayed" || p.Wait.Reason != protocol.WaitStartDelay || p.Wait.Attention ||
			!p.Wait.Until.After(before.Add(time.Second)) || p.NextAt != p.Wait.Until {
			t.Errorf("meanwhile: %+v, waits %+v", p, p.Wait)
		}
		task := a.poll("w", protocol.KindActivity, 10)
		if task == nil {
			t.Fatal("the activity never started")
		}
		end, began := task.Activity.Deadlines.ScheduleToClose, p.Wait.Until
		if at := time.Now(); at.Before(began.Time) || !end.Equal(began.Add(time.Second)) {
			t.Errorf("begun at %s, may take until %s; was to begin at %s", at, end, began)
		}
		s := must[protocol.SessionView](t)(b.Session(t.Context(), "default", "s"))
		if s.Active != 1 || s.Ready != 0 {
			t.Errorf("the session runs %d activities and %d wait", s.Active, s.Ready)
		}
		a.result(task, "done")
		if v := must[protocol.RunView](t)(a.Result(
			t.Context(), protocol.Target{WorkflowID: "later"}, time.Minute, false,
		)); v.Status != "completed" {
			t.Errorf("the run ended as %s", v.Status)
		}
	})
}

// An activity run has no code that could process a signal, an update, a query or a cancellation request: each is
// refused with the same reason, even if workers have a workflow type with the activity's name.
func TestAnActivityRunRefusesMessagesForWorkflowCode(t *testing.T) {
	a := newApp(t)
	must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
		WorkerID: "w", TaskQueue: "default", WorkflowTypes: []string{"greet"}, AnyActivity: true,
		Capabilities: []string{querytask.CapQueries, broker.CapCancellation, querytask.CapValidation},
	}))
	a.activity(protocol.ActivityRequest{WorkflowID: "one"})
	at := protocol.Target{WorkflowID: "one"}
	ask := func(closed bool) {
		t.Helper()
		refused := protocol.ReasonActivityRun
		if closed {
			refused = protocol.ReasonRunNotActive
		}
		_, err := a.Query(t.Context(), protocol.QueryRequest{Target: at, QueryName: "state"})
		if protocol.ReasonOf(err) != protocol.ReasonActivityRun {
			t.Errorf("a query: %v", err)
		}
		_, err = a.Signal(t.Context(), protocol.SignalRequest{Target: at, SignalName: "go"})
		if protocol.ReasonOf(err) != refused {
			t.Errorf("a signal: %v", err)
		}
		_, err = a.Update(t.Context(), protocol.UpdateRequest{Target: at, UpdateName: "set"})
		if protocol.ReasonOf(err) != refused {
			t.Errorf("an update: %v", err)
		}
		_, err = a.RequestCancellation(t.Context(), protocol.EndRequest{Target: at})
		if protocol.ReasonOf(err) != refused {
			t.Errorf("a request to end: %v", err)
		}
	}
	ask(false)
	a.result(a.poll("w", protocol.KindActivity, 5), "done")
	ask(true)
}

// The options of an activity run apply: it is retried by its retry policy, and fails like an activity of a workflow.
func TestActivityRunIsRetriedByItsPolicy(t *testing.T) {
	a := newApp(t)
	a.register("w")
	most := 2
	a.activity(protocol.ActivityRequest{
		WorkflowID: "one", ActivityOptions: protocol.ActivityOptions{
			StartToClose: 60, RetryPolicy: &retry.Policy{MaxAttempts: &most, BackoffSeconds: []int{0}},
		},
	})
	keys := map[string]bool{}
	for attempt := 1; attempt <= most; attempt++ {
		task := a.poll("w", protocol.KindActivity, 5)
		if task == nil || task.Activity.Attempt != attempt || task.Activity.Deadlines.StartToClose.IsZero() {
			t.Fatalf("attempt %d: %+v", attempt, task)
		}
		keys[task.Activity.IdempotencyKey] = true
		a.complete(protocol.CompleteItem{
			Kind: protocol.KindActivity, TaskID: task.Activity.TaskID, Owner: "w", AttemptID: task.Activity.AttemptID,
			Failure: &protocol.Failure{Type: "Declined", Message: "no money", StackTrace: "pay.js:7"},
		})
	}
	if len(keys) != 1 || keys[""] {
		t.Errorf("the idempotency keys of one activity are %v", keys)
	}
	v := must[protocol.RunView](t)(a.Result(t.Context(), protocol.Target{WorkflowID: "one"}, time.Minute, false))
	if v.Status != "failed" || v.Error == nil || *v.Error != "no money" {
		t.Errorf("the run: %+v", v)
	}
	for name, in := range map[string]protocol.ActivityRequest{
		"activity_type":     {},
		"heartbeat_timeout": {ActivityType: "greet", ActivityOptions: protocol.ActivityOptions{Heartbeat: -1}},
		"retry_policy.max_attempts": {ActivityType: "greet", ActivityOptions: protocol.ActivityOptions{
			RetryPolicy: &retry.Policy{MaxAttempts: new(0)},
		}},
		"affinity":    {ActivityType: "greet", ActivityOptions: protocol.ActivityOptions{Affinity: "soft"}},
		"task_queue":  {ActivityType: "greet", TaskQueue: string(make([]byte, 300))},
		"workflow_id": {ActivityType: "greet", WorkflowID: "."},
		"input":       {ActivityType: "greet", Input: []byte(`"one"`)},
	} {
		if _, err := a.StartActivity(t.Context(), in); !names(err, name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// names reports whether an error names a field.
func names(err error, field string) bool {
	return protocol.ReasonOf(err) == protocol.ReasonValidation && slices.Contains(fieldsOf(err), field)
}

// Activity runs of one session are dispatched to the session's owner, whichever app starts them, and run sequentially
// if the session requires it.
func TestActivityRunsShareASession(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := twoApps(t, database)
		a.register("w1")
		a.register("w2")
		b.register("w3")
		a.activity(protocol.ActivityRequest{WorkflowID: "load", ActivityOptions: protocol.ActivityOptions{SessionID: "gpu"}})
		first := a.poll("w1", protocol.KindActivity, 5)
		if first == nil || first.Activity.Session == nil || !first.Activity.Session.IsNew {
			t.Fatalf("the first: %+v", first)
		}
		a.result(first, "loaded")
		b.activity(protocol.ActivityRequest{WorkflowID: "use", ActivityOptions: protocol.ActivityOptions{SessionID: "gpu"}})
		for _, other := range []struct {
			a  *app
			id string
		}{{a, "w2"}, {b, "w3"}} {
			if got := other.a.poll(other.id, protocol.KindActivity, 0); got != nil {
				t.Errorf("worker %s received a task of the session's owner: %+v", other.id, got.Activity)
			}
		}
		second := a.poll("w1", protocol.KindActivity, 5)
		if second == nil || second.Activity.Session.Epoch != first.Activity.Session.Epoch || second.Activity.Session.IsNew {
			t.Fatalf("the second: %+v", second)
		}
		if c := a.result(second, "used"); c.Err != nil {
			t.Fatal(c.Err)
		}
		for _, id := range []string{"load", "use"} {
			v := must[protocol.RunView](t)(b.Describe(t.Context(), protocol.Target{WorkflowID: id}))
			if v.Status != "completed" {
				t.Errorf("%s: %+v", id, v)
			}
		}
	})
}

// Cancel and terminate close an activity run. Its worker learns that with its next heartbeat, and its result is
// refused.
func TestAnActivityRunCanBeEnded(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := twoApps(t, database)
		a.register("w")
		for status, end := range map[string]func(protocol.EndRequest) (protocol.CommandReceipt, error){
			"cancelled": func(in protocol.EndRequest) (protocol.CommandReceipt, error) {
				return b.Cancel(t.Context(), in)
			},
			"terminated": func(in protocol.EndRequest) (protocol.CommandReceipt, error) {
				return b.Terminate(t.Context(), in)
			},
		} {
			a.activity(protocol.ActivityRequest{WorkflowID: status, ActivityOptions: protocol.ActivityOptions{SessionID: "s"}})
			task := a.poll("w", protocol.KindActivity, 5)
			if task == nil {
				t.Fatal("no task")
			}
			must[protocol.CommandReceipt](t)(end(protocol.EndRequest{
				Target: protocol.Target{WorkflowID: status}, Reason: "not needed",
			}))
			if c := a.result(task, "late"); c.Err == nil || c.Recorded {
				t.Errorf("a late result: %+v", c)
			}
			v := must[protocol.RunView](t)(a.Describe(t.Context(), protocol.Target{WorkflowID: status}))
			if v.Status != status || v.Pending != nil {
				t.Errorf("%s: %+v", status, v)
			}
		}
	})
}

// Lists mark activity runs by their kind. A filter by workflow type does not match an activity type with that name.
func TestActivityRunsInLists(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.activity(protocol.ActivityRequest{WorkflowID: "activity"})
		must[protocol.StartResponse](t)(a.Start(t.Context(), protocol.StartRequest{
			WorkflowID: "workflow", WorkflowType: "greet",
		}))
		list := func(in protocol.ListRequest) (ids []string) {
			for _, v := range must[protocol.ListResponse](t)(a.List(t.Context(), in)).Workflows {
				ids = append(ids, v.WorkflowID)
				if v.Kind != v.WorkflowID || v.WorkflowType != "greet" {
					t.Errorf("listed: kind %s, type %q of %s", v.Kind, v.WorkflowType, v.WorkflowID)
				}
			}
			slices.Sort(ids)
			return ids
		}
		for _, c := range []struct {
			in   protocol.ListRequest
			want []string
		}{
			{protocol.ListRequest{}, []string{"activity", "workflow"}},
			{protocol.ListRequest{WorkflowType: "greet"}, []string{"workflow"}},
			{protocol.ListRequest{Query: "WorkflowType = 'greet'"}, []string{"workflow"}},
			{protocol.ListRequest{Query: "WorkflowType STARTS_WITH 'gr'"}, []string{"workflow"}},
			{protocol.ListRequest{Query: "ActivityType = 'greet'"}, []string{"activity"}},
			{protocol.ListRequest{Query: "ActivityType = 'other'"}, nil},
			{protocol.ListRequest{Query: "ActivityType != 'other'"}, []string{"activity"}},
			{protocol.ListRequest{Query: "ActivityType IS NOT NULL"}, []string{"activity"}},
			{protocol.ListRequest{Query: "ActivityType IS NULL"}, []string{"workflow"}},
			{protocol.ListRequest{Kind: "activity"}, []string{"activity"}},
			{protocol.ListRequest{Kind: "workflow"}, []string{"workflow"}},
			{protocol.ListRequest{Kind: "activity", WorkflowType: "greet"}, []string{"activity"}},
			{protocol.ListRequest{Kind: "workflow", WorkflowType: "greet"}, []string{"workflow"}},
			{protocol.ListRequest{Kind: "activity", Query: "work"}, nil},
			{protocol.ListRequest{Kind: "activity", Query: "WorkflowId = 'workflow'"}, nil},
			{protocol.ListRequest{Kind: "workflow", Query: "WorkflowId = 'workflow'"}, []string{"workflow"}},
		} {
			if got := list(c.in); !slices.Equal(got, c.want) {
				t.Errorf("%+v: got %v, want %v", c.in, got, c.want)
			}
		}
		_, err := a.List(t.Context(), protocol.ListRequest{Kind: "timer"})
		if !slices.Equal(fieldsOf(err), []string{"kind"}) {
			t.Errorf("a kind there is none of: %v", err)
		}
		p := must[protocol.HistoryPage](t)(a.History(
			t.Context(), protocol.HistoryQuery{Target: protocol.Target{WorkflowID: "activity"}},
		))
		if d, ok := p.Events[0].Data.(*history.WorkflowStarted); !ok || d.Kind != history.KindActivity {
			t.Errorf("event 1: %+v", p.Events[0])
		}
	})
}

func fieldsOf(err error) (fields []string) {
	var e *protocol.Error
	if errors.As(err, &e) {
		for f := range e.Fields {
			fields = append(fields, f)
		}
	}
	return fields
}

// A schedule starts activity runs like workflows: once per firing, under the overlap policy, with the session and the
// retry policy of its action, from any app.
func TestScheduleStartsActivityRuns(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := twoApps(t, database)
		a.register("w")
		most := 2
		action := protocol.ScheduleAction{
			ActivityType: "greet", Input: []byte(`["Ada"]`), ActivityOptions: protocol.ActivityOptions{
				SessionID: "s", RetryPolicy: &retry.Policy{MaxAttempts: &most, BackoffSeconds: []int{0}},
			},
		}
		spec := protocol.ScheduleSpec{Intervals: []protocol.ScheduleInterval{{Every: "PT1S"}}}
		must[protocol.ScheduleReceipt](t)(a.CreateSchedule(t.Context(), protocol.ScheduleRequest{
			ID: "warm", Spec: &spec, Action: &action, Overlap: new(protocol.OverlapSkip), MaxRuns: new(int64(1)),
		}))
		v := must[protocol.ScheduleView](t)(b.Schedule(t.Context(), "", "warm"))
		if v.Kind != "activity" || v.WorkflowType != "greet" || v.Action.SessionID != "s" {
			t.Errorf("shown as %+v", v)
		}
		for attempt := 1; attempt <= most; attempt++ {
			task := a.poll("w", protocol.KindActivity, 20)
			var name string
			if task == nil || payload.DecodeArgs(task.Activity.Arguments, &name) != nil || name != "Ada" ||
				task.Activity.Attempt != attempt || task.Activity.Session == nil {
				t.Fatalf("attempt %d: %+v", attempt, task)
			}
			if attempt == most {
				a.result(task, "hello Ada")
				continue
			}
			a.complete(protocol.CompleteItem{
				Kind: protocol.KindActivity, TaskID: task.Activity.TaskID, Owner: "w", AttemptID: task.Activity.AttemptID,
				Failure: &protocol.Failure{Type: "Busy", Message: "later"},
			})
		}
		v = must[protocol.ScheduleView](t)(a.Schedule(t.Context(), "", "warm"))
		if v.Fires != 1 || v.Failures != 0 || v.Latest == nil {
			t.Fatalf("fired %d, failed %d: %+v", v.Fires, v.Failures, v)
		}
		run := must[protocol.RunView](t)(b.Result(t.Context(), protocol.Target{WorkflowID: *v.Latest}, time.Minute, false))
		if run.Kind != "activity" || run.Status != "completed" || string(run.Output) != `"hello Ada"` {
			t.Errorf("the run: %+v", run)
		}
	})
}

// If two firings of a schedule wait in one session, the overlap policy ends the older activity run first.
func TestAScheduleKeepsToOneActivityAtATime(t *testing.T) {
	a := newApp(t)
	a.register("w")
	spec := protocol.ScheduleSpec{Cron: []string{"0 0 1 1 *"}}
	action := protocol.ScheduleAction{
		ActivityType: "greet", ActivityOptions: protocol.ActivityOptions{SessionID: "s"},
	}
	must[protocol.ScheduleReceipt](t)(a.CreateSchedule(t.Context(), protocol.ScheduleRequest{
		ID: "one", Spec: &spec, Action: &action,
	}))
	fire := func(overlap string) protocol.ScheduleReceipt {
		t.Helper()
		return must[protocol.ScheduleReceipt](t)(a.TriggerSchedule(t.Context(), "", "one", overlap))
	}
	first := fire(protocol.OverlapSkip)
	if repeated := fire(protocol.OverlapSkip); repeated.Outcome != "skipped" {
		t.Errorf("a second run next to the open one: %+v", repeated)
	}
	second := fire(protocol.OverlapTerminate)
	if v := must[protocol.RunView](t)(a.Describe(
		t.Context(), protocol.Target{RunID: first.RunID},
	)); v.Status != "terminated" {
		t.Errorf("the first is %s", v.Status)
	}
	third := fire(protocol.OverlapAllowAll)
	s := must[protocol.SessionView](t)(a.Session(t.Context(), "default", "s"))
	if s.Ready != 2 || second.RunID == third.RunID {
		t.Errorf("in the session wait %d, of %s and %s", s.Ready, second.RunID, third.RunID)
	}
	for field, change := range map[string]func(*protocol.ScheduleAction){
		"action.workflow_type":             func(in *protocol.ScheduleAction) { *in = protocol.ScheduleAction{} },
		"action.activity_type":             func(in *protocol.ScheduleAction) { in.WorkflowType = "wf" },
		"action.execution_timeout_seconds": func(in *protocol.ScheduleAction) { in.ExecutionTimeout = 5 },
		"action.run_timeout_seconds":       func(in *protocol.ScheduleAction) { in.RunTimeout = 5 },
		"action.heartbeat_timeout":         func(in *protocol.ScheduleAction) { in.Heartbeat = -1 },
		"action.affinity": func(in *protocol.ScheduleAction) {
			in.SessionID, in.Affinity = "", "soft"
		},
	} {
		wrong := action
		change(&wrong)
		_, err := a.UpdateSchedule(t.Context(), protocol.ScheduleRequest{ID: "one", Action: &wrong})
		if !names(err, field) {
			t.Errorf("%s: got %v", field, err)
		}
	}
	options := protocol.ScheduleAction{
		WorkflowType: "wf", ActivityOptions: protocol.ActivityOptions{StartToClose: 5},
	}
	if _, err := a.UpdateSchedule(t.Context(), protocol.ScheduleRequest{
		ID: "one", Action: &options,
	}); !names(err, "action.activity_type") {
		t.Errorf("a workflow with what is an activity's: %v", err)
	}
}
