package workflow

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Awaitable is an argument of Select: a Future, or a SignalChannel, which is ready when it has a signal.
type Awaitable interface {
	attach(w *waiter)
	detach(w *waiter)
	isReady() bool
}

// Future is the result of an activity, a child workflow, a timer, an awakeable or a branch, which is available later.
type Future interface {
	Awaitable
	// Get waits for the result and decodes it into the value that out points to; nil discards it. The error is the
	// error of the activity (an *ActivityError), of the child (a *ChildError) or of the awakeable (an
	// *AwakeableError), a decoding error, or ErrCancelled if ctx is cancelled first. It may be called many times.
	Get(ctx Context, out any) error
	// Ready reports whether Get returns without waiting.
	Ready() bool
	self() *future
}

type kind int

const (
	activityStep kind = iota
	timerStep
	childStep
	attachStep
	awakeableStep
	branchStep
)

type future struct {
	m               *machine
	kind            kind
	seq             int64 // number of the command; 0: no command was issued
	name            string
	scope           *scope
	workflowID      string // of a child: its workflow ID
	waitForEnd      bool   // of an activity or child: after its cancellation, Get waits for its end
	cancelRequested bool   // cancellation was requested, and the end is not known yet
	done            bool
	value           payload.Payload
	err             error
	waiters         []*waiter
}

// waiter is a branch that waits for one or several items.
type waiter struct {
	co    *coroutine
	need  int  // number of items that must still become ready
	join  bool // the branch waits in Join
	ends  bool // the branch also waits for the ends of cancelled items
	items []*future
}

func (w *waiter) notify() {
	if w.need--; w.need <= 0 {
		w.co.m.ready(w.co)
	}
}

func (f *future) self() *future    { return f }
func (f *future) attach(w *waiter) { f.waiters = append(f.waiters, w) }
func (f *future) detach(w *waiter) { f.waiters = without(f.waiters, w) }
func (f *future) isReady() bool    { return f.done }

// Ready implements Future.
func (f *future) Ready() bool { return f.done }

// settled returns a future that is already resolved.
func (m *machine) settled(err error) *future { return &future{m: m, done: true, err: err} }

// resolve sets the result. The first call counts: a cancelled activity may complete later.
func (f *future) resolve(value payload.Payload, err error) {
	if f.done {
		return
	}
	f.done, f.value, f.err = true, value, err
	if f.scope != nil {
		delete(f.scope.open, f.seq)
	}
	delete(f.m.steps, f.seq)
	for _, w := range f.waiters {
		w.notify()
	}
	f.waiters = nil
}

// cancel requests the end of the activity, timer, child or awakeable and resolves the future immediately, unless the
// options require waiting for the end.
func (f *future) cancel() {
	if f.done || f.cancelRequested {
		return
	}
	c := &protocol.Command{Target: f.seq}
	err := ErrCancelled
	switch f.kind {
	case activityStep:
		c.Type, c.UntilEnded = protocol.CancelActivity, f.waitForEnd
		err = &ActivityError{
			ActivityType: f.name, Sequence: f.seq, Type: typeCancelled, Message: "cancelled by the workflow", Cancelled: true,
		}
	case timerStep:
		c.Type = protocol.CancelTimer
	case childStep, attachStep:
		c.Type = protocol.CancelChildWorkflow
		err = &ChildError{
			WorkflowType: f.name, WorkflowID: f.workflowID, Sequence: f.seq, Type: typeCancelled,
			Message:   "cancelled by the parent",
			Cancelled: true,
		}
	case awakeableStep:
		c.Type = protocol.CancelAwakeable
	}
	f.m.issue(c)
	if f.cancelRequested = f.waitForEnd; !f.cancelRequested {
		f.resolve(payload.Payload{}, err)
	}
}

// Get implements Future.
func (f *future) Get(ctx Context, out any) error {
	if !f.done {
		w := &waiter{need: 1, items: []*future{f}, ends: true}
		if err := wait(ctx, w, func() bool { return f.done }, f); err != nil {
			return err
		}
	}
	if f.err != nil || out == nil {
		return f.err
	}
	if err := payload.Decode(f.value, out); err != nil {
		switch f.kind {
		case activityStep:
			return fmt.Errorf("result of activity %q: %w", f.name, err)
		case childStep, attachStep:
			return fmt.Errorf("result of child workflow %q: %w", f.name, err)
		case awakeableStep:
			return fmt.Errorf("result of awakeable %q: %w", f.name, err)
		}
		return fmt.Errorf("result of a future: %w", err)
	}
	return nil
}

// ending reports whether the branch waits for the end of a cancelled activity or child.
func (w *waiter) ending() bool {
	return w.ends && slices.ContainsFunc(w.items, func(f *future) bool { return f.cancelRequested && !f.done })
}

// wait parks the running branch until done returns true, or the context is cancelled.
func wait(ctx Context, w *waiter, done func() bool, items ...Awaitable) error {
	c := ctx.inner()
	w.co = c.m.currentBranch()
	if c.scope.cancelled && !w.ending() {
		return ErrCancelled
	}
	for _, item := range items {
		item.attach(w)
	}
	c.scope.waiters = append(c.scope.waiters, w)
	w.co.wait = w
	for !done() && (!c.scope.cancelled || w.ending()) {
		w.co.park()
	}
	w.co.wait = nil
	c.scope.waiters = without(c.scope.waiters, w)
	for _, item := range items {
		item.detach(w)
	}
	if !done() {
		return ErrCancelled
	}
	return nil
}

// Select waits until an item is ready and returns its index, the lowest index if several items are ready. It returns
// ErrCancelled if ctx is cancelled first, and an error if items is empty. The future of a failed activity is ready, and
// its Get returns the error. An item that was cancelled with ctx is not ready. Select does not cancel the other items;
// to cancel them, start them with a separate cancellable context.
func Select(ctx Context, items ...Awaitable) (int, error) {
	if len(items) == 0 {
		return -1, errors.New("select without futures would block forever")
	}
	scope := ctx.inner().scope
	won := func() int {
		for i, item := range items {
			if f, ok := item.(Future); item.isReady() && !(ok && scope.cancelled && errors.Is(f.self().err, ErrCancelled)) {
				return i
			}
		}
		return -1
	}
	if won() < 0 {
		w := &waiter{}
		var wrong error
		err := wait(ctx, w, func() bool {
			if won() >= 0 {
				return true
			}
			w.need = 1
			for _, item := range items {
				if s, ok := item.(*SignalChannel); ok && wrong == nil {
					wrong = s.openWait()
				}
			}
			return wrong != nil
		}, items...)
		if err = cmp.Or(wrong, err); err != nil {
			return -1, err
		}
	}
	return won(), nil
}

// Join waits for all futures and returns the first error in their order. Futures that were started together, and for
// which only this Join waits, cause one workflow task: when the last of them is ready. A branch that waits for one of
// them later is not woken earlier.
func Join(ctx Context, futures ...Future) error {
	w := &waiter{join: true, ends: true}
	var open []Awaitable
	seen := map[*future]bool{}
	for _, one := range futures {
		f := one.self()
		if !f.done && !seen[f] {
			seen[f] = true
			open = append(open, f)
			w.items = append(w.items, f)
		}
	}
	if w.need = len(open); w.need > 0 {
		if err := wait(ctx, w, func() bool { return w.need <= 0 }, open...); err != nil {
			return err
		}
	}
	for _, f := range futures {
		if err := f.Get(ctx, nil); err != nil {
			return err
		}
	}
	return nil
}

// Await waits for a future like Get, and returns the result as a T.
func Await[T any](ctx Context, f Future) (T, error) {
	var v T
	err := f.Get(ctx, &v)
	return v, err
}

// NewFuture returns a future for which branches can wait, and the function that resolves it with a value or an error.
// Further calls of that function have no effect.
func NewFuture(ctx Context) (Future, func(value any, err error)) {
	m := ctx.inner().m
	f := &future{m: m, kind: branchStep}
	return f, func(value any, err error) {
		m.currentBranch()
		var p payload.Payload
		if err == nil {
			p, err = payload.Encode(value)
		}
		f.resolve(p, err)
	}
}
