package workflow_test

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

func TestCallsWithUnreadableNamesFailInNewRunsOnly(t *testing.T) {
	calls := map[string]func(workflow.Context) error{
		"workflow_id: contains # at character 5": func(ctx workflow.Context) error {
			ctx = workflow.WithChild(ctx, workflow.ChildOptions{WorkflowID: "kid-#1", ParentClose: workflow.Abandon})
			return workflow.StartChild(ctx, "sub").Get(ctx, nil)
		},
		"workflow_type: contains U+200B (zero width space) at character 4": func(ctx workflow.Context) error {
			return workflow.StartChild(ctx, "sub\u200b").Get(ctx, nil)
		},
		"activity_type: contains U+2060": func(ctx workflow.Context) error {
			return workflow.ExecuteActivity(ctx, "act\u2060").Get(ctx, nil)
		},
		"queue: contains U+202E": func(ctx workflow.Context) error {
			ctx = workflow.WithActivity(ctx, workflow.ActivityOptions{Queue: "q\u202e"})
			return workflow.ExecuteActivity(ctx, "act").Get(ctx, nil)
		},
	}
	for text, call := range calls {
		code := func(ctx workflow.Context) error { return call(ctx) }
		fresh := start(t, code)
		fresh.drain(nil)
		if d, ok := fresh.events[len(fresh.events)-1].Data.(*history.WorkflowFailed); !ok ||
			!strings.Contains(d.Message, workflow.ErrInvalidOptions.Error()) || !strings.Contains(d.Message, text) {
			t.Errorf("%s: a new run ended with %+v", text, fresh.events[len(fresh.events)-1].Data)
		}
		old := startRun(t, define(t, code), engine.Start{
			RunID: "OLD", Number: 1, OldNames: true, Request: protocol.StartRequest{
				Namespace: "default", WorkflowID: "wf", WorkflowType: "flow", TaskQueue: "default",
			},
		})
		old.drain(nil)
		opened := false
		for _, e := range old.events {
			switch e.Data.(type) {
			case *history.ActivityScheduled, *history.ChildWorkflowScheduled:
				opened = true
			}
		}
		if !opened {
			t.Errorf("%s: an old run did not open the step", text)
		}
		old.replays()
	}
}

func startsOldNames(ctx workflow.Context) error {
	kid := workflow.WithChild(ctx, workflow.ChildOptions{WorkflowID: "order-7#1", ParentClose: workflow.Abandon})
	workflow.StartChild(kid, "sub\u200b")
	return workflow.ExecuteActivity(workflow.InSession(ctx, "s\u2060"), "act\u2028").Get(ctx, nil)
}

func TestNamesThatTheBuildBeforeTheRulesRecordedReplay(t *testing.T) {
	a := startRun(t, define(t, startsOldNames), engine.Start{
		RunID: "RUN", Number: 1, OldNames: true, Request: protocol.StartRequest{
			Namespace: "default", WorkflowID: "wf", WorkflowType: "flow", TaskQueue: "default",
		},
	})
	a.drain(nil)
	// The build before the naming rules wrote testdata/names.json.
	a.events = golden(t, "names.json", a.events)
	a.batches = nil
	a.replays()
}
