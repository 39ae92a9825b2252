package workflowtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
	"github.com/sojourn-run/sojourn/workflowtest"
)

// Charge is an activity that would call a bank. Tests replace it.
func Charge(context.Context, string, int) (string, error) { return "", errors.New("no bank here") }

// Ship is a child workflow of Order.
func Ship(ctx workflow.Context, what string) (string, error) {
	return what + " shipped", workflow.Sleep(ctx, 48*time.Hour)
}

// Order collects items by updates, charges them if a signal approves within a week, and ships them.
func Order(ctx workflow.Context, customer string) (string, error) {
	total := 0
	workflow.HandleUpdate(ctx, "add", func(ctx workflow.Context, price int) (int, error) {
		if err := workflow.Sleep(ctx, time.Minute); err != nil {
			return 0, err
		}
		total += price
		return total, nil
	}, workflow.UpdateOptions{Validate: func(_ workflow.Context, price int) error {
		if price < 0 {
			return activity.NewError("negative", "a price is not negative", activity.Details(price))
		}
		return nil
	}})
	workflow.HandleQuery(ctx, "total", func(workflow.Context) (int, error) { return total, nil })
	approve := workflow.Signal(ctx, "approve")
	switch first, err := workflow.Select(ctx, approve, workflow.NewTimer(ctx, 7*24*time.Hour)); {
	case err != nil:
		return "", err
	case first == 1:
		return "forgotten", nil
	}
	charged := workflow.WithActivity(ctx, workflow.ActivityOptions{
		Retry: &workflow.RetryPolicy{
			MaxAttempts: 5, Backoff: workflow.ExponentialBackoff(time.Minute, time.Hour), NonRetryable: []string{"no credit"},
		},
	})
	receipt, err := workflow.Execute[string](charged, Charge, customer, total)
	if err != nil {
		return "", err
	}
	shipped, err := workflow.ExecuteChild[string](ctx, Ship, receipt)
	return shipped, err
}

func orders() *worker.Registry {
	r := worker.NewRegistry()
	r.Workflow("order", Order, worker.WorkflowOptions{Validated: []string{"add"}})
	r.Workflow("ship", Ship)
	r.Activity("charge", Charge)
	return r
}

// The end of a session that was never started returns nil and has no effect, as in production.
func TestTheEndOfASessionThatWasNeverStartedReturnsNil(t *testing.T) {
	r := worker.NewRegistry()
	r.Workflow("ends", func(ctx workflow.Context) (string, error) {
		if err := (&workflow.Session{ID: "never"}).End(ctx); err != nil {
			return "", err
		}
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
		if err != nil {
			return "", err
		}
		text, err := workflow.ExecuteIn[string](ctx, s, "say")
		if err != nil {
			return "", err
		}
		return text, errors.Join((&workflow.Session{ID: "never"}).End(ctx), s.End(ctx))
	})
	r.Activity("say", func(context.Context) (string, error) { return "hello", nil })
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		run := env.Start("ends")
		text, err := workflowtest.Result[string](run)
		if err != nil || text != "hello" {
			t.Errorf("got %q, %v", text, err)
		}
		ends := 0
		for _, e := range run.History() {
			if e.Type == "SessionEnded" {
				ends++
			}
		}
		if ends != 1 {
			t.Errorf("%d ends are recorded, want the one of the session that was started", ends)
		}
	})
}

func TestWorkflowRunsWithDoublesInVirtualTime(t *testing.T) {
	r := orders()
	tries := 0
	r.ReplaceActivity("charge", func(_ context.Context, customer string, total int) (string, error) {
		if tries++; tries < 3 {
			return "", errors.New("try again")
		}
		return customer + "'s order", nil
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		began := time.Now()
		w := env.Start(Order, "Ann")
		for i, price := range []int{5, 7} {
			if total, err := workflowtest.Update[int](w, "add", price); err != nil || total != []int{5, 12}[i] {
				t.Errorf("add %d: got %d, %v", price, total, err)
			}
		}
		var f *workflowtest.Failure
		if _, err := workflowtest.Update[int](w, "add", -1); !errors.As(err, &f) || f.Status != "rejected" ||
			f.Type != "negative" {
			t.Errorf("got %v", err)
		} else if n := 0; f.DecodeDetails(&n) != nil || n != -1 {
			t.Errorf("details: got %d", n)
		}
		time.Sleep(24 * time.Hour)
		if total, err := workflowtest.Query[int](w, "total"); err != nil || total != 12 {
			t.Errorf("total: got %d, %v", total, err)
		}
		w.Signal("approve")
		got, err := workflowtest.Result[string](w)
		if err != nil || got != "Ann's order shipped" || tries != 3 {
			t.Errorf("got %q, %v after %d tries", got, err, tries)
		}
		if took := time.Since(began).Round(time.Minute); took != 72*time.Hour+5*time.Minute {
			// A day between the updates, two retry backoffs and the shipping.
			t.Errorf("it took %s", took)
		}
	})
}

func TestFailuresOfWorkflowsAreTyped(t *testing.T) {
	r := orders()
	r.ReplaceActivity("charge", func(context.Context, string, int) (string, error) {
		return "", activity.NewError("no credit", "51 are missing", activity.Details(51))
	})
	r.ReplaceWorkflow("ship", func(workflow.Context, string) (string, error) {
		return "", errors.New("never comes to this")
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		w := env.Start("order", "Ann")
		w.Signal("approve")
		_, err := workflowtest.Result[string](w)
		var f *workflowtest.Failure
		n := 0
		if !errors.As(err, &f) || f.Status != "failed" || f.Type != "no credit" ||
			!strings.Contains(f.Message, "51 are missing") || f.DecodeDetails(&n) != nil || n != 51 {
			t.Errorf("got %+v, %v", f, err)
		}
		w = env.Start("order", "Bob")
		if got, err := workflowtest.Result[string](w); err != nil || got != "forgotten" {
			t.Errorf("got %q, %v", got, err)
		}
		w = env.Start("order", "Eve")
		w.RequestCancellation()
		if got, err := workflowtest.Result[string](w); !errors.As(err, &f) || f.Status != "cancelled" ||
			!errors.Is(err, workflow.ErrCancelled) || errors.Is(err, workflow.ErrTimedOut) {
			t.Errorf("got %q, %v", got, err)
		}
		first := w.History()[0]
		if first.Type != "WorkflowStarted" || !strings.Contains(string(first.Attributes), `"workflow_type":"order"`) {
			t.Errorf("history begins with %s %s", first.Type, first.Attributes)
		}
	})
}

func TestRunsThatContinueAsNewAreFollowed(t *testing.T) {
	r := worker.NewRegistry()
	r.Workflow("count", func(ctx workflow.Context, n int) (int, error) {
		if n == 3 {
			return n, nil
		}
		return 0, workflow.ContinueAsNew(ctx, n+1)
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		if n, err := workflowtest.Result[int](env.Start("count", 0)); err != nil || n != 3 {
			t.Errorf("got %d, %v", n, err)
		}
	})
}

func TestChildrenOfAnEarlierRunAreAttachedTo(t *testing.T) {
	r := worker.NewRegistry()
	r.Workflow("slow", func(ctx workflow.Context) (string, error) { return "slept", workflow.Sleep(ctx, time.Hour) })
	r.Workflow("parent", func(ctx workflow.Context) (string, error) {
		if workflow.Info(ctx).RunNumber == 1 {
			workflow.StartChild(workflow.WithChild(ctx, workflow.ChildOptions{WorkflowID: "awaited"}), "slow")
			return "", workflow.ContinueAsNew(ctx)
		}
		if err := workflow.AttachChild(ctx, "nobody").Get(ctx, nil); !errors.Is(err, workflow.ErrChildNotFound) {
			return "", fmt.Errorf("child without a parent: %w", err)
		}
		text, err := workflow.Await[string](ctx, workflow.AttachChild(ctx, "awaited"))
		if err != nil || workflow.Sleep(ctx, time.Hour) != nil {
			return "", err
		}
		second, err := workflow.Await[string](ctx, workflow.AttachChild(ctx, "awaited"))
		return text + ", " + second, err
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		if text, err := workflowtest.Result[string](env.Start("parent")); err != nil || text != "slept, slept" {
			t.Errorf("got %q, %v", text, err)
		}
	})
}

// A session with a definition is set up before its first activity, and its activities share the state.
func TestSessionsAreSetUpByTheirDefinition(t *testing.T) {
	r := worker.NewRegistry()
	setUps := 0
	r.Session("basket", activity.SessionDefinition{SetUp: func(_ context.Context, customer string) (*[]string, error) {
		setUps++
		return &[]string{customer}, nil
	}})
	r.Activity("add", func(ctx context.Context, item string) ([]string, error) {
		basket, err := activity.State[*[]string](ctx)
		if err != nil {
			return nil, err
		}
		*basket = append(*basket, item)
		return *basket, nil
	})
	r.Workflow("shop", func(ctx workflow.Context, customer string) (items []string, err error) {
		in := workflow.InSession(ctx, "basket-"+customer, workflow.SessionDefinition{
			Name: "basket", Arguments: []any{customer},
		})
		for _, item := range []string{"milk", "bread"} {
			if items, err = workflow.Execute[[]string](in, "add", item); err != nil {
				return nil, err
			}
		}
		return items, nil
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		run := env.Start("shop", "Ann")
		items, err := workflowtest.Result[[]string](run)
		if err != nil || !slices.Equal(items, []string{"Ann", "milk", "bread"}) || setUps != 1 {
			t.Errorf("got %q after %d set-ups, %v", items, setUps, err)
		}
		events := 0
		for _, e := range run.History() {
			if e.Type == "SessionSetUp" {
				events++
			}
		}
		if events != 1 {
			t.Errorf("the history has %d events SessionSetUp, want 1", events)
		}
	})
}
