package link

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// verb is a method of the app, such as protocol.WorkerVerbs.Poll.
type verb[In, Out any] = func(app protocol.WorkerVerbs, ctx context.Context, in In) (Out, error)

// deregisterVerb is the name of the verb after which no call is allowed.
const deregisterVerb = "deregister"

// call calls one verb over a connection. Its error distinguishes a refusal by the app (a *protocol.Error), an unknown
// outcome (see [Lost]), and a worker that was superseded by another process.
func call[In, Out any](ctx context.Context, l *Link, conn Conn, name string, v verb[In, Out], in In) (Out, error) {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, l.opt.CallTimeout)
		defer cancel()
	}
	out, err := v(conn, ctx, in)
	if err != nil {
		err = l.classifyError(name, err)
		if connectionEnded(conn, err) {
			err = fmt.Errorf("%w: %w", ErrConnectionEnded, err)
		}
	}
	return out, err
}

// connectionEnded reports whether a call failed because its connection ended.
func connectionEnded(conn Conn, err error) bool {
	select {
	case <-conn.Done():
		return true
	default:
		// A call may receive this error before the connection is marked as ended.
		return errors.Is(err, socketio.ErrPeerClosed)
	}
}

func (l *Link) classifyError(name string, err error) error {
	var refusal *protocol.Error
	switch {
	case !errors.As(err, &refusal):
		return fmt.Errorf("%s: %w", name, err)
	case refusal.Reason.Away(): // the app was going away and may have executed the call, so the error is not a refusal
		return fmt.Errorf("%s: %s", name, err.Error())
	case refusal.Reason != protocol.ReasonStaleRegistration:
		return refusal
	case l.isDeregistering() && name != deregisterVerb:
		// a heartbeat in flight while the worker deregistered: this error is expected
		return fmt.Errorf("%s: %w", name, ErrLeft)
	}
	fatal := fmt.Errorf("worker %s: %w (%s)", l.opt.WorkerID, ErrSuperseded, refusal.Message)
	l.fail(fatal)
	return fatal
}

// Lost reports whether the app may have processed a failed call: the connection ended, or the call timed out.
func Lost(err error) bool {
	return err != nil && protocol.ReasonOf(err) == "" && !errors.Is(err, ErrSuperseded) && !errors.Is(err, ErrLeft)
}

// callRegistered calls a method over the current connection, or waits for one. It registers again if the app does not
// know the worker any more.
func callRegistered[In, Out any](
	ctx context.Context, l *Link, name string, v verb[In, Out], in In,
) (out Out, err error) {
	lv, err := l.wait(ctx)
	if err != nil {
		return out, err
	}
	out, err = call(ctx, l, lv.conn, name, v, in)
	if protocol.ReasonOf(err) != protocol.ReasonWorkerNotRegistered {
		return out, err
	}
	lv.registering.Lock()
	if err = ErrLeft; !l.isDeregistering() {
		err = l.register(ctx, lv, nil)
	}
	lv.registering.Unlock()
	if err != nil {
		return out, err
	}
	return call(ctx, l, lv.conn, name, v, in)
}

// slack is the additional timeout of a poll beyond the time that the app may hold it.
const slack = 5 * time.Second

// Poll polls for tasks; it first waits for a connection. While the releases differ, it returns PollMismatch with a
// pause and without a request to the app; this is not an error. The app requeues the tasks of a response that was not
// received.
func (l *Link) Poll(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
	lv, err := l.wait(ctx)
	if err != nil {
		return protocol.PollResponse{}, err
	}
	if v := l.judge(lv.settings.Release, lv.settings.Strict); !v.Allowed {
		return protocol.PollResponse{
			Status: protocol.PollMismatch, Reason: v.Message, RetryAfter: l.opt.MismatchPause.Milliseconds(),
			AppRelease: lv.settings.Release,
		}, nil
	}
	hold := time.Duration(lv.settings.PollSeconds) * time.Second
	if hold <= 0 {
		hold = 50 * time.Second
	}
	if in.Timeout != nil {
		hold = min(hold, time.Duration(*in.Timeout)*time.Second)
	}
	drained := protocol.PollResponse{Status: protocol.PollDraining, Reason: string(protocol.ReasonWorkerDraining)}
	handOver, begins := l.currentHandOver()
	if handOver != nil {
		var kept bool
		if in, kept = handOver.restrict(in); !kept {
			handOver.wait(ctx, hold)
			return drained, ctx.Err()
		}
	} else if l.waitWhilePaused(ctx, hold) {
		return drained, ctx.Err()
	}
	req := l.completePoll(in)
	seconds := int64(hold / time.Second)
	req.Timeout = &seconds
	ctx, cancel := context.WithTimeout(ctx, hold+slack)
	defer cancel()
	if handOver != nil {
		defer context.AfterFunc(handOver.ctx, cancel)()
	}
	a, err := callRegistered(ctx, l, "poll", protocol.WorkerVerbs.Poll, req)
	if err == nil {
		l.recordTasks(&a)
		if a.Status == protocol.PollDraining && handOver == nil && l.awaitHandOver(ctx, begins) {
			return l.Poll(ctx, in) // the drain has begun during the poll
		}
	} else if handOver != nil && handOver.ctx.Err() != nil {
		return drained, nil
	}
	return a, err
}

// completePoll adds the release and the options of this link to a poll.
func (l *Link) completePoll(in protocol.PollRequest) protocol.PollRequest {
	in.Release, in.Max, in.PagedQueries = l.opt.Release, max(1, in.Max), true
	return in
}

// recordTasks records the leases of a poll's response.
func (l *Link) recordTasks(a *protocol.PollResponse) {
	if a.Status == protocol.PollMismatch && a.AppRelease != "" {
		l.judge(a.AppRelease, false)
	}
	for _, t := range a.Tasks {
		l.held.addTask(t)
	}
}

// Complete reports outcomes and, with Next, polls in the same call. The items of the response are in the order of the
// outcomes.
func (l *Link) Complete(ctx context.Context, in protocol.CompleteRequest) (protocol.CompleteBatchResponse, error) {
	if l.handsOver() {
		in.Next = nil // the worker polls separately, only for the sessions that it hands over
	}
	if in.Next != nil {
		next := l.completePoll(*in.Next)
		in.Next = &next
	}
	a, err := callRegistered(ctx, l, "complete", protocol.WorkerVerbs.Complete, in)
	if err != nil {
		return protocol.CompleteBatchResponse{}, err
	}
	for i := range a.Items {
		if then := a.Items[i].Eager; then != nil && then.Next != nil {
			l.held.addTask(protocol.Task{Activity: then.Next})
		}
		if i < len(in.Items) {
			l.held.done(in.Items[i])
		}
	}
	if a.Next != nil {
		l.recordTasks(a.Next)
	}
	return a, nil
}

// Abandon removes a task that ended without a report to the app.
func (l *Link) Abandon(item protocol.CompleteItem) { l.held.abandon(item, time.Now()) }

// HistoryPage fetches a page of the history behind a task; an empty token is the first page.
func (l *Link) HistoryPage(ctx context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	return callRegistered(ctx, l, "history", protocol.WorkerVerbs.HistoryPage, in)
}

// HeartbeatTask sends a heartbeat that the code of an attempt requested, with its progress.
func (l *Link) HeartbeatTask(
	ctx context.Context, in protocol.HeartbeatRequest,
) (protocol.HeartbeatResponse, error) {
	return callRegistered(ctx, l, "heartbeat", protocol.WorkerVerbs.HeartbeatTask, in)
}

// RecordLogs sends activity logs. The items of the response are in the order of the request.
func (l *Link) RecordLogs(ctx context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error) {
	return callRegistered(ctx, l, "logs", protocol.WorkerVerbs.RecordLogs, in)
}

// CreateSession acquires a session before any activity uses it.
func (l *Link) CreateSession(ctx context.Context, in protocol.SessionCreate) (protocol.SessionResponse, error) {
	return callRegistered(ctx, l, "create session", protocol.WorkerVerbs.CreateSession, in)
}

// HeartbeatSession renews a held session and counts as activity in it.
func (l *Link) HeartbeatSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return callRegistered(ctx, l, "renew session", protocol.WorkerVerbs.HeartbeatSession, in)
}

// ReleaseSession releases a session without closing it.
func (l *Link) ReleaseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return callRegistered(ctx, l, "release session", protocol.WorkerVerbs.ReleaseSession, in)
}

// CloseSession ends a session permanently.
func (l *Link) CloseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return callRegistered(ctx, l, "close session", protocol.WorkerVerbs.CloseSession, in)
}

// deregisterTimeout is the time that a deregistering worker waits for a connection. Without deregistration its sessions
// and its registration remain until its heartbeats are missed, but a process that ends cannot wait for an app that is
// down.
const deregisterTimeout = 2 * time.Second

// Deregister removes the registration: the app requeues the worker's leased tasks and releases its sessions. If the
// connection breaks, Deregister repeats the call over the next one. Later calls fail with ErrLeft.
func (l *Link) Deregister(ctx context.Context) error {
	sentBefore := false
	for {
		connected, done := context.WithTimeout(ctx, deregisterTimeout)
		lv, err := l.wait(connected)
		done()
		if err != nil {
			return err
		}
		l.setDeregistered(true) // prevents a new registration
		_, err = call(ctx, l, lv.conn, deregisterVerb, protocol.WorkerVerbs.Deregister, protocol.DeregisterRequest{
			WorkerID: l.opt.WorkerID, Incarnation: l.opt.Incarnation,
		})
		switch {
		case sentBefore && protocol.ReasonOf(err) == protocol.ReasonWorkerNotRegistered:
			return nil // the first call took effect
		case !Lost(err) || ctx.Err() != nil:
			return err
		}
		sentBefore = true
		l.setDeregistered(false)
		select {
		case <-lv.ctx.Done():
		case <-time.After(l.opt.BackoffMin):
		case <-ctx.Done():
		}
	}
}
