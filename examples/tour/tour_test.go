package tour_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/examples/tour"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
	"github.com/sojourn-run/sojourn/workflowtest"
)

func TestBasketIsPaidOnceTheBankAgrees(t *testing.T) {
	r := worker.NewRegistry()
	tour.Register(r)
	r.ReplaceActivity("charge", func(_ context.Context, amount int) error {
		if amount > 10 {
			return errors.New("too much")
		}
		return nil
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		basket := env.Start(tour.Basket, 2)
		if n, err := workflowtest.Update[int](basket, "add", "milk"); err != nil || n != 1 {
			t.Errorf("got %d, %v", n, err)
		}
		if _, err := workflowtest.Update[any](basket, "pay", 11); err == nil {
			t.Error("the bank was not asked")
		}
		time.Sleep(24 * time.Hour) // takes no real time: the clock advances when everything waits
		if _, err := workflowtest.Update[any](basket, "pay", 7); err != nil {
			t.Error(err)
		}
		if items, err := workflowtest.Result[[]string](basket); err != nil || !slices.Equal(items, []string{"milk"}) {
			t.Errorf("got %q, %v", items, err)
		}
	})
}

// A semaphore of two lets two of five activities run at the same time.
func TestLimitedRunsAtMostTwoActivitiesAtATime(t *testing.T) {
	r := worker.NewRegistry()
	tour.Register(r)
	var running, most atomic.Int64
	r.ReplaceActivity("say", func(ctx context.Context, what, name string) (string, error) {
		most.Store(max(most.Load(), running.Add(1)))
		defer running.Add(-1)
		time.Sleep(time.Second)
		return what + " " + name, nil
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		lines, err := workflowtest.Result[[]string](env.Start(tour.Limited, []string{"A", "B", "C", "D", "E"}, 2))
		if err != nil || len(lines) != 5 || lines[4] != "hi E" || most.Load() != 2 {
			t.Errorf("got %q, %v; %d at a time", lines, err, most.Load())
		}
	})
}

func TestApprovalEndsWhenItIsCancelled(t *testing.T) {
	r := worker.NewRegistry()
	tour.Register(r)
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		approval := env.Start(tour.Approval)
		approval.RequestCancellation()
		if _, err := workflowtest.Result[string](approval); !errors.Is(err, workflow.ErrCancelled) {
			t.Errorf("got %v", err)
		}
		if by, err := workflowtest.Result[string](env.Start(tour.Approval)); err != nil || by != "nobody approved" {
			// a day later
			t.Errorf("got %q, %v", by, err)
		}
	})
}

// The second attempt begins at the page that the first one did not publish.
func TestPublishingContinuesWhereTheLastAttemptEnded(t *testing.T) {
	r := worker.NewRegistry()
	tour.Register(r)
	var sent []string
	failed := false
	send := tour.Send
	defer func() { tour.Send = send }()
	tour.Send = func(_ context.Context, page string) error {
		if page == "three" && !failed {
			failed = true
			return errors.New("the printer is jammed")
		}
		sent = append(sent, page)
		return nil
	}
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		run := env.Start(tour.Publication, []string{"one", "two", "three", "four"})
		if _, err := workflowtest.Result[any](run); err != nil {
			t.Error(err)
		}
		if want := []string{"one", "two", "three", "four"}; !slices.Equal(sent, want) || !failed {
			t.Errorf("sent %q, want %q", sent, want)
		}
	})
}
