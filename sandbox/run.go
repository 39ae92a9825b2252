package sandbox

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sojourn-run/sojourn/sandbox/frame"
	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
)

// minBlockingFrame is the size in bytes from which writing a frame may block until the executor reads.
const minBlockingFrame = 32 << 10

// expirySlack is the time before its deadline from which a call counts as expiring: by the clock of the caller, it may
// already have timed out.
const expirySlack = 100 * time.Millisecond

// awaitExpiring waits until no call of the executor is expiring. A call that starts while another one expires could be
// killed with it, or its result could be acknowledged although its state is lost.
func (ex *executor) awaitExpiring(ctx context.Context, deadline time.Time) error {
	c := ex.expiringCall()
	if c == nil {
		return nil // no call is expiring, as usual
	}
	waitCtx := ctx
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		waitCtx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	for ; c != nil; c = ex.expiringCall() {
		select {
		case <-c.done:
		case <-waitCtx.Done():
			if ctx.Err() != nil {
				return &Error{Type: Cancelled, Message: context.Cause(ctx).Error()}
			}
			return &Error{
				Type: DeadlineExceeded, Message: "the deadline passed while a call before it was being ended", Retryable: true,
			}
		}
	}
	return nil
}

// expiringCall returns a call in flight that is expiring, or nil.
func (ex *executor) expiringCall() *call {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	for _, c := range ex.calls {
		if c.expiring() {
			return c
		}
	}
	return nil
}

// begin registers a call and sends it, with its code if the executor does not have it. It returns errExited if the
// executor has ended.
func (ex *executor) begin(
	ctx context.Context, inv Invocation, b *bundle, hooks Hooks,
) (*call, error) {
	c := &call{
		hooks: hooks, done: make(chan struct{}), cancelled: ctx.Done(), deadline: inv.Deadline, suspect: inv.Suspect,
		lastHeartbeat: inv.LastHeartbeat, headers: inv.Headers,
	}
	f := frame.Frame{Header: frame.Header{
		T: frame.Invoke, Activity: inv.Activity, Entry: inv.Entry, Export: inv.Export, Attempt: inv.Attempt, Keys: inv.Keys,
	}}
	h := &f.Header
	if !inv.Deadline.IsZero() {
		h.DeadlineMS = inv.Deadline.UnixMilli()
	}
	if inv.Session != nil {
		if h.Session = inv.Session.ID; !inv.Session.Prepares {
			h.Epoch = inv.Session.Epoch
		}
	}
	ex.mu.Lock()
	if ex.ended || ex.endCause != nil {
		ex.mu.Unlock()
		return nil, errExited
	}
	ex.seq++
	c.seq, c.id = ex.seq, strconv.FormatUint(ex.seq, 36)
	h.ID, h.IsNew = c.id, ex.seq == 1
	ex.calls[c.id] = c
	if c.reads = ex.reader == readByNone; c.reads {
		ex.reader = readByCall
	}
	others := len(ex.calls) > 1
	h.Lend = ex.lend(c)
	needs := false
	if b != nil {
		h.Hash = b.Hash
		needs = !ex.loaded[b.Hash]
	}
	if !ex.sentBusy {
		ex.sentBusy = true
		ex.proc.order(supervisor.OrderBusy)
		_ = ex.proc.line.SetReadDeadline(time.Now().Add(silenceTime))
	}
	ex.mu.Unlock()
	if inv.Export == "" { // an export is not a call of the handler
		f.Body = ex.writeShared(h, inv.Input)
	}
	if needs || others || len(f.Body)+len(c.lastHeartbeat)+len(c.headers) > minBlockingFrame {
		later := f
		// Sending may block, and the caller must enforce its own deadline.
		ex.sendAsync(func() { ex.deliver(c, &later, b) })
	} else {
		ex.deliver(c, &f, b)
	}
	return c, nil
}

// deliver sends a call, after the code it needs.
func (ex *executor) deliver(c *call, f *frame.Frame, b *bundle) {
	err := ex.load(b)
	if err == nil && len(c.lastHeartbeat) > 0 {
		err = ex.send(frame.Frame{Header: frame.Header{T: frame.LastHeartbeat, ID: c.id}, Body: c.lastHeartbeat})
	}
	if err == nil && len(c.headers) > 0 {
		err = ex.send(frame.Frame{Header: frame.Header{T: frame.Headers, ID: c.id}, Body: c.headers})
	}
	if err == nil {
		err = ex.sendFrame(f)
	}
	if errors.Is(err, frame.ErrMalformed) { // the frame is too large, and nothing was sent
		ex.failUnsent(c, &Error{Type: UserError, Class: "InputTooLarge", Message: err.Error()})
	}
}

func (ex *executor) load(b *bundle) error {
	if b == nil {
		return nil
	}
	ex.mu.Lock()
	loaded := ex.loaded[b.Hash]
	ex.mu.Unlock()
	if loaded {
		return nil
	}
	ex.loading.Lock()
	defer ex.loading.Unlock()
	err := ex.send(frame.Frame{
		Header: frame.Header{
			T: frame.Load, Hash: b.Hash, Own: b.own[b.entry], Format: b.Format, Path: b.Path, Files: b.versions(),
		}, Body: b.code,
	})
	ex.mu.Lock()
	defer ex.mu.Unlock()
	ex.loaded[b.Hash] = err == nil
	return err
}

// failUnsent ends a call that was not sent to the executor.
func (ex *executor) failUnsent(c *call, err error) {
	ex.mu.Lock()
	ex.endedCall(c)
	ex.mu.Unlock()
	c.finish(nil, nil, err)
	if c.reads {
		ex.reads.interrupt() // wake the reader: no response will arrive
	}
}

// await waits for the call's end and enforces it: at the deadline, and after ctx was cancelled, it first asks the
// executor to stop the call and then kills it.
func (ex *executor) await(ctx context.Context, inv Invocation, c *call, o Options) error {
	checkAt := checkAt(inv.Deadline)
	if c.reads {
		ex.attend(ctx, checkAt, c)
		if c.hasEnded() {
			return c.err
		}
	}
	var check, deadline <-chan time.Time
	if !inv.Deadline.IsZero() {
		early, timer := time.NewTimer(time.Until(checkAt)), time.NewTimer(time.Until(inv.Deadline))
		defer early.Stop()
		defer timer.Stop()
		check, deadline = early.C, timer.C
	}
	for {
		select {
		case <-c.done:
			return c.err
		case <-check:
			ex.check(c, inv.Deadline)
		case <-deadline:
			return ex.expire(inv, c, o)
		case <-ctx.Done():
			return ex.awaitCancelled(ctx, inv, c, o, deadline)
		}
	}
}

// awaitCancelled continues await after ctx has ended.
func (ex *executor) awaitCancelled(
	ctx context.Context, inv Invocation, c *call, o Options, deadline <-chan time.Time,
) error {
	reason := "cancelled"
	if cause := context.Cause(ctx); cause != nil {
		reason = cause.Error()
	}
	ex.cancel(c, reason, o.CancelKill)
	forced := ending{
		cause: CauseDeadline, kind: Crashed,
		message: fmt.Sprintf("the executor was killed because %s ignored its cancellation", inv.Activity), by: c,
	}
	for _, step := range []struct {
		after time.Duration
		do    func()
	}{
		{o.CancelTerm, func() { ex.terminate(forced) }},
		{o.CancelKill - o.CancelTerm, func() { ex.kill(forced) }},
	} {
		timer := time.NewTimer(step.after)
		select {
		case <-c.done:
			timer.Stop()
			return cancelled(c.err, reason)
		case <-deadline:
			timer.Stop()
			return ex.expire(inv, c, o)
		case <-timer.C:
			step.do()
		}
	}
	<-c.done
	return cancelled(c.err, reason)
}

// cancelled returns the error of a call after its cancellation. A call that still returned a result has no error.
func cancelled(err error, reason string) error {
	var lost *SessionLost
	if err == nil || errors.As(err, &lost) {
		return err
	}
	e := &Error{Type: Cancelled, Message: reason}
	var cause *Error
	if errors.As(err, &cause) {
		e.Class, e.Stack, e.Details = cause.Class, cause.Stack, cause.Details
		if cause.Message != reason {
			e.Message += ": " + cause.Message
		}
	}
	return e
}

// expire ends a call at its deadline.
func (ex *executor) expire(inv Invocation, c *call, o Options) error {
	ex.cancel(c, "deadline", o.DeadlineGrace)
	grace := time.NewTimer(o.DeadlineGrace)
	defer grace.Stop()
	select {
	case <-c.done:
	case <-grace.C:
		ex.kill(ending{
			cause: CauseDeadline, kind: Crashed,
			message: fmt.Sprintf("the executor was killed because %s exceeded its deadline", inv.Activity), by: c,
		})
		<-c.done
	}
	ex.tainted.Store(true)
	err := &Error{
		Type:      DeadlineExceeded,
		Message:   fmt.Sprintf("%s did not end by %s", inv.Activity, inv.Deadline.UTC().Format(time.RFC3339Nano)),
		Retryable: true,
	}
	var ended *ExecutorEnded
	if errors.As(c.err, &ended) {
		if ended.Verdict != VerdictBlamed { // another call ended the executor before this one was killed
			return ended
		}
		blamed := *ended
		blamed.Err = err
		return &blamed
	}
	return err
}

// cancel sends the executor a request to end a call. It does not wait until the executor has read the request.
func (ex *executor) cancel(c *call, reason string, grace time.Duration) {
	ex.tainted.Store(true)
	h := frame.Header{T: frame.Cancel, ID: c.id, Reason: reason[:min(len(reason), 1024)], GraceMS: grace.Milliseconds()}
	ex.sendAsync(func() { _ = ex.send(frame.Frame{Header: h}) })
}
