package workflow_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// everyInteraction is a workflow that uses children, updates, queries, conditions, memo and search attributes.
func everyInteraction(ctx workflow.Context, most int) (string, error) {
	var lines []string
	workflow.HandleUpdate(ctx, "say", func(ctx workflow.Context, text string) (int, error) {
		if text == "stop" {
			return 0, errors.New("never")
		}
		lines = append(lines, text)
		workflow.Go(ctx, func(ctx workflow.Context) { _ = workflow.ExecuteActivity(ctx, "echo", text).Get(ctx, nil) })
		return len(lines), nil
	}, workflow.UpdateOptions{Validate: func(_ workflow.Context, text string) error {
		if text == "" {
			return errors.New("empty")
		}
		return nil
	}})
	workflow.HandleQuery(ctx, "said", func(workflow.Context) ([]string, error) { return lines, nil })
	if err := workflow.UpsertMemo(ctx, map[string]any{"most": most}); err != nil {
		return "", err
	}
	one, two := workflow.StartChild(ctx, "sub", 1), workflow.StartChild(ctx, "sub", 2)
	under, cancel := workflow.WithCancel(ctx)
	three := workflow.StartChild(under, "sub", 3)
	met, err := workflow.UntilTimeout(ctx, time.Minute, func() bool { return len(lines) >= most })
	if err != nil {
		return "", err
	}
	cancel()
	if err := workflow.UpsertSearchAttributes(ctx, map[string]any{"met": met}); err != nil {
		return "", err
	}
	joined := workflow.Join(ctx, one, two)
	return fmt.Sprint(lines, met, joined, three.Get(ctx, nil)), nil
}

func playInteractions(t *testing.T) *app {
	a := start(t, everyInteraction, 2)
	a.drain(nil)
	a.update("say", "one")
	a.drain(nil)
	a.update("say", "")
	a.update("say", "stop")
	a.drain(nil)
	a.child(3, protocol.RunCompleted, 5, nil)
	a.update("say", "two")
	a.drain(nil)
	a.child(2, protocol.RunFailed, nil, &history.Failure{Message: "broke", ExceptionType: "Oops"})
	a.drain(nil)
	return a
}

func TestTalkOfAnOlderBuildStillReplays(t *testing.T) {
	a := playInteractions(t)
	want(t, "output", a.output(), any(
		`[one two] true child workflow "sub": Oops: broke child workflow "sub": Cancelled: cancelled by the parent`))
	a.replays()
	a.events = golden(t, "talk.json", a.events)
	a.batches = nil
	a.replays()
	got, err := a.ask(len(a.events), "said")
	want(t, "said", got, any([]any{"one", "two"}))
	want(t, "error", err, nil)
}
