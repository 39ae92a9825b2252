package broker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// startOld starts a run as an earlier build without naming rules did.
func (a *app) startOld(id, queue string) {
	a.t.Helper()
	key := engine.WorkflowKey{Namespace: "default", ID: id}
	_, err := a.store.Commit(a.t.Context(), store.Transaction{
		Needs: store.Keys{Workflows: []engine.WorkflowKey{key}},
		Decide: func(_ store.Rows, now time.Time) (store.Writes, error) {
			d := engine.DecideStart(engine.Start{
				RunID: engine.DerivedRunID(id, 1, now), Number: 1, OldNames: true, Request: protocol.StartRequest{
					Namespace: "default", WorkflowID: id, WorkflowType: "wf", TaskQueue: queue,
				},
			}, now)
			return store.Writes{
				Runs: []engine.Decision{d}, Workflows: []engine.Workflow{{
					Namespace: "default", ID: id, RunID: d.Next.ID, Runs: 1,
				}},
			}, nil
		},
	})
	if err != nil {
		a.t.Fatal(err)
	}
}

// refusedAt reports whether an error names a member, and the character and its position in it.
func refusedAt(err error, member, character string, position int) bool {
	return err != nil && (protocol.ReasonOf(err) == protocol.ReasonValidation ||
		protocol.ReasonOf(err) == protocol.ReasonInvalidSession) && strings.Contains(err.Error(), member) &&
		strings.Contains(err.Error(), character) && strings.Contains(err.Error(), fmt.Sprintf("character %d", position))
}

func TestNewNamesWithUnreadableCharactersAreRefused(t *testing.T) {
	a := newApp(t)
	a.register("w")
	ctx := t.Context()
	spec := &protocol.ScheduleSpec{Cron: []string{"@hourly"}}
	members := map[string]func(name string) error{
		"workflow_id": func(name string) error {
			_, err := a.Start(ctx, protocol.StartRequest{WorkflowID: name, WorkflowType: "wf"})
			return err
		},
		"workflow_type": func(name string) error {
			_, err := a.Start(ctx, protocol.StartRequest{WorkflowType: name})
			return err
		},
		"task_queue": func(name string) error {
			_, err := a.Start(ctx, protocol.StartRequest{WorkflowType: "wf", TaskQueue: name})
			return err
		},
		"build_id": func(name string) error {
			_, err := a.Start(ctx, protocol.StartRequest{WorkflowType: "wf", BuildID: name})
			return err
		},
		"activity_type": func(name string) error {
			_, err := a.StartActivity(ctx, protocol.ActivityRequest{ActivityType: name})
			return err
		},
		"session_id": func(name string) error {
			_, err := a.StartActivity(ctx, protocol.ActivityRequest{
				ActivityType: "greet", ActivityOptions: protocol.ActivityOptions{SessionID: name},
			})
			return err
		},
		"session_id of the verb": func(name string) error {
			_, err := a.CreateSession(ctx, protocol.SessionCreate{
				WorkerID: "w", SessionOptions: protocol.SessionOptions{SessionID: name},
			})
			return err
		},
		"action.task_queue": func(name string) error {
			_, err := a.CreateSchedule(ctx, protocol.ScheduleRequest{
				Spec: spec, Action: &protocol.ScheduleAction{WorkflowType: "wf", TaskQueue: name},
			})
			return err
		},
		"task_queues.1": func(name string) error {
			_, err := a.Register(ctx, protocol.RegisterRequest{TaskQueues: []string{"a", name}, WorkflowTypes: []string{"wf"}})
			return err
		},
		"worker_id": func(name string) error {
			_, err := a.Register(ctx, protocol.RegisterRequest{WorkerID: name, TaskQueue: "a", WorkflowTypes: []string{"wf"}})
			return err
		},
		"supported_workflow_types.0": func(name string) error {
			_, err := a.Register(ctx, protocol.RegisterRequest{TaskQueue: "a", WorkflowTypes: []string{name}})
			return err
		},
		"supported_activity_types.0": func(name string) error {
			_, err := a.Register(ctx, protocol.RegisterRequest{TaskQueue: "a", ActivityTypes: []string{name}})
			return err
		},
	}
	const bad = "\u0001\u0085\u200b\u2028\u2029\u2060\ufeff\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
	for member, call := range members {
		field, _, _ := strings.Cut(member, " ")
		for _, r := range bad {
			if err := call("ä1" + string(r) + "b"); !refusedAt(err, field, fmt.Sprintf("%U", r), 3) {
				t.Errorf("%s with %U: %v", member, r, err)
			}
		}
		if err := call(" \u3000"); err == nil {
			t.Errorf("%s of white space only is accepted", member)
		}
		for i, good := range []string{"a\u200db", "a\u200cb", "ä ö/ü", "日本", "a\u00a0b"} {
			if err := call(good + fmt.Sprint(i)); err != nil {
				t.Errorf("%s %q: %v", member, good, err)
			}
		}
		ids := member == "workflow_id"
		for _, c := range []string{"#", "?"} {
			switch err := call("x-7" + c + "1" + member); {
			case ids && !refusedAt(err, member, c, 4):
				t.Errorf("%s with %s: %v", member, c, err)
			case !ids && err != nil:
				t.Errorf("%s with %s, which only IDs of workflows and schedules may not have: %v", member, c, err)
			}
		}
	}
	for c, want := range map[string]string{"#": "#", "?": "?", "\u200b": "U+200B", "/": "/"} {
		for member, request := range map[string]protocol.ScheduleRequest{
			"schedule_id":        {ID: "x-7" + c, Spec: spec, Action: &protocol.ScheduleAction{WorkflowType: "wf"}},
			"action.workflow_id": {Spec: spec, Action: &protocol.ScheduleAction{WorkflowType: "wf", WorkflowID: "x-7" + c}},
		} {
			if _, err := a.CreateSchedule(ctx, request); !refusedAt(err, member, want, 4) {
				t.Errorf("%s with %s: %v", member, c, err)
			}
		}
	}
	_, err := a.Start(ctx, protocol.StartRequest{WorkflowID: "x#1", WorkflowType: "wf", Cron: "@hourly"})
	if !refusedAt(err, "workflow_id", "#", 2) {
		t.Errorf("a start with cron: %v", err)
	}
}

func TestAChildWithAnUnreadableIDIsRefusedToNewRunsOnly(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		children := func(id string) protocol.Command {
			c := child(engine.Abandon)
			c.WorkflowID = id
			return c
		}
		a.start("new")
		task := a.poll("w", protocol.KindWorkflow, 5)
		for _, c := range []struct {
			command           protocol.Command
			member, character string
		}{
			{children("ab#"), "commands.0.workflow_id", "#"},
			{children("ab?"), "commands.0.workflow_id", "?"},
			{children("ab\u200b"), "commands.0.workflow_id", "U+200B"},
			{protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "ab\u2060"}, "commands.0.activity_type", "U+2060"},
			{protocol.Command{Type: protocol.ContinueAsNew, Queue: "ab\u202e"}, "commands.0.queue", "U+202E"},
			{inSession("ab\ufeff"), "commands.0.session_id", "U+FEFF"},
		} {
			if out := a.decide(task, c.command); !refusedAt(out.Err, c.member, c.character, 3) {
				t.Errorf("%+v: %v", c, out.Err)
			}
		}
		a.ok(a.decide(task, children("ab\u200d"), done()))

		a.startOld("old#1", "default")
		task = a.poll("w", protocol.KindWorkflow, 5)
		for task.Workflow.WorkflowID != "old#1" { // the child of the new run
			a.ok(a.decide(task, done()))
			task = a.poll("w", protocol.KindWorkflow, 5)
		}
		continueAsNew := protocol.Command{Type: protocol.ContinueAsNew}
		a.ok(a.decide(task, children("old\u200b#c"), continueAsNew))
		started := map[string]*protocol.Task{}
		for range 2 {
			next := a.poll("w", protocol.KindWorkflow, 5)
			started[next.Workflow.WorkflowID] = next
		}
		if started["old\u200b#c"] == nil || started["old#1"] == nil {
			t.Fatalf("the child and the next run of an old run: %v", started)
		}
		// The next run of an old run has the same code, and so the same names.
		a.ok(a.decide(started["old#1"], children("old#d"), done()))
		if out := a.decide(started["old\u200b#c"], children("old#e")); !refusedAt(out.Err, "workflow_id", "#", 4) {
			t.Errorf("a new child that starts a child: %v", out.Err)
		}
	})
}

func TestRunsWithInvisibleCharactersInNamesContinue(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		ctx := t.Context()
		const id, queue = "old#1?\u200b", "q\u2060"
		a.startOld(id, queue)
		// The worker of an open run, and a worker with a registered name, may register again; for others the naming
		// rules apply.
		register := func(worker, queue string) error {
			_, err := a.Register(ctx, protocol.RegisterRequest{
				WorkerID: worker, TaskQueue: queue, WorkflowTypes: []string{"wf"}, AnyActivity: true,
			})
			return err
		}
		if err := register("w", queue); err != nil {
			t.Fatal(err)
		}
		if err := register("v", "r\u2060"); !refusedAt(err, "task_queues.0", "U+2060", 2) {
			t.Errorf("a queue that nothing uses: %v", err)
		}
		target := protocol.Target{WorkflowID: id}
		if v := a.view(target); v.WorkflowID != id {
			t.Errorf("describe: %+v", v)
		}
		out, err := a.Start(ctx, protocol.StartRequest{WorkflowID: id, WorkflowType: "wf", DuplicatePolicy: "use-existing"})
		if err != nil || out.Outcome != "returned_existing_active" {
			t.Errorf("a start of the existing workflow: %+v, %v", out, err)
		}
		_, err = a.Start(ctx, protocol.StartRequest{WorkflowID: id, WorkflowType: "wf"})
		if protocol.ReasonOf(err) != protocol.ReasonDuplicateStart {
			t.Errorf("a second start of it: %v", err)
		}
		if _, err := a.Signal(ctx, protocol.SignalRequest{Target: target, SignalName: "s"}); err != nil {
			t.Errorf("signal: %v", err)
		}
		for _, query := range []string{id, "WorkflowId = '" + id + "'", "TaskQueue = '" + queue + "'", "old#1", "a\u200d"} {
			want := 1
			if query == "a\u200d" {
				want = 0
			}
			l, err := a.List(ctx, protocol.ListRequest{Query: query})
			if err != nil || len(l.Workflows) != want {
				t.Errorf("list of %q: %d runs, %v", query, len(l.Workflows), err)
			}
		}
		task := a.poll("w", protocol.KindWorkflow, 5)
		a.ok(a.decide(task, protocol.Command{Type: protocol.ContinueAsNew}))
		task = a.poll("w", protocol.KindWorkflow, 5)
		a.ok(a.decide(task, greet()))
		a.ok(a.result(a.poll("w", protocol.KindActivity, 5), "x"))
		if _, err := a.Terminate(ctx, protocol.EndRequest{Target: target}); err != nil {
			t.Errorf("terminate: %v", err)
		}
		first := protocol.HistoryQuery{Target: protocol.Target{RunID: out.RunID}}
		events := must[protocol.HistoryPage](t)(a.History(ctx, first))
		b := newApp(t)
		in := must[protocol.ImportResponse](t)(b.Import(ctx, protocol.ImportRequest{Events: events.Events}))
		subjects := make([]string, len(in.Warnings))
		for i, w := range in.Warnings {
			subjects[i] = w.Code + " " + w.Subject
		}
		if want := []string{"name_not_allowed workflow_id", "name_not_allowed task_queue"}; !slices.Equal(subjects, want) {
			t.Errorf("the import warns of %q, want %q", subjects, want)
		}
	})
}

func TestAScheduleFiresUnderItsOldNames(t *testing.T) {
	a := newApp(t)
	ctx := t.Context()
	in := protocol.ScheduleRequest{
		ID: "s", Spec: &protocol.ScheduleSpec{Cron: []string{"@hourly"}},
		Action: &protocol.ScheduleAction{WorkflowType: "wf"},
	}
	must[protocol.ScheduleReceipt](t)(a.CreateSchedule(ctx, in))
	const old = "wf\u200b"
	a.rewrite(engine.ScheduleKey{Namespace: "default", ID: "s"}, func(s *engine.Schedule) {
		s.Action.WorkflowType, s.NameRules = old, 0
	})
	action := protocol.ScheduleAction{WorkflowType: old, TaskQueue: "other"}
	must[protocol.ScheduleReceipt](t)(a.UpdateSchedule(ctx, protocol.ScheduleRequest{ID: "s", Action: &action}))
	fired := must[protocol.ScheduleReceipt](t)(a.TriggerSchedule(ctx, "", "s", ""))
	if v := a.view(protocol.Target{WorkflowID: fired.WorkflowID}); v.WorkflowType != old {
		t.Errorf("the firing started %+v", v)
	}
	action.WorkflowType = "wf\u200b2"
	_, err := a.UpdateSchedule(ctx, protocol.ScheduleRequest{ID: "s", Action: &action})
	if !refusedAt(err, "action.workflow_type", "U+200B", 3) {
		t.Errorf("another name: %v", err)
	}
}

// rewrite changes the stored schedule to what an earlier build may have stored.
func (a *app) rewrite(k engine.ScheduleKey, edit func(*engine.Schedule)) {
	a.t.Helper()
	_, err := a.store.Commit(context.Background(), store.Transaction{
		Needs: store.Keys{Schedules: []engine.ScheduleKey{k}},
		Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
			next := *rows.Schedule(k)
			edit(&next)
			next.Version++
			return store.Writes{Schedules: []engine.ScheduleDecision{{After: next.Version - 1, Next: &next}}}, nil
		},
	})
	if err != nil {
		a.t.Fatal(err)
	}
}
