package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// foreigners is the number of workers of other types that poll the queue.
const foreigners = 1000

// nextToForeign measures the processor time of workflows with and without workers that poll the same queue and cannot
// run them, each with a separate type and capability.
func nextToForeign(ctx context.Context, n *node, ops int) (sample, error) {
	in, err := input()
	if err != nil {
		return sample{}, err
	}
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	if err := registerForeign(ctx, n, foreigners); err != nil {
		return sample{}, err
	}
	alone := func(ops int) (sample, error) {
		return runManyCounted(ops, 128, func() error { return c.run(ctx, n.app.Broker(), in) })
	}
	all, err := inTurns(ops, 250, alone, func(ops int) (sample, error) {
		stop, err := pollForeigners(ctx, n, foreigners)
		if err != nil {
			return sample{}, err
		}
		defer stop()
		return alone(ops)
	})
	if err != nil {
		return all, err
	}
	return all, allCompleted(ctx, n.app.View())
}

// waitForeign lets the given number of workers poll for types that no workflow uses, until stop.
func waitForeign(ctx context.Context, n *node, workers int) (stop func(), err error) {
	if err := registerForeign(ctx, n, workers); err != nil {
		return nil, err
	}
	return pollForeigners(ctx, n, workers)
}

func foreigner(i int) string { return fmt.Sprintf("foreign-%d", i) }

func registerForeign(ctx context.Context, n *node, workers int) error {
	for i := range workers {
		id := foreigner(i)
		if _, err := n.app.Broker().Register(ctx, protocol.RegisterRequest{
			WorkerID: id, TaskQueue: "default", Runtime: "external", WorkflowTypes: []string{id}, ActivityTypes: []string{id},
			Capabilities: []string{id},
		}); err != nil {
			return err
		}
	}
	return nil
}

// pollForeigners lets these workers poll until stop. It returns when their polls wait; it allows for the varying number
// of polls of the node's own worker.
func pollForeigners(ctx context.Context, n *node, workers int) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	stop = func() { cancel(); group.Wait() }
	for i := range workers {
		group.Go(func() { pollForeign(ctx, n.app.Broker(), foreigner(i)) })
	}
	for n.app.Dispatch().Counts().Waiting < workers && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	return stop, ctx.Err()
}

func pollForeign(ctx context.Context, b *broker.Broker, id string) {
	seconds := int64(50)
	for ctx.Err() == nil {
		_, _ = b.Poll(ctx, protocol.PollRequest{
			WorkerID: id, TaskQueue: "default", Kinds: []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity}, Max: 1,
			Timeout: &seconds,
		})
	}
}
