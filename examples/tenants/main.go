// Command tenants is a binary whose workflows pass the tenant of their caller on, by an interceptor.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Propagate passes headers on: from a workflow to its activities, its children, the workflows that it signals, and its
// next run.
type Propagate struct {
	workflow.InterceptorBase
	Names []string // of the headers
}

// InterceptWorkflow sets the headers for all commands of the code.
func (p Propagate) InterceptWorkflow(ctx workflow.Context, call *workflow.Call, next func(workflow.Context) error) {
	headers := map[string]string{}
	for _, name := range p.Names {
		if value, ok := call.Headers[name]; ok {
			headers[name] = value
		}
	}
	_ = next(workflow.WithHeaders(ctx, headers))
}

// InterceptActivity logs attempts that fail, with the tenant.
func (p Propagate) InterceptActivity(
	ctx context.Context, call *workflow.Call, next func(context.Context) error,
) error {
	began := time.Now()
	err := next(ctx)
	if err != nil {
		activity.Logger(ctx).Warn("attempt failed", "tenant", call.Headers["tenant"], "took", time.Since(began), "error", err)
	}
	return err
}

// Order charges the customer and ships the goods. It does not know what a tenant is.
func Order(ctx workflow.Context, item string) (string, error) {
	bill, err := workflow.Execute[string](ctx, Charge, item)
	if err != nil {
		return "", err
	}
	shipment, err := workflow.ExecuteChild[string](ctx, Ship, item)
	return bill + ", " + shipment, err
}

// Charge is an activity that acts for the tenant of its caller.
func Charge(ctx context.Context, item string) (string, error) {
	return fmt.Sprintf("%s charged for %s", activity.Headers(ctx)["tenant"], item), nil
}

// Ship is a child workflow, which gets the tenant as well.
func Ship(ctx workflow.Context, item string) (string, error) {
	return fmt.Sprintf("%s shipped to %s", item, workflow.Headers(ctx)["tenant"]), nil
}

// Refund passes the tenant on itself. With the interceptor, these lines are not needed.
func Refund(ctx workflow.Context, item string) (string, error) {
	tenant := workflow.Headers(ctx)["tenant"]
	ctx = workflow.WithHeaders(ctx, map[string]string{"tenant": tenant})
	return workflow.Execute[string](ctx, Charge, item)
}

// Register registers the workflows with their interceptor.
func Register(r *worker.Registry) {
	r.Workflow("order", Order)
	r.Workflow("ship", Ship)
	r.Workflow("refund", Refund)
	r.Activity("charge", Charge)
	r.Intercept(Propagate{Names: []string{"tenant"}})
}

func main() { sojourn.Main(Register) }
