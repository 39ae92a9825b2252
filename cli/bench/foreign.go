package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// foreigners is how many workers of other types wait on the queue.
const foreigners = 1000

// besideForeign measures what workflows use of the processors beside workers that wait on their queue and cannot serve
// them, each with a type and a capability of its own, and before without them.
func besideForeign(ctx context.Context, n *node, ops int) (all sample, err error) {
	in, err := input()
	if err != nil {
		return all, err
	}
	c := watch(&n.app.Dispatch().Hub)
	defer c.stop()
	do := func() error { return c.run(ctx, n.app.Broker(), in) }
	before := cpuTime()
	plain, err := many(ops, 128, do)
	if err != nil {
		return all, err
	}
	all.plain, all.beside = cpuTime()-before, plain.each
	stop, err := waitForeign(ctx, n, foreigners)
	if err != nil {
		return all, err
	}
	defer stop()
	before = cpuTime()
	with, err := many(ops, 128, do)
	if err != nil {
		return all, err
	}
	all.used, all.each, all.elapsed = cpuTime()-before, with.each, with.elapsed
	return all, allCompleted(ctx, n.app.View())
}

// waitForeign has so many workers poll, of types nobody asks for, until stop. When it returns they wait, but for as
// many as the node's own worker has polls, whose number goes up and down.
func waitForeign(ctx context.Context, n *node, workers int) (stop func(), err error) {
	b := n.app.Broker()
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	stop = func() { cancel(); group.Wait() }
	for i := range workers {
		id := fmt.Sprintf("foreign-%d", i)
		if _, err := b.Register(ctx, protocol.RegisterRequest{
			WorkerID: id, TaskQueue: "default", Runtime: "external", WorkflowTypes: []string{id}, ActivityTypes: []string{id},
			Capabilities: []string{id},
		}); err != nil {
			stop()
			return nil, err
		}
		group.Go(func() { pollForeign(ctx, b, id) })
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
