package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// parallel is the number of concurrently open activities of one workflow in the wide scenarios.
const parallel = 1000

// burned is the kind under which the activities of the wide scenarios are recorded.
const burned = "burned"

// registerWide adds the workflow of the wide scenarios: concurrent activities without work.
func registerWide(r *worker.Registry, a *arrivals) {
	r.Workflow("wide", func(ctx workflow.Context, activities int, asked int64) error {
		all := make([]workflow.Future, activities)
		for i := range all {
			all[i] = workflow.ExecuteActivity(ctx, "burn", asked)
		}
		return workflow.Join(ctx, all...)
	})
	r.Activity("burn", func(_ context.Context, asked int64) error {
		a.add(burned, asked)
		return nil
	})
}

// burnDown measures how fast a backlog of activities is processed. The waiting time of each activity lasts from the
// start of its workflow to its code.
func burnDown(ctx context.Context, n *node, ops int) (sample, error) {
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	n.arrivals.takeAll()
	sizes := make(chan int, ops/parallel+1)
	for left := ops; left > 0; left -= parallel {
		sizes <- min(left, parallel)
	}
	s, err := runMany(len(sizes), len(sizes), func() error { return c.wide(ctx, n, <-sizes) })
	if err != nil {
		return s, err
	}
	s.each = n.arrivals.takeAll()[burned]
	return s, allCompleted(ctx, n.app.View())
}

// allAtOnce measures workflows of 1,000 parallel activities, one after the other.
func allAtOnce(ctx context.Context, n *node, ops int) (sample, error) {
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	s, err := runMany(ops, 1, func() error { return c.wide(ctx, n, parallel) })
	n.arrivals.takeAll()
	if err != nil {
		return s, err
	}
	return s, allCompleted(ctx, n.app.View())
}

// wide runs one workflow with a number of parallel activities until it closes.
func (c *closings) wide(ctx context.Context, n *node, activities int) error {
	in := json.RawMessage(fmt.Sprintf("[%d,%d]", activities, time.Now().UnixNano()))
	return c.workflow(ctx, n, "wide", in)
}
