package broker_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// failed returns the WorkflowFailed event of a run.
func (a *app) failed(run string) *history.WorkflowFailed {
	a.t.Helper()
	p := must[protocol.HistoryPage](a.t)(a.History(
		a.t.Context(), protocol.HistoryQuery{Target: protocol.Target{RunID: run}},
	))
	d, ok := p.Events[len(p.Events)-1].Data.(*history.WorkflowFailed)
	if !ok {
		a.t.Fatalf("the run ended with %+v", p.Events[len(p.Events)-1])
	}
	return d
}

// The app removes NUL characters and invalid UTF-8 from error texts and truncates each to 16 KB, in every field of an
// outcome. It stores other texts unchanged.
func TestErrorTextsAreCleanedAndTruncated(t *testing.T) {
	bad := "a\x00b\xffc" + strings.Repeat("ü", 20_000)
	exception, err := json.Marshal(map[string]any{"type": bad, "message": bad, "details": map[string]any{"n": 1}})
	if err != nil {
		t.Fatal(err)
	}
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		check := func(where, text string) {
			t.Helper()
			if len(text) > protocol.MaxErrorText || !strings.HasPrefix(text, "ab\uFFFDcüü") || !strings.HasSuffix(text, "ü…") {
				t.Errorf("%s has %d bytes: %.20q", where, len(text), text)
			}
		}

		run := a.start("fails").RunID
		task := a.poll("w", protocol.KindWorkflow, 1)
		a.decide(task, protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "greet"})
		attempt := a.poll("w", protocol.KindActivity, 1).Activity
		a.taken(a.complete(protocol.CompleteItem{
			Kind: protocol.KindActivity, TaskID: attempt.TaskID, Owner: "w", AttemptID: attempt.AttemptID,
			Failure: &protocol.Failure{Message: bad, Type: bad, Class: bad},
		}))
		failed := a.failure("fails", 1)
		check("the message of an activity", failed.Message)
		check("the type of an activity's failure", failed.ExceptionType)
		check("the class of an activity's failure", failed.ExceptionCls)

		task = a.poll("w", protocol.KindWorkflow, 1)
		item := protocol.CompleteItem{
			Kind: protocol.KindWorkflow, TaskID: task.Workflow.TaskID, Owner: "w", Attempt: task.Workflow.Attempt,
		}
		item.Failure = &protocol.Failure{Message: bad, StackTrace: bad}
		a.taken(a.complete(item))
		check("the problem of a workflow task", a.run(run).Task.Problem)

		task = a.poll("w", protocol.KindWorkflow, 1)
		commands := []protocol.Command{{
			Type: protocol.FailWorkflow, Message: bad, ExceptionType: bad, ExceptionClass: bad, Exception: exception,
		}}
		a.decide(task, commands...)
		if commands[0].Message != bad {
			t.Error("the commands of the sender were changed")
		}
		end := a.failed(run)
		check("the message of a workflow", end.Message)
		check("the type of a workflow's failure", end.ExceptionType)
		var object struct {
			Message string
			Details map[string]int
		}
		if err := json.Unmarshal(end.Exception, &object); err != nil || object.Details["n"] != 1 {
			t.Errorf("the exception is %.100s: %v", end.Exception, err)
		}
		check("the message of an exception", object.Message)

		other := a.start("ordinary").RunID
		const text = "card declined: «no credit»"
		a.decide(a.poll("w", protocol.KindWorkflow, 1), protocol.Command{Type: protocol.FailWorkflow, Message: text})
		if got := a.failed(other).Message; got != text {
			t.Errorf("an ordinary text is stored as %q", got)
		}
	})
}

// The same applies to error texts about sessions: the cause of a rebuild, in an outcome and in a heartbeat, and the
// reason of a release or close. Meanwhile another activity of the worker completes.
func TestErrorTextsOfSessionsAreCleanedAndTruncated(t *testing.T) {
	const bad = "a\x00b\xffc"
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("a", "a1", time.Minute, time.Minute, 10)
		run := a.start("one").RunID
		a.decide(a.poll("flow", protocol.KindWorkflow, 5), inSession("s1"), inSession("s2"), inSession("s3"))
		lost := &protocol.Recovered{Rebuild: "load", Cause: bad, Reason: "missing_state", Retries: 1}
		for i := range 3 {
			task := a.poll("a", protocol.KindActivity, 5).Activity
			if i == 1 {
				beat := must[protocol.HeartbeatResponse](t)(a.HeartbeatTask(t.Context(), protocol.HeartbeatRequest{
					TaskID: task.TaskID, Owner: "a", AttemptID: task.AttemptID, Rebuild: lost,
				}))
				if !beat.Renewed {
					t.Errorf("a heartbeat with the cause of a rebuild: %+v", beat)
				}
			}
			item := protocol.CompleteItem{
				Kind: protocol.KindActivity, TaskID: task.TaskID, Owner: "a", AttemptID: task.AttemptID,
			}
			if i < 2 {
				item.Recovered = lost
			}
			a.taken(a.complete(item))
		}
		page := must[protocol.HistoryPage](t)(a.History(
			t.Context(), protocol.HistoryQuery{Target: protocol.Target{RunID: run}},
		))
		rebuilds, completed := 0, 0
		for _, e := range page.Events {
			switch d := e.Data.(type) {
			case *history.SessionRecovered:
				if rebuilds++; d.Cause != "ab\uFFFDc" {
					t.Errorf("the cause of a rebuild is %q", d.Cause)
				}
			case *history.ActivityCompleted:
				completed++
			}
		}
		if rebuilds != 2 || completed != 3 {
			t.Errorf("history has %d rebuilds and %d completed activities", rebuilds, completed)
		}
		for id, end := range map[string]func(protocol.SessionVerb) (protocol.SessionResponse, error){
			"s1": func(in protocol.SessionVerb) (protocol.SessionResponse, error) {
				return a.ReleaseSession(t.Context(), in)
			},
			"s2": func(in protocol.SessionVerb) (protocol.SessionResponse, error) {
				return a.CloseSession(t.Context(), in)
			},
		} {
			must[protocol.SessionResponse](t)(end(protocol.SessionVerb{WorkerID: "a", SessionID: id, Reason: bad}))
			v := must[protocol.SessionView](t)(a.Session(t.Context(), "", id))
			if raw, err := json.Marshal(v.Timeline); err != nil || !strings.Contains(string(raw), "ab\uFFFDc") {
				t.Errorf("the timeline of %s: %s %v", id, raw, err)
			}
		}
	})
}
