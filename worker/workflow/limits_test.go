package workflow_test

import (
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// texts are text values that a caller may pass by mistake.
var texts = map[string]string{
	"NUL": "a\x00b", "invalid UTF-8": "a\xffb", "300 bytes": strings.Repeat("x", 300), "blank": "  ",
	"maximum": strings.Repeat("x", protocol.MaxName), "20 KB": strings.Repeat("ü", 10_000),
}

// durations are duration values that a caller may pass by mistake.
var durations = map[string]time.Duration{
	"too small": -time.Second, "too large": protocol.MaxSeconds*time.Second + 1,
	"maximum": protocol.MaxSeconds * time.Second, "longest": 1<<63 - 1,
}

// textCalls has, for each text of a command, the call by which workflow code sets it.
var textCalls = map[string]func(workflow.Context, string) error{
	"schedule_activity activity_type": func(ctx workflow.Context, s string) error {
		return opened(workflow.ExecuteActivity(ctx, s))
	},
	"schedule_activity queue": withActivity(func(o *workflow.ActivityOptions, s string) { o.Queue = s }),
	"schedule_activity session_id": func(ctx workflow.Context, s string) error {
		return opened(workflow.ExecuteActivity(workflow.InSession(ctx, s), "act"))
	},
	"schedule_activity requirements": withActivity(func(o *workflow.ActivityOptions, s string) {
		o.Requirements = []string{s}
	}),
	"schedule_activity retry_policy": withActivity(func(o *workflow.ActivityOptions, s string) {
		o.Retry = &workflow.RetryPolicy{MaxAttempts: 2, NonRetryable: []string{s}}
	}),
	"schedule_activity worker_session": withActivity(func(o *workflow.ActivityOptions, s string) {
		o.WorkerSession = &workflow.WorkerSession{ID: s}
	}),
	"schedule_activity worker_session.queue": withActivity(func(o *workflow.ActivityOptions, s string) {
		o.WorkerSession = &workflow.WorkerSession{ID: "s", Queue: s}
	}),
	"schedule_activity worker_session.requirements": withActivity(func(o *workflow.ActivityOptions, s string) {
		o.WorkerSession = &workflow.WorkerSession{ID: "s", Requirements: []string{s}}
	}),
	"schedule_activity session_definition": func(ctx workflow.Context, s string) error {
		return opened(workflow.ExecuteActivity(workflow.InSession(ctx, "s", workflow.SessionDefinition{Name: s}), "act"))
	},
	"schedule_activity session_definition.on_lost": func(ctx workflow.Context, s string) error {
		d := workflow.SessionDefinition{Name: "d", OnLost: s}
		return opened(workflow.ExecuteActivity(workflow.InSession(ctx, "s", d), "act"))
	},
	"schedule_activity session_definition.arguments": func(ctx workflow.Context, s string) error {
		d := workflow.SessionDefinition{Name: "d", Arguments: []any{s}}
		return opened(workflow.ExecuteActivity(workflow.InSession(ctx, "s", d), "act"))
	},
	"start_session session_definition": func(ctx workflow.Context, s string) error {
		_, err := workflow.StartSession(ctx, workflow.SessionOptions{Definition: &workflow.SessionDefinition{Name: s}})
		return err
	},
	"start_session worker_session": func(ctx workflow.Context, s string) error {
		_, err := workflow.StartSession(ctx, workflow.SessionOptions{Queue: s, MaxActivities: 1})
		return err
	},
	"start_session requirements": func(ctx workflow.Context, s string) error {
		_, err := workflow.StartSession(ctx, workflow.SessionOptions{Requirements: []string{s}})
		return err
	},
	"end_session session_id": func(ctx workflow.Context, s string) error {
		return (&workflow.Session{ID: s}).End(ctx)
	},
	"start_child_workflow workflow_type": func(ctx workflow.Context, s string) error {
		return opened(workflow.StartChild(ctx, s))
	},
	"start_child_workflow workflow_id": withChild(func(o *workflow.ChildOptions, s string) { o.WorkflowID = s }),
	"start_child_workflow queue":       withChild(func(o *workflow.ChildOptions, s string) { o.Queue = s }),
	"start_child_workflow reuse_policy": withChild(func(o *workflow.ChildOptions, s string) {
		o.WorkflowID, o.ReuseID = "x", workflow.IDReusePolicy(s)
	}),
	"start_child_workflow conflict_policy": withChild(func(o *workflow.ChildOptions, s string) {
		o.WorkflowID, o.Conflict = "x", workflow.IDConflictPolicy(s)
	}),
	"start_child_workflow parent_close_policy": withChild(func(o *workflow.ChildOptions, s string) {
		o.ParentClose = workflow.ParentClosePolicy(s)
	}),
	"start_child_workflow retry_policy": withChild(func(o *workflow.ChildOptions, s string) {
		o.Retry = &workflow.RetryPolicy{MaxAttempts: 2, NonRetryable: []string{s}}
	}),
	"start_child_workflow entries": withChild(func(o *workflow.ChildOptions, s string) {
		o.Memo = map[string]any{"k": s}
	}),
	"start_child_workflow attributes": withChild(func(o *workflow.ChildOptions, s string) {
		o.SearchAttributes = map[string]any{"k": s}
	}),
	"schedule_activity headers": func(ctx workflow.Context, s string) error {
		return opened(workflow.ExecuteActivity(workflow.WithHeaders(ctx, map[string]string{"h": s}), "act"))
	},
	"start_child_workflow headers": func(ctx workflow.Context, s string) error {
		return opened(workflow.StartChild(workflow.WithHeaders(ctx, map[string]string{"h": s}), "child"))
	},
	"continue_as_new headers": func(ctx workflow.Context, s string) error {
		return workflow.ContinueAsNew(workflow.WithHeaders(ctx, map[string]string{"h": s}))
	},
	"schedule_activity borrow": func(ctx workflow.Context, s string) error {
		return borrowed(ctx, s, workflow.BorrowOptions{})
	},
	"schedule_activity borrow.fairness_key": func(ctx workflow.Context, s string) error {
		return borrowed(ctx, "pool", workflow.BorrowOptions{FairnessKey: s})
	},
	"signal_workflow headers": func(ctx workflow.Context, s string) error {
		return workflow.SignalWorkflow(workflow.WithHeaders(ctx, map[string]string{"h": s}), "other", "sig")
	},
	"attach_child_workflow workflow_id": func(ctx workflow.Context, s string) error {
		return opened(workflow.AttachChild(ctx, s))
	},
	"signal_workflow workflow_id": func(ctx workflow.Context, s string) error {
		return workflow.SignalWorkflow(ctx, s, "sig")
	},
	"signal_workflow signal_name": func(ctx workflow.Context, s string) error {
		return workflow.SignalWorkflow(ctx, "other", s)
	},
	"open_signal_wait signal_name": func(ctx workflow.Context, s string) error {
		ctx, cancel := workflow.WithCancel(ctx)
		workflow.Go(ctx, func(workflow.Context) { cancel() })
		err := workflow.Signal(ctx, s).Receive(ctx)
		if errors.Is(err, workflow.ErrCancelled) {
			return nil // the code waited without an error
		}
		return err
	},
	"open_signal_wait signal_name in Select": func(ctx workflow.Context, s string) error {
		ctx, cancel := workflow.WithCancel(ctx)
		workflow.Go(ctx, func(workflow.Context) { cancel() })
		_, err := workflow.Select(ctx, workflow.Signal(ctx, s))
		if errors.Is(err, workflow.ErrCancelled) {
			return nil
		}
		return err
	},
	"record_version_marker change_id": func(ctx workflow.Context, s string) (err error) {
		defer func() {
			if r, ok := recover().(error); ok { // the panic fails the workflow task
				err = r
			}
		}()
		workflow.Version(ctx, s, 1, 1)
		return nil
	},
	"record_side_effect result": func(ctx workflow.Context, s string) error {
		_, err := workflow.SideEffect(ctx, func() string { return s })
		return err
	},
	"upsert_memo entries": func(ctx workflow.Context, s string) error {
		return workflow.UpsertMemo(ctx, map[string]any{"k": s})
	},
	"upsert_memo entries by name": func(ctx workflow.Context, s string) error {
		return workflow.UpsertMemo(ctx, map[string]any{s: 1})
	},
	"upsert_search_attributes attributes": func(ctx workflow.Context, s string) error {
		return workflow.UpsertSearchAttributes(ctx, map[string]any{"k": s})
	},
	"upsert_search_attributes attributes by name": func(ctx workflow.Context, s string) error {
		return workflow.UpsertSearchAttributes(ctx, map[string]any{s: 1})
	},
	"schedule_activity arguments": func(ctx workflow.Context, s string) error {
		return opened(workflow.ExecuteActivity(ctx, "act", s))
	},
	"start_child_workflow arguments": func(ctx workflow.Context, s string) error {
		return opened(workflow.StartChild(ctx, "kid", s))
	},
	"signal_workflow arguments": func(ctx workflow.Context, s string) error {
		return workflow.SignalWorkflow(ctx, "other", "sig", s)
	},
	"continue_as_new arguments": func(ctx workflow.Context, s string) error { return workflow.ContinueAsNew(ctx, s) },
	"continue_as_new queue": func(ctx workflow.Context, s string) error {
		return workflow.ContinueAsNewWith(ctx, workflow.ContinueOptions{Queue: s})
	},
	"continue_as_new workflow_type": func(ctx workflow.Context, s string) error {
		return workflow.ContinueAsNewWith(ctx, workflow.ContinueOptions{Workflow: s})
	},
	"fail_workflow message":        func(_ workflow.Context, s string) error { return failed{errors.New(s)} },
	"fail_workflow exception_type": func(_ workflow.Context, s string) error { return failed{activity.NewError(s, "m")} },
	"fail_workflow exception": func(_ workflow.Context, s string) error {
		return failed{activity.NewError("t", "m", activity.Details(s))}
	},
}

// failed marks an error with which the workflow failed.
type failed struct{ error }

func (f failed) Unwrap() error { return f.error }

// durationCalls has, for each duration or number of a command, the call by which workflow code sets it.
var durationCalls = map[string]func(workflow.Context, time.Duration) error{
	"start_timer delay_seconds": func(ctx workflow.Context, d time.Duration) error {
		return opened(workflow.NewTimer(ctx, d))
	},
	"open_awakeable timeout_seconds": func(ctx workflow.Context, d time.Duration) error {
		return opened(workflow.Awakeable[any](ctx, d))
	},
	"schedule_activity start_to_close_timeout": activityTime(func(o *workflow.ActivityOptions, d time.Duration) {
		o.StartToClose = d
	}),
	"schedule_activity schedule_to_start_timeout": activityTime(func(o *workflow.ActivityOptions, d time.Duration) {
		o.ScheduleToStart = d
	}),
	"schedule_activity schedule_to_close_timeout": activityTime(func(o *workflow.ActivityOptions, d time.Duration) {
		o.ScheduleToClose = d
	}),
	"schedule_activity heartbeat_timeout": activityTime(func(o *workflow.ActivityOptions, d time.Duration) {
		o.Heartbeat = d
	}),
	"schedule_activity fallback_after_seconds": activityTime(func(o *workflow.ActivityOptions, d time.Duration) {
		o.Session, o.SessionFallback = "s", d
	}),
	"schedule_activity borrow.loan_seconds": func(ctx workflow.Context, d time.Duration) error {
		return borrowed(ctx, "pool", workflow.BorrowOptions{Timeout: d})
	},
	"schedule_activity borrow.wait": func(ctx workflow.Context, d time.Duration) error {
		return borrowed(ctx, "pool", workflow.BorrowOptions{WaitTimeout: d})
	},
	"schedule_activity retry_policy": activityTime(func(o *workflow.ActivityOptions, d time.Duration) {
		o.Retry = &workflow.RetryPolicy{Backoff: []time.Duration{d}}
	}),
	"schedule_activity max_blamed_losses": activityTime(func(o *workflow.ActivityOptions, d time.Duration) {
		o.MaxBlamedLosses = int(d)
	}),
	"schedule_activity priority": activityTime(func(o *workflow.ActivityOptions, d time.Duration) { o.Priority = int(d) }),
	"schedule_activity worker_session": activityTime(func(o *workflow.ActivityOptions, d time.Duration) {
		o.WorkerSession = &workflow.WorkerSession{ID: "s", Lease: d}
	}),
	"schedule_activity worker_session.ttl": activityTime(func(o *workflow.ActivityOptions, d time.Duration) {
		o.WorkerSession = &workflow.WorkerSession{ID: "s", TTL: d}
	}),
	"schedule_activity worker_session.max": activityTime(func(o *workflow.ActivityOptions, d time.Duration) {
		o.WorkerSession = &workflow.WorkerSession{ID: "s", MaxActivities: int(d)}
	}),
	"schedule_activity worker_session.fallback": activityTime(func(o *workflow.ActivityOptions, d time.Duration) {
		o.WorkerSession = &workflow.WorkerSession{ID: "s", Fallback: d}
	}),
	"start_session worker_session": func(ctx workflow.Context, d time.Duration) error {
		_, err := workflow.StartSession(ctx, workflow.SessionOptions{Fallback: d})
		return err
	},
	"start_session worker_session.max": func(ctx workflow.Context, d time.Duration) error {
		_, err := workflow.StartSession(ctx, workflow.SessionOptions{MaxActivities: int(d)})
		return err
	},
	"start_child_workflow execution_timeout_seconds": childTime(func(o *workflow.ChildOptions, d time.Duration) {
		o.ExecutionTimeout = d
	}),
	"start_child_workflow run_timeout_seconds": childTime(func(o *workflow.ChildOptions, d time.Duration) {
		o.RunTimeout = d
	}),
	"start_child_workflow retry_policy": childTime(func(o *workflow.ChildOptions, d time.Duration) {
		o.Retry = &workflow.RetryPolicy{MaxAttempts: int(d)}
	}),
	"record_version_marker version": func(ctx workflow.Context, d time.Duration) error {
		workflow.Version(ctx, "change", int(d), int(d))
		return nil
	},
}

// unsettable are members of commands that workflow code cannot set, or that only other SDKs send.
var unsettable = []string{
	"schedule_activity affinity", "schedule_activity fairness_key", "schedule_activity fairness_weight",
	"schedule_activity cancellation_policy", "start_child_workflow cancellation_policy",
	"start_timer delay_micros", "start_session session_id", "open_signal_wait timeout_seconds",
	"open_condition_wait", "cancel_selection_operation", "cancel_activity target", "cancel_timer target",
	"cancel_child_workflow target", "cancel_awakeable target", "record_version_marker min_supported", "record_version_marker max_supported",
	"fail_workflow exception_class", "fail_workflow failed_step_sequence", "fail_workflow failed_activity_execution_id",
	"record_local_activity",                          // see TestEveryTextOfALocalStepFailsTheCallOrIsTaken
	"fail_update", "complete_update", "apply_update", // the app chooses the ID; fail_workflow covers the other texts
}

func activityTime(set func(*workflow.ActivityOptions, time.Duration)) func(workflow.Context, time.Duration) error {
	return func(ctx workflow.Context, d time.Duration) error {
		var o workflow.ActivityOptions
		set(&o, d)
		return opened(workflow.ExecuteActivity(workflow.WithActivity(ctx, o), "act"))
	}
}

func withActivity(set func(*workflow.ActivityOptions, string)) func(workflow.Context, string) error {
	return func(ctx workflow.Context, s string) error {
		return activityTime(func(o *workflow.ActivityOptions, _ time.Duration) { set(o, s) })(ctx, 0)
	}
}

func childTime(set func(*workflow.ChildOptions, time.Duration)) func(workflow.Context, time.Duration) error {
	return func(ctx workflow.Context, d time.Duration) error {
		o := workflow.ChildOptions{ParentClose: workflow.Abandon}
		set(&o, d)
		return opened(workflow.StartChild(workflow.WithChild(ctx, o), "kid"))
	}
}

func withChild(set func(*workflow.ChildOptions, string)) func(workflow.Context, string) error {
	return func(ctx workflow.Context, s string) error {
		return childTime(func(o *workflow.ChildOptions, _ time.Duration) { set(o, s) })(ctx, 0)
	}
}

// opened returns the error of a future whose command was refused, or nil.
func opened(f workflow.Future) error {
	if f.Ready() {
		return f.Get(nil, nil)
	}
	return nil
}

// borrowed asks for a member of a pool and stops waiting.
func borrowed(ctx workflow.Context, pool string, o workflow.BorrowOptions) error {
	ctx, cancel := workflow.WithCancel(ctx)
	workflow.Go(ctx, func(workflow.Context) { cancel() })
	_, err := workflow.Borrow(ctx, pool, o)
	if errors.Is(err, workflow.ErrCancelled) {
		return nil
	}
	return err
}

// holds runs a workflow with one call. The call must fail with ErrInvalidOptions, or the app must accept its command.
// In both cases history must contain only texts that every database can store, and must replay.
func holds(t *testing.T, call func(workflow.Context) error) (err error) {
	t.Helper()
	a := start(t, func(ctx workflow.Context) error {
		err = call(ctx)
		if errors.As(err, new(failed)) || err != nil && err.Error() == "continue as new" {
			ends := err
			err = nil
			return ends
		}
		return nil
	})
	a.drain(nil) // drain fails the test if the app refuses a command
	if err != nil && !errors.Is(err, workflow.ErrInvalidOptions) && payload.Reason(err) == "" {
		t.Errorf("the call fails with %v", err)
	}
	for _, e := range a.events {
		if path := unstorable(reflect.ValueOf(e.Data), e.Type()); path != "" {
			t.Errorf("history has a bad text at %s", path)
		}
		if d, ok := e.Data.(*history.WorkflowFailed); ok && (len(d.Message) > protocol.MaxErrorText ||
			len(d.Exception) > 4*protocol.MaxErrorText) {
			t.Errorf("the failure has a message of %d bytes and an exception of %d", len(d.Message), len(d.Exception))
		}
	}
	a.replays()
	return err
}

// unstorable returns the path of a text that not every database can store; empty if there is none.
func unstorable(v reflect.Value, at string) string {
	switch v.Kind() {
	case reflect.String:
		if !utf8.ValidString(v.String()) || strings.Contains(v.String(), "\x00") {
			return at
		}
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return unstorable(v.Elem(), at)
		}
	case reflect.Slice:
		if raw, ok := v.Interface().(json.RawMessage); ok && !utf8.Valid(raw) {
			return at
		}
		for i := range v.Len() {
			if p := unstorable(v.Index(i), at); p != "" {
				return p
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				if p := unstorable(v.Field(i), at+"."+f.Name); p != "" {
					return p
				}
			}
		}
	}
	return ""
}

// For every text or number, either the call fails with ErrInvalidOptions or the app accepts its command. The app
// rejects no command of a successful call, so no value of a user fails the workflow task.
func TestEveryValueOfACallFailsTheCallOrIsTaken(t *testing.T) {
	refused := 0
	for name, call := range textCalls {
		for value, text := range texts {
			t.Run(name+"/"+value, func(t *testing.T) {
				if holds(t, func(ctx workflow.Context) error { return call(ctx, text) }) != nil {
					refused++
				}
			})
		}
	}
	for name, call := range durationCalls {
		for value, d := range durations {
			t.Run(name+"/"+value, func(t *testing.T) {
				err := holds(t, func(ctx workflow.Context) error { return call(ctx, d) })
				if err != nil {
					refused++
				}
				if strings.HasPrefix(name, "start_timer") && err != nil {
					t.Errorf("a timer of %s is refused: %v", d, err)
				}
			})
		}
	}
	if refused < 100 {
		t.Errorf("only %d calls were refused", refused)
	}
}

// Each text and number of each command is in the tables of calls, or in the list of members that workflow code cannot
// set.
func TestTheTableOfCallsHasEveryMemberOfEveryCommand(t *testing.T) {
	calls := slices.AppendSeq(slices.Collect(maps.Keys(textCalls)), maps.Keys(durationCalls))
	has := func(member string) bool {
		command, _, _ := strings.Cut(member, " ")
		return slices.Contains(unsettable, member) || slices.Contains(unsettable, command) ||
			slices.ContainsFunc(calls, func(name string) bool {
				return name == member || strings.HasPrefix(name, member+".") || strings.HasPrefix(name, member+" ")
			})
	}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[protocol.Command]()) {
		if f.Type.Kind() == reflect.Bool || f.Anonymous {
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		for command := range strings.FieldsSeq(f.Tag.Get("of")) {
			member := strings.TrimRight(command, "!|") + " " + name
			switch name {
			case "cancellation_scope_id", "cancellation_cleanup", "workflow_stream", "unreceived_signals",
				"unreceived_signal_range", "attribute_types", "observability_context":
				continue // commands that are not supported, or that no call issues
			case "result":
				if !strings.HasPrefix(member, "record_side_effect") {
					continue // a payload, which is encoded before the command is created
				}
			}
			if !has(member) {
				t.Errorf("no call of the table sets %s", member)
			}
		}
	}
}

// A timer longer than the limit is shortened to the limit.
func TestATimerBeyondTheLimitIsClamped(t *testing.T) {
	a := start(t, func(ctx workflow.Context) error { return workflow.Sleep(ctx, 1<<63-1) })
	a.drain(nil)
	timer, ok := a.run.Timers.Get(1)
	if want := a.now.Add(protocol.MaxSeconds * time.Second); !ok || timer.FireAt.Sub(want).Abs() > time.Second {
		t.Errorf("the timer is %+v, want one that fires at %s", timer, want)
	}
}

// A command that an earlier build recorded replays although a rule of this build forbids it, and the code after the
// command runs. A call that failed in this build fails again in the replay, also if the code then issued a valid
// command of the same name.
func TestRecordedCommandsReplayWhateverTheRules(t *testing.T) {
	long := 20 * 365 * 24 * time.Hour
	code := func(timeout time.Duration, name string) func(workflow.Context) (string, error) {
		return func(ctx workflow.Context) (string, error) {
			ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{ScheduleToClose: timeout})
			if err := workflow.SignalWorkflow(ctx, "other", name); err != nil {
				return "", err
			}
			return workflow.Execute[string](ctx, "act")
		}
	}
	a := start(t, code(time.Minute, "sig"))
	a.drain(nil)
	for i := range a.events { // change the history to what a build without the limits would have recorded
		switch d := a.events[i].Data.(type) {
		case *history.ActivityScheduled:
			d.ScheduleToClose = int64(long / time.Second)
		case *history.SignalSent:
			d.SignalName = strings.Repeat("s", 300)
		}
	}
	old := define(t, code(long, strings.Repeat("s", 300)))
	if err := replay.Events(old, replay.Options{}, a.events); err != nil {
		t.Errorf("recorded commands do not replay: %v", err)
	}

	tried := start(t, func(ctx workflow.Context) (string, error) {
		o := workflow.ActivityOptions{ScheduleToClose: long}
		if err := workflow.ExecuteActivity(workflow.WithActivity(ctx, o), "act").Get(ctx, nil); err == nil {
			return "long", nil
		}
		return workflow.Execute[string](ctx, "act")
	})
	tried.drain(nil)
	tried.complete(1, "short")
	tried.drain(nil)
	if got := tried.output(); got != "short" {
		t.Errorf("got %v", got)
	}
	tried.replays()
}

// breaksLimits is a workflow whose calls the build before the limits accepted; this build rejects them.
func breaksLimits(ctx workflow.Context) (string, error) {
	retry := &workflow.RetryPolicy{MaxAttempts: 2, NonRetryable: []string{"E\x00"}}
	queue := strings.Repeat("q", 300)
	far := workflow.WithActivity(ctx, workflow.ActivityOptions{
		Retry: retry, WorkerSession: &workflow.WorkerSession{ID: "s", Queue: queue},
	})
	workflow.ExecuteActivity(far, "far")
	workflow.StartChild(workflow.WithChild(ctx, workflow.ChildOptions{Retry: retry, ParentClose: workflow.Abandon}), "kid")
	workflow.AttachChild(ctx, "gone\x00")
	if _, err := workflow.StartSession(ctx, workflow.SessionOptions{Queue: queue, MaxActivities: 1}); err != nil {
		return "", err
	}
	if err := workflow.SignalWorkflow(ctx, "other", "sig\x00"); err != nil {
		return "", err
	}
	workflow.Version(ctx, "change\x00", 1, 1)
	waiting, cancel := workflow.WithCancel(ctx)
	workflow.Go(waiting, func(ctx workflow.Context) { _ = workflow.Signal(ctx, "wait\x00").Receive(ctx) })
	result, err := workflow.Execute[string](ctx, "near")
	cancel()
	return result, err
}

// The build before the limits wrote testdata/limits.json by running breaksLimits.
func TestCommandsThatTheBuildBeforeTheLimitsRecordedReplay(t *testing.T) {
	def := define(t, breaksLimits)
	events := golden(t, "limits.json", nil)
	if err := replay.Events(def, replay.Options{CompareArguments: true}, events); err != nil {
		t.Error(err)
	}
	for _, n := range []int{11, 12, 14} { // the lengths of the history when the run got its workflow tasks
		if err := replay.Events(def, replay.Options{}, events[:n]); err != nil {
			t.Errorf("%d events: %v", n, err)
		}
	}
	fresh := start(t, breaksLimits)
	fresh.drain(nil)
	if d := fresh.failure(); !strings.Contains(d.Message, workflow.ErrInvalidOptions.Error()) {
		t.Errorf("a new run failed with %q", d.Message)
	}
}
