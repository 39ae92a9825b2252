package approval_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/examples/approval"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/workflowtest"
)

func TestAnExpenseWaitsForADecision(t *testing.T) {
	r := worker.NewRegistry()
	approval.Register(r)
	asked := make(chan string, 1)
	r.ReplaceActivity("ask_manager", func(_ context.Context, _ int, awakeable string) error {
		asked <- awakeable
		return nil
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		for want, decide := range map[string]func(id string) error{
			"approved: true, by Ada": func(id string) error {
				return env.CompleteAwakeable(id, approval.Decision{Approved: true, By: "Ada"})
			},
			"rejected: too much": func(id string) error {
				return env.FailAwakeable(id, activity.NewError("Rejected", "too much"))
			},
			"nobody decided": func(id string) error {
				time.Sleep(73 * time.Hour)
				if err := env.CompleteAwakeable(id, approval.Decision{}); err == nil {
					return errors.New("a late decision was accepted")
				}
				return nil
			},
		} {
			run := env.Start(approval.Expense, 700)
			if err := decide(<-asked); err != nil {
				t.Error(err)
			}
			if got, err := workflowtest.Result[string](run); err != nil || got != want {
				t.Errorf("got %q, %v, want %q", got, err, want)
			}
		}
	})
}
