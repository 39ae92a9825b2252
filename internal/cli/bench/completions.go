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

// These are the number of activities of each run in the completions scenario, and the number of concurrent completions.
const (
	wide     = 500
	inFlight = 128
)

// leased is the type of these runs, which stay open.
const leased = "leased"

// completions makes runs with many ready activities, claims them all in order, and measures how fast their results
// become durable.
func completions(ctx context.Context, n *node, ops int) (sample, error) {
	b := n.app.Broker()
	owner := "p1-" + ulid.Make().String()
	_, err := b.Register(ctx, protocol.RegisterRequest{
		WorkerID: owner, TaskQueue: owner, WorkflowTypes: []string{leased}, ActivityTypes: []string{"step"},
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
	return runMany(ops, inFlight, func() error {
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

// leaseAll schedules and leases ops activities.
func leaseAll(ctx context.Context, b *broker.Broker, owner string, ops int) ([]*protocol.ActivityTask, error) {
	if err := scheduleAll(ctx, b, owner, ops); err != nil {
		return nil, err
	}
	var all []*protocol.ActivityTask
	for deadline := time.Now().Add(time.Minute); len(all) < ops; {
		got, err := pollNow(ctx, b, owner, protocol.KindActivity, min(1000, ops-len(all)))
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

// scheduleAll starts runs and lets them schedule ops activities.
func scheduleAll(ctx context.Context, b *broker.Broker, owner string, ops int) error {
	args, err := payload.EncodeArgs(kilobyte)
	if err != nil {
		return err
	}
	return scheduleAs(ctx, b, owner, ops, protocol.Command{
		Type: protocol.ScheduleActivity, ActivityType: "step", Arguments: args,
	})
}

// scheduleAs is like scheduleAll, with activities of one kind.
func scheduleAs(ctx context.Context, b *broker.Broker, owner string, ops int, one protocol.Command) error {
	for left := ops; left > 0; left -= wide {
		if _, err := b.Start(ctx, protocol.StartRequest{WorkflowType: leased, TaskQueue: owner}); err != nil {
			return err
		}
		got, err := pollNow(ctx, b, owner, protocol.KindWorkflow, 1)
		if err != nil || len(got) == 0 {
			return fmt.Errorf("no workflow task was ready: %w", err)
		}
		t := got[0].Workflow
		commands := make([]protocol.Command, min(left, wide))
		for i := range commands {
			commands[i] = one
		}
		out, err := b.Complete(ctx, protocol.CompleteRequest{Items: []protocol.CompleteItem{{
			Kind: protocol.KindWorkflow, TaskID: t.TaskID, Owner: owner, Attempt: t.Attempt, Commands: commands,
		}}})
		if err == nil {
			err = out.Items[0].Err
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pollNow leases ready tasks without waiting.
func pollNow(
	ctx context.Context, b *broker.Broker, owner string, kind protocol.TaskKind, most int,
) ([]protocol.Task, error) {
	none := int64(0)
	a, err := b.Poll(ctx, protocol.PollRequest{
		WorkerID: owner, Queues: []string{owner}, Kinds: []protocol.TaskKind{kind}, Max: most, Timeout: &none,
	})
	return a.Tasks, err
}
