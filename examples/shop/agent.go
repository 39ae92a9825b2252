package shop

import (
	"context"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Agent lets a model choose tools until it has an answer. The tools run in a session: on one worker, with shared state.
// The session ends with the run.
func Agent(ctx workflow.Context, goal string, turns int) (string, error) {
	ctx = within(ctx, 5*time.Minute)
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
	if err != nil {
		return "", err
	}
	seen := goal
	for range turns {
		choice, err := workflow.Execute[string](ctx, Call, "model", seen)
		if answer, done := strings.CutPrefix(choice, "answer: "); done || err != nil {
			return answer, err
		}
		if seen, err = workflow.ExecuteIn[string](ctx, s, Tool, choice); err != nil {
			return "", err
		}
	}
	return "no answer", nil
}

// Tool runs a tool and returns everything that the tools of the session have found. After the loss of the worker it
// begins with nothing.
func Tool(ctx context.Context, name string) (string, error) {
	notes, err := activity.GetOrCreate(ctx, "notes", func(context.Context) (*[]string, error) { return &[]string{}, nil })
	if err != nil {
		return "", err
	}
	*notes = append(*notes, name)
	return strings.Join(*notes, " "), nil
}
