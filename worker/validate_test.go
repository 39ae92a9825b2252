package worker_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// guarded registers a workflow that collects texts from updates like shelf, and rejects some updates.
func guarded(r *worker.Registry) {
	r.Workflow("guarded", func(ctx workflow.Context, most int) (int, error) {
		var texts []string
		update := func(ctx workflow.Context, text string) (int, error) {
			texts = append(texts, text)
			return len(texts), nil
		}
		validate := func(ctx workflow.Context, text string) error {
			switch {
			case len(texts) == most:
				return activity.NewError("full", "the shelf holds no more")
			case text == "acts":
				return workflow.ExecuteActivity(ctx, "hello", text).Get(ctx, nil)
			case text == "panics":
				panic("a bug")
			}
			return nil
		}
		workflow.HandleUpdate(ctx, "put", update, workflow.UpdateOptions{Validate: validate})
		// "push" is not in Validated: its validator runs only when workflow code handles the update.
		workflow.HandleUpdate(ctx, "push", update, workflow.UpdateOptions{Validate: validate})
		workflow.HandleQuery(ctx, "texts", func(workflow.Context) (int, error) { return len(texts), nil })
		err := workflow.Signal(ctx, "close").Receive(ctx)
		return len(texts), err
	}, worker.WorkflowOptions{Validated: []string{"put"}})
}

func TestValidatorsRunBeforeAnUpdateIsAcceptedOverEveryCarrier(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		start(t, a, c, func(o *worker.Options) { guarded(o.Registry) })
		answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "guarded", Input: input(t, 2)})
		if err != nil {
			t.Fatal(err)
		}
		target := protocol.Target{WorkflowID: answer.WorkflowID}
		update := func(name, waitFor string, args ...any) (protocol.UpdateResponse, error) {
			return a.Broker().Update(t.Context(), protocol.UpdateRequest{
				Target: target, UpdateName: name, Input: input(t, args...), WaitFor: waitFor,
			})
		}
		describe := func() protocol.RunView {
			t.Helper()
			v, err := a.View().Describe(t.Context(), target)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		const before = 2 // events before the first update: the code waits for its signal
		eventually(t, "the code waits", func() bool { return describe().HistoryLength == before })
		for _, c := range []struct {
			args   []any
			reason protocol.Reason
			text   string
		}{
			{[]any{7}, protocol.ReasonUpdateRejected, "must be a string, got an integer"},
			{[]any{"acts"}, protocol.ReasonValidatorFailed, workflow.ErrReadOnly.Error()},
			{[]any{"panics"}, protocol.ReasonValidatorFailed, "a bug"},
		} {
			if _, err := update("put", protocol.WaitAccepted, c.args...); protocol.ReasonOf(err) != c.reason ||
				!strings.Contains(err.Error(), c.text) {
				t.Errorf("put %v: got %v", c.args, err)
			}
		}
		for range 2 { // more history than fits into one frame
			if u, err := update("put", protocol.WaitCompleted, strings.Repeat("x", 1_400_000)); err != nil ||
				u.UpdateStatus != "completed" {
				t.Fatalf("put: %+v, %v", u, err)
			}
		}
		_, err = update("put", protocol.WaitAccepted, "one more")
		if protocol.ReasonOf(err) != protocol.ReasonUpdateRejected ||
			!strings.Contains(err.Error(), "the shelf holds no more") {
			t.Errorf("a full shelf: got %v", err)
		}
		if n := describe().HistoryLength - before; n != 6 { // an update has three events: accepted, applied, completed
			t.Errorf("what was rejected left %d events", n-6)
		}
		u, err := update("push", protocol.WaitCompleted, "one more")
		if err != nil || u.UpdateStatus != "failed" || u.Failure.ExceptionType != workflow.TypeUpdateRejected {
			t.Errorf("not declared: got %+v, %v", u, err)
		}
		if q, err := a.Broker().Query(t.Context(), protocol.QueryRequest{Target: target, QueryName: "texts"}); err != nil ||
			string(q.Result) != "2" {
			t.Errorf("a query that was not declared either: got %s, %v", q.Result, err)
		}
		if _, err := update("none", protocol.WaitCompleted); err != nil {
			t.Errorf("an unknown update was not passed to the code: %v", err)
		}
		if _, err := a.Broker().Signal(t.Context(), protocol.SignalRequest{Target: target, SignalName: "close"}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the run ends", func() bool { return describe().Terminal })
		if v := describe(); string(v.Output) != "2" {
			t.Errorf("got %s", v.Output)
		}
	})
}
