package workflow

import "time"

// Until waits until a condition over the workflow's variables is true. It evaluates the condition after each change in
// the run: other branches and update handlers change variables, and futures become ready. The condition must be
// read-only: calling functions of this package other than AllHandlersFinished, Info, Now and Logger panics. Until
// returns ErrCancelled if ctx is cancelled first. History does not record the wait.
func Until(ctx Context, condition func() bool) error {
	c := ctx.inner()
	co := c.m.currentBranch()
	switch {
	case c.m.evaluate("a condition", condition):
		return nil
	case c.scope.cancelled:
		return ErrCancelled
	}
	w := &waiter{co: co}
	c.scope.waiters = append(c.scope.waiters, w)
	c.m.conditions = append(c.m.conditions, co)
	defer func() { // also if the condition panics
		c.m.conditions = without(c.m.conditions, co)
		c.scope.waiters = without(c.scope.waiters, w)
	}()
	for {
		co.park()
		switch {
		case c.m.evaluate("a condition", condition):
			return nil
		case c.scope.cancelled:
			return ErrCancelled
		}
		co.onlyEvaluated = true
	}
}

// UntilTimeout is like Until, but waits for at most d, by a durable timer. It returns false after the timeout.
func UntilTimeout(ctx Context, d time.Duration, condition func() bool) (bool, error) {
	m := ctx.inner().m
	m.currentBranch()
	if m.evaluate("a condition", condition) {
		return true, nil
	}
	under, cancel := WithCancel(ctx)
	defer cancel()
	timer := NewTimer(under, d)
	met := false
	err := Until(ctx, func() bool { met = condition(); return met || timer.Ready() })
	if err == nil && !met {
		err = timer.self().err // the timer was cancelled with ctx; this is not a timeout
	}
	return met, err
}

// evaluate evaluates a condition, which must be read-only.
func (m *machine) evaluate(what string, condition func() bool) bool {
	m.readOnlyCode = what
	defer func() { m.readOnlyCode = "" }()
	return condition()
}

// wakeConditions queues the branches that wait for a condition, if the run has changed since the last evaluation. It
// reports whether it queued any.
func (m *machine) wakeConditions() bool {
	if !m.changed || len(m.conditions) == 0 {
		return false
	}
	m.changed = false
	for _, co := range m.conditions {
		m.ready(co)
	}
	return true
}
