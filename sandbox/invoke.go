package sandbox

import (
	"context"
	"errors"
	"time"
)

// Invoke runs one call and returns when it has ended. The error is an [*Error] or a [*SessionLost]; the result has
// usage and logs in both cases.
//
// A call with a session runs in the session's executor, which is started by the session's first call. Calls of one
// session may run at the same time; the caller limits their number. When ctx ends, the handler is asked to stop, then
// sent SIGTERM, then killed; at the deadline it is killed after a short grace time. Killing the executor loses the
// state of the session and ends the other calls in it with an [*ExecutorEnded], which contains the verdict for each
// call. A call that arrives meanwhile waits until the verdicts are known.
func (p *Pool) Invoke(ctx context.Context, inv Invocation, hooks Hooks) (Result, error) {
	began := time.Now()
	l, b, err := p.find(inv.Activity, inv.Hash)
	if err != nil {
		return Result{}, err
	}
	if err := mayBegin(ctx, inv); err != nil {
		return Result{}, err
	}
	if err := p.enter(); err != nil {
		return Result{}, err
	}
	defer p.exit()
	if err := p.packages.ready(l, b); err != nil {
		return Result{}, err
	}
	for try := 1; ; try++ {
		res, err := p.runOnce(ctx, inv, l, b, hooks)
		if try < 3 && (errors.Is(err, errExited) || needsCode(err)) {
			continue // the executor ended just before the call, which never began
		}
		if errors.Is(err, errExited) {
			err = &Error{Type: Unavailable, Message: err.Error(), Retryable: true}
		}
		if err == nil && inv.Export == "" && l.name != RuntimeNative {
			err = checkOutput(res.Output)
		}
		if b != nil {
			res.Version = b.Hash
		}
		res.Usage.Wall = time.Since(began)
		return res, err
	}
}

// mayBegin returns an error if the deadline of the call has passed or its context has ended.
func mayBegin(ctx context.Context, inv Invocation) error {
	if !inv.Deadline.IsZero() && !time.Now().Before(inv.Deadline) {
		return &Error{
			Type: DeadlineExceeded, Message: "the deadline had passed before the call began", Retryable: true,
		}
	}
	if ctx.Err() != nil {
		return &Error{Type: Cancelled, Message: context.Cause(ctx).Error()}
	}
	return nil
}

// runOnce finds an executor for the call and runs it there.
func (p *Pool) runOnce(
	ctx context.Context, inv Invocation, l *language, b *bundle, hooks Hooks,
) (Result, error) {
	var ex *executor
	var done func()
	var err error
	if inv.Session != nil {
		ex, done, err = p.join(ctx, inv, l)
	} else {
		ex, done, err = p.borrowExecutor(inv, l, b)
	}
	if err != nil {
		return Result{}, err
	}
	defer done()
	if err := ex.awaitExpiring(ctx, inv.Deadline); err != nil {
		return Result{}, err
	}
	if hooks.OnBegin != nil {
		if err := hooks.OnBegin(); err != nil {
			return Result{}, err
		}
	}
	// Check again: the executor may have started slowly, or this process may have been paused.
	if err := mayBegin(ctx, inv); err != nil {
		return Result{}, err
	}
	c, err := ex.begin(ctx, inv, b, hooks)
	if err != nil {
		<-ex.done // the executor is ending; wait, so that the pool has recorded the reason
		return Result{}, err
	}
	err = ex.await(ctx, inv, c, p.opt)
	if b != nil && needsCode(err) {
		ex.mu.Lock()
		delete(ex.loaded, b.Hash)
		ex.mu.Unlock()
	}
	return c.result(), err
}

// needsCode reports whether a call failed because its executor does not have its code.
func needsCode(err error) bool {
	if err == nil {
		return false
	}
	var e *Error
	return errors.As(err, &e) && e.Type == needCode
}

// enter counts a call if the pool accepts calls.
func (p *Pool) enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining {
		return &Error{Type: Unavailable, Message: "the worker is draining", Retryable: true}
	}
	p.inflight++
	return nil
}

func (p *Pool) exit() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inflight--
	if p.inflight == 0 && p.quiet != nil {
		close(p.quiet)
	}
}

// Ready returns an error if the pool no longer accepts calls.
func (p *Pool) Ready() error {
	if err := p.enter(); err != nil {
		return err
	}
	p.exit()
	return nil
}
