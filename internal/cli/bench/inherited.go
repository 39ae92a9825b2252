package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// registerInheriting adds the workflow of CARRY: each run receives one signal and continues as new, until it has
// received the number of signals in its argument.
func registerInheriting(r *worker.Registry) {
	r.Workflow("inherits", func(ctx workflow.Context, left int, wait bool) error {
		if wait { // wait until all signals have arrived
			if err := workflow.Signal(ctx, "begin").Receive(ctx); err != nil {
				return err
			}
		}
		if _, err := workflow.ReceiveSignal[string](ctx, "item"); err != nil || left == 1 {
			return err
		}
		return workflow.ContinueAsNew(ctx, left-1, false)
	})
}

// inheriting measures a workflow that handles one signal in each of its runs, while the other signals wait.
func inheriting(ctx context.Context, n *node, signals int) (sample, error) {
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	value, err := input()
	if err != nil {
		return sample{}, err
	}
	b := n.app.Broker()
	start, err := b.Start(ctx, protocol.StartRequest{
		WorkflowType: "inherits", Input: json.RawMessage(fmt.Sprintf("[%d, true]", signals)),
	})
	if err != nil {
		return sample{}, err
	}
	target := protocol.Target{WorkflowID: start.WorkflowID}
	if _, err := runMany(signals, 100, func() error {
		_, err := b.Signal(ctx, protocol.SignalRequest{Target: target, SignalName: "item", Input: value})
		return err
	}); err != nil {
		return sample{}, err
	}
	began := time.Now()
	if _, err = b.Signal(ctx, protocol.SignalRequest{Target: target, SignalName: "begin"}); err != nil {
		return sample{}, err
	}
	for {
		v, err := n.app.View().Result(ctx, target, time.Minute, false)
		switch {
		case err != nil:
			return sample{}, err
		case v.Terminal && v.Status != "completed":
			return sample{}, errors.New("the workflow did not complete")
		case v.Terminal:
			return sample{elapsed: time.Since(began)}, nil
		}
	}
}
