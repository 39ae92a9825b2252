package workflow

import "time"

// Until waits until a condition over the workflow's own variables holds. It is looked at whenever something happened in
// the run: other branches and update handlers change what it looks at, and futures become ready. The condition must
// only look: calling this package in it panics, but for AllHandlersFinished, Info, Now and Logger. The error is
// ErrCancelled. Nothing of the wait is recorded.
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

// UntilTimeout is Until for at most d, by a durable timer; false says that the time ran out first.
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

// looks asks a condition, which may call nothing of this package.
func (m *Machine) looks(what string, holds func() bool) bool {
	m.reading = what
	defer func() { m.reading = "" }()
	return holds()
}

// reconsider gives turns to the branches that wait for a condition when something happened since they looked last.
func (m *Machine) reconsider() bool {
	if !m.moved || len(m.conditions) == 0 {
		return false
	}
	m.moved = false
	for _, co := range m.conditions {
		m.ready(co)
	}
	return true
}
