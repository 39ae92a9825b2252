package channel

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
)

// margin is left of a call's deadline for its answer to travel.
const margin = time.Second

// drainingRetry is what a worker waits before it asks a draining app again, in milliseconds.
const drainingRetry = 1000

// poll hands out jobs. One that could not be handed over goes back at once.
func (c *Channel) poll(ctx context.Context, p *Peer, in protocol.ChannelPoll) (protocol.ChannelPollAnswer, error) {
	req, err := c.pollRequest(ctx, p, in)
	if err != nil {
		return protocol.ChannelPollAnswer{}, err
	}
	hold := pollSeconds * time.Second
	if in.TimeoutMS != nil {
		hold = min(hold, max(0, time.Duration(*in.TimeoutMS)*time.Millisecond))
	}
	if deadline, ok := ctx.Deadline(); ok {
		hold = min(hold, max(0, time.Until(deadline)-margin))
	}
	seconds := int64(hold / time.Second)
	if seconds == 0 && hold >= margin/2 {
		seconds = 1
	}
	req.Timeout = &seconds
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.polls, cancel)()
	a, err := c.verbs.Poll(waiting, req)
	if errors.Is(err, dispatch.ErrDraining) || err != nil && p.polls.Err() != nil && ctx.Err() == nil {
		return protocol.ChannelPollAnswer{
			Many: in.Max > 0, Status: protocol.PollDraining, Reason: string(protocol.ReasonWorkerDraining),
			RetryAfter: drainingRetry,
		}, nil
	}
	if err != nil {
		return protocol.ChannelPollAnswer{}, err
	}
	return c.handOver(ctx, a, in.Max > 0), nil
}

// pollRequest is a poll in the app's words. The worker is registered by then, so that one the gate holds back is listed
// all the same.
func (c *Channel) pollRequest(ctx context.Context, p *Peer, in protocol.ChannelPoll) (protocol.PollRequest, error) {
	if err := c.ensureRegistered(ctx, p, in.Queues); err != nil {
		return protocol.PollRequest{}, err
	}
	if len(in.Queues) > 0 {
		if err := c.allow(p, in.Queues); err != nil {
			return protocol.PollRequest{}, err
		}
	}
	p.mu.Lock()
	release, incarnation := p.release, p.incarnation
	p.mu.Unlock()
	if in.MachineInformation != nil && in.Props != nil && in.Props.Version != "" {
		release = in.Props.Version
	}
	if in.Release != "" {
		release = in.Release
	}
	return protocol.PollRequest{
		WorkerID: p.WorkerID, Namespace: p.Namespace, Incarnation: incarnation, Release: release, Gated: true,
		Queues: in.Queues, Kinds: in.Kinds,
		Free: in.Free, Max: max(1, in.Max), BuildID: in.BuildID, PollID: in.PollID, PageSize: in.PageSize,
		PagedQueries: in.PagedQueries, Turns: in.Turns,
	}, nil
}

// handOver makes jobs of what a poll gave, and sees to it that they are given back when the answer is lost.
func (c *Channel) handOver(ctx context.Context, a protocol.PollAnswer, many bool) protocol.ChannelPollAnswer {
	out := protocol.ChannelPollAnswer{
		Many: many, Status: a.Status, Reason: a.Reason, RetryAfter: a.RetryAfter, AppRelease: a.AppRelease,
		StoreTime: a.StoreTime,
	}
	if out.Status == "" {
		out.Status = protocol.PollEmpty
	}
	if len(a.Tasks) == 0 {
		return out
	}
	out.Jobs = make([]protocol.Job, len(a.Tasks))
	for i, t := range a.Tasks {
		out.Jobs[i] = jobOf(t)
	}
	if a.Undo != nil {
		rpc.OnDelivered(ctx, func(ok bool) {
			if !ok {
				c.counts.undone.Add(1)
				a.Undo()
			}
		})
	}
	return out
}
