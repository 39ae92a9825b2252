package workflow

import "time"

// Until waits until a condition over the workflow's variables is true. The condition is evaluated after each change in
// the run: other branches and update handlers change variables, and futures become ready. The condition must be
// read-only: calling functions of this package other than AllHandlersFinished, Info, Now and Logger panics. The error
// is ErrCancelled. The wait is not recorded in history.
func Until(ctx Context, holds func() bool) error {
	c := ctx.inner()
	co := c.m.here()
	switch {
	case c.m.looks("a condition", holds):
		return nil
	case c.scope.cancelled:
		return ErrCancelled
	}
	w := &waiter{co: co}
	c.scope.waiters = append(c.scope.waiters, w)
	c.m.conditions = append(c.m.conditions, co)
	defer func() { // also when the condition panics
		c.m.conditions = without(c.m.conditions, co)
		c.scope.waiters = without(c.scope.waiters, w)
	}()
	for {
		co.park()
		switch {
		case c.m.looks("a condition", holds):
			return nil
		case c.scope.cancelled:
			return ErrCancelled
		}
		co.looked = true
	}
}

// UntilTimeout is Until for at most d, with a durable timer; false reports a timeout.
func UntilTimeout(ctx Context, d time.Duration, holds func() bool) (bool, error) {
	m := ctx.inner().m
	m.here()
	if m.looks("a condition", holds) {
		return true, nil
	}
	under, cancel := WithCancel(ctx)
	defer cancel()
	timer := NewTimer(under, d)
	met := false
	err := Until(ctx, func() bool { met = holds(); return met || timer.Ready() })
	if err == nil && !met {
		err = timer.self().err // a timer that was cancelled with ctx is no time that ran out
	}
	return met, err
}

// looks evaluates a condition, which must be read-only.
func (m *Machine) looks(what string, holds func() bool) bool {
	m.reading = what
	defer func() { m.reading = "" }()
	return holds()
}

// reconsider schedules the branches that wait for a condition if the run changed since the last evaluation.
func (m *Machine) reconsider() bool {
	if !m.progressed || len(m.conditions) == 0 {
		return false
	}
	m.progressed = false
	for _, co := range m.conditions {
		m.ready(co)
	}
	return true
}
