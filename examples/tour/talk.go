package tour

import (
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// registerTalk registers the workflows that communicate with children and with clients.
func registerTalk(r *worker.Registry) {
	r.Workflow("tour.family", Family)
	r.Workflow("tour.nursery", Nursery)
	r.Workflow("tour.guardian", Guardian)
	r.Workflow("tour.basket", Basket, worker.WorkflowOptions{Validated: []string{"add"}})
	r.Workflow("tour.countdown", Countdown)
	r.Workflow("tour.labels", Labels)
	r.Workflow("tour.relay", Relay)
}

// Family starts other workflows and waits for their results.
func Family(ctx workflow.Context) (string, error) {
	// by its name, in any language …
	hello, err := workflow.ExecuteChild[string](ctx, "tour.greeting", "child")
	if err != nil {
		return "", err
	}
	// … or its function
	ann, bob := workflow.StartChild(ctx, Join, []string{"Ann"}), workflow.StartChild(ctx, Join, []string{"Bob"})
	if err := workflow.Join(ctx, ann, bob); err != nil {
		return "", err
	}
	both, err := workflow.Await[string](ctx, bob)
	return hello + "; " + both, err
}

// Nursery sets the options of children, and handles their failures.
func Nursery(ctx workflow.Context) (string, error) {
	strict := workflow.WithChild(ctx, workflow.ChildOptions{
		Queue:            "",                                  // that of the parent
		ParentClose:      workflow.TerminateHard,              // when the parent closes; default: the child continues
		ExecutionTimeout: time.Hour,                           // all its runs together
		RunTimeout:       2 * time.Second,                     // one run
		Retry:            nil,                                 // retry policy of failed runs
		Memo:             map[string]any{"asks": "Join"},      // initial memo …
		SearchAttributes: map[string]any{"stage": "approval"}, // … and search attributes
	})
	slow := workflow.StartChild(strict, "tour.approval")
	err := slow.Get(ctx, nil)
	var failed *workflow.ChildError
	switch {
	case errors.Is(err, workflow.ErrTimedOut):
		return "nobody came", nil
	case errors.Is(err, workflow.ErrCancelled), errors.Is(err, workflow.ErrTerminated):
		return "somebody ended it", nil
	case errors.As(err, &failed):
		return fmt.Sprintf("%s of %s: %s", failed.Type, failed.WorkflowID, failed.Message), nil
	}
	return "approved", err
}

// Guardian continues as a new run while its child is open, and awaits the child's result in the new run.
func Guardian(ctx workflow.Context, id string) (string, error) {
	if workflow.Info(ctx).RunNumber == 1 {
		workflow.StartChild(workflow.WithChild(ctx, workflow.ChildOptions{WorkflowID: id}), "tour.greeting", "child")
		return "", workflow.ContinueAsNew(ctx, id)
	}
	text, err := workflow.Await[string](ctx, workflow.AttachChild(ctx, id))
	if errors.Is(err, workflow.ErrChildNotFound) || errors.Is(err, workflow.ErrWorkflowIDTaken) {
		return "no child of mine", nil
	}
	return text, err
}

// Basket collects items by updates, which return a result, and has a query for the items.
func Basket(ctx workflow.Context, most int) ([]string, error) {
	items, paid := []string{}, false
	workflow.HandleUpdate(ctx, "add", func(_ workflow.Context, item string) (int, error) {
		items = append(items, item)
		return len(items), nil
	}, workflow.UpdateOptions{Validate: func(_ workflow.Context, item string) error {
		if len(items) == most {
			return activity.NewError("full", "the basket holds no more")
		}
		return nil
	}})
	workflow.HandleUpdate(ctx, "pay", func(ctx workflow.Context, amount int) error {
		err := workflow.ExecuteActivity(ctx, Charge, amount).Get(ctx, nil) // the update completes when it has ended
		paid = paid || err == nil
		return err
	})
	workflow.HandleQuery(ctx, "items", func(workflow.Context) ([]string, error) { return items, nil })
	return items, workflow.Until(ctx, func() bool { return paid && workflow.AllHandlersFinished(ctx) })
}

// Countdown waits for its own variables, but not forever.
func Countdown(ctx workflow.Context) (string, error) {
	left := 3
	workflow.Go(ctx, func(ctx workflow.Context) {
		for ; left > 0 && workflow.Sleep(ctx, 10*time.Millisecond) == nil; left-- {
		}
	})
	lifted, err := workflow.UntilTimeout(ctx, time.Minute, func() bool { return left == 0 })
	if err != nil || !lifted {
		return "stays", err
	}
	return "lift-off", nil
}

// Labels sets a memo for people, and search attributes for filters.
func Labels(ctx workflow.Context, customer string) error {
	if err := workflow.UpsertMemo(ctx, map[string]any{"note": "handle with care"}); err != nil {
		return err
	}
	return workflow.UpsertSearchAttributes(ctx, map[string]any{"customer": customer, "stage": nil}) // nil removes it
}

// Relay continues as another workflow.
func Relay(ctx workflow.Context, name string) (string, error) {
	return "", workflow.ContinueAsNewWith(ctx, workflow.ContinueOptions{Workflow: Greeting}) // same arguments
}
