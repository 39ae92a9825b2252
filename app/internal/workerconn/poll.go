package workerconn

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// pollMargin is the part of a call's deadline that is reserved for sending its response.
const pollMargin = time.Second

// drainingRetry is the pause before a worker polls a draining app again, in milliseconds.
const drainingRetry = 1000

// pollTasks waits for tasks, at most until its caller's deadline.
func (p *Conn) pollTasks(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
	req, err := p.request(ctx, in)
	if err != nil {
		return protocol.PollResponse{}, err
	}
	hold := pollSeconds * time.Second
	if in.Timeout != nil {
		hold = min(hold, max(0, time.Duration(*in.Timeout)*time.Second))
	}
	if deadline, ok := ctx.Deadline(); ok {
		hold = min(hold, max(0, time.Until(deadline)-pollMargin))
	}
	seconds := Seconds(hold)
	req.Timeout = &seconds
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if !in.HandOver { // a draining worker still polls for sessions that it hands over
		defer context.AfterFunc(p.polls, cancel)()
	}
	a, err := p.registry.verbs.Poll(waiting, req)
	if errors.Is(err, dispatch.ErrDraining) || err != nil && p.polls.Err() != nil && ctx.Err() == nil {
		return protocol.PollResponse{
			Status: protocol.PollDraining, Reason: string(protocol.ReasonWorkerDraining), RetryAfter: drainingRetry,
			Undo: func() {},
		}, nil
	}
	a.Status = cmp.Or(a.Status, protocol.PollEmpty)
	return a, err
}

// Seconds converts the hold of a poll to seconds. Half a second is rounded up, since zero means no wait.
func Seconds(hold time.Duration) int64 {
	if hold < time.Second && hold >= pollMargin/2 {
		return 1
	}
	return int64(hold / time.Second)
}

// request returns a poll in the worker's name. It registers the worker first, so that a worker behind the release gate
// is listed too.
func (p *Conn) request(ctx context.Context, in protocol.PollRequest) (protocol.PollRequest, error) {
	if err := p.ensureRegistered(ctx, in.Queues); err != nil {
		return in, err
	}
	if len(in.Queues) > 0 {
		if err := p.registry.allow(p, in.Queues); err != nil {
			return in, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	in.WorkerID, in.Namespace, in.Incarnation, in.Gated = p.WorkerID, p.Namespace, p.incarnation, true
	in.Release, in.Max = cmp.Or(in.Release, p.release), max(1, in.Max)
	return in, nil
}
