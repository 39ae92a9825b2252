package examples_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/client"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Orders is the workflow that sells an order.
const Orders workflow.Name[Order, Receipt] = "order"

// Order is the argument of Orders.
type Order struct {
	Customer string
	Items    map[string]int // price by item
}

// Receipt is the result of Orders.
type Receipt struct{ Total int }

func sellOrder(_ workflow.Context, o Order) (r Receipt, err error) {
	if len(o.Items) == 0 {
		return r, errors.New("the order has no items")
	}
	for _, price := range o.Items {
		r.Total += price
	}
	return r, nil
}

func register(r *worker.Registry) {
	worker.Register(r, Orders, sellOrder)
}

func buy(ctx context.Context, app *client.Client, o Order) (total int, err error) {
	order, err := client.Start(ctx, app, Orders, o, client.StartOptions{BusinessKey: o.Customer})
	if err != nil {
		return 0, err
	}
	receipt, err := order.Result(ctx)
	return receipt.Total, err
}

// outcome says what happened to an order.
func outcome(err error) string {
	var ended *client.NotCompleted
	var unreachable *client.Unreachable
	switch {
	case err == nil:
		return "sold"
	case errors.As(err, &ended): // failed, timed out, cancelled or terminated
		return string(ended.Run.Status)
	case client.ReasonOf(err) == client.ReasonWorkflowIDInUse:
		return "ordered already"
	case errors.As(err, &unreachable): // the request had no effect
		return "no app responds at " + unreachable.URL
	}
	return "error: " + err.Error()
}

func TestAWorkflowWithATypedNameIsRegisteredAndStarted(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	work(t, a, func(o *worker.Options) {
		o.Registry = worker.NewRegistry()
		register(o.Registry)
	})
	app, err := client.New(client.Options{URLs: []string{a.URL()}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, order := t.Context(), Order{Customer: "Ada", Items: map[string]int{"milk": 2, "tea": 5}}
	if total, err := buy(ctx, app, order); err != nil || total != 7 {
		t.Errorf("got %d, %v", total, err)
	}
	receipt, err := client.Run(ctx, app, Orders, order, client.StartOptions{WorkflowID: "order-8"})
	if err != nil || receipt.Total != 7 {
		t.Errorf("in one call: %+v, %v", receipt, err)
	}
	if receipt, err = client.HandleOf(app, Orders, "order-8", "").Result(ctx); err != nil || receipt.Total != 7 {
		t.Errorf("by the handle of a run: %+v, %v", receipt, err)
	}
	var failed *client.Failure
	_, err = client.Run(ctx, app, Orders, Order{}, client.StartOptions{})
	if !errors.As(err, &failed) || failed.Message != "the order has no items" {
		t.Errorf("a workflow that fails: %v", err)
	}
	_, taken := client.Run(ctx, app, Orders, order, client.StartOptions{WorkflowID: "order-8"})
	nowhere, e := client.New(client.Options{URLs: []string{"http://127.0.0.1:1"}})
	if e != nil {
		t.Fatal(e)
	}
	_, down := client.Start(ctx, nowhere, Orders, order, client.StartOptions{})
	for want, err := range map[string]error{
		"sold": nil, "failed": err, "ordered already": taken, "no app responds at http://127.0.0.1:1": down,
	} {
		if got := outcome(err); got != want {
			t.Errorf("outcome of %v: %q, want %q", err, got, want)
		}
	}
}
