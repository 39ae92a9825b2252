package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Runs of the completions scenario have so many activities each, and so many completions are in flight.
const (
	wide     = 500
	inFlight = 128
)

// completions makes runs with many ready activities, claims them all in order, and measures how fast their results
// become durable.
func completions(ctx context.Context, n *node, ops int) (sample, error) {
	b := n.app.Broker()
	owner := "p1-" + ulid.Make().String()
	_, err := b.Register(ctx, protocol.RegisterRequest{
		WorkerID: owner, TaskQueue: owner, WorkflowTypes: []string{"wide"}, ActivityTypes: []string{"step"},
		Incarnation: owner,
	})
	if err != nil {
		return sample{}, err
	}
	tasks, err := leaseAll(ctx, b, owner, ops)
	if err != nil {
		return sample{}, err
	}
	result, err := payload.Encode(kilobyte)
	if err != nil {
		return sample{}, err
	}
	next := make(chan *protocol.ActivityTask, len(tasks))
	for _, t := range tasks {
		next <- t
	}
	return many(ops, inFlight, func() error {
		t := <-next
		out, err := b.Complete(ctx, protocol.CompleteRequest{Items: []protocol.CompleteItem{{
			Kind: protocol.KindActivity, TaskID: t.TaskID, Owner: owner, AttemptID: t.AttemptID, Result: result,
		}}})
		if err == nil {
			err = out.Items[0].Err
		}
		return err
	})
}

// leaseAll starts as many runs as it takes, has each schedule its activities, and leases them all.
func leaseAll(ctx context.Context, b *broker.Broker, owner string, ops int) ([]*protocol.ActivityTask, error) {
	args, err := payload.EncodeArgs(kilobyte)
	if err != nil {
		return nil, err
	}
	none := int64(0)
	poll := func(kind protocol.TaskKind, most int) ([]protocol.Task, error) {
		a, err := b.Poll(ctx, protocol.PollRequest{
			WorkerID: owner, Queues: []string{owner}, Kinds: []protocol.TaskKind{kind}, Max: most, Timeout: &none,
		})
		return a.Tasks, err
	}
	for left := ops; left > 0; left -= wide {
		if _, err := b.Start(ctx, protocol.StartRequest{WorkflowType: "wide", TaskQueue: owner}); err != nil {
			return nil, err
		}
		got, err := poll(protocol.KindWorkflow, 1)
		if err != nil || len(got) == 0 {
			return nil, fmt.Errorf("no workflow task was ready: %w", err)
		}
		t := got[0].Workflow
		commands := make([]protocol.Command, min(left, wide))
		for i := range commands {
			commands[i] = protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "step", Arguments: args}
		}
		out, err := b.Complete(ctx, protocol.CompleteRequest{Items: []protocol.CompleteItem{{
			Kind: protocol.KindWorkflow, TaskID: t.TaskID, Owner: owner, Attempt: t.Attempt, Commands: commands,
		}}})
		if err == nil {
			err = out.Items[0].Err
		}
		if err != nil {
			return nil, err
		}
	}
	var all []*protocol.ActivityTask
	for deadline := time.Now().Add(time.Minute); len(all) < ops; {
		got, err := poll(protocol.KindActivity, min(1000, ops-len(all)))
		if err != nil {
			return nil, err
		}
		for _, t := range got {
			all = append(all, t.Activity)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("leased %d of %d activities in a minute", len(all), ops)
		}
	}
	return all, nil
}
