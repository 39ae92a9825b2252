package workflow

import (
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// BorrowOptions are the options of a loan of a session from a pool.
type BorrowOptions struct {
	Priority int // waiting workflows with priority 1 are served first, 9 last; 0: the run's priority
	// FairnessKey groups waiting workflows, such as those of one tenant; the groups are served in turn. Empty: the run's
	// key.
	FairnessKey string
	// Timeout ends the loan and the session, also if the worker or the workflow is stopped; 0: the loan has no timeout.
	Timeout time.Duration
	// WaitTimeout is the maximum time to wait for a session; afterwards Borrow fails with ErrTimeout. 0: no maximum.
	WaitTimeout time.Duration
}

// Borrow borrows a session that is set up already from a pool, and waits until one is free. The session belongs to the
// workflow ID like one of [StartSession]: other workflows cannot use it, and it survives ContinueAsNew as an argument.
// The loan ends with [Session.Return], with the last run of the workflow ID, or after Timeout. Operators create pools
// with sojourn pools set. If the pool does not exist, Borrow waits until it is created.
func Borrow(ctx Context, pool string, o BorrowOptions) (*Session, error) {
	loan, err := wholeSeconds("Timeout", o.Timeout)
	if err != nil {
		return nil, err
	}
	if o.Priority < 0 || o.Priority > 9 {
		return nil, fmt.Errorf("%w: priority %d is not between 0 and 9", ErrInvalidOptions, o.Priority)
	}
	c := ctx.inner()
	c.m.currentBranch()
	if c.scope.cancelled {
		return nil, ErrCancelled
	}
	cmd := &protocol.Command{
		Type: protocol.ScheduleActivity, ActivityType: protocol.BorrowActivity, FairnessKey: o.FairnessKey,
		Borrow: &history.Borrow{Pool: pool, Loan: loan}, Headers: c.headers,
	}
	if o.Priority > 0 {
		cmd.Priority = &o.Priority
	}
	wait, err := wholeSeconds("WaitTimeout", o.WaitTimeout)
	if err != nil {
		return nil, err
	}
	cmd.ScheduleToStart = protocol.Timeout(wait)
	if err := c.m.check(cmd); err != nil {
		return nil, fmt.Errorf("pool %q: %w", pool, err)
	}
	f := c.openStep(activityStep, protocol.BorrowActivity, cmd)
	s := &Session{}
	if err := f.Get(ctx, s); err != nil {
		return nil, err
	}
	return s, nil
}

// Return returns a borrowed session to its pool. It cancels the session's running activities. If any ran, or the state
// of the session was lost, the session ends, and the pool replaces it. For a session that was not borrowed, Return is
// [Session.End].
func (s *Session) Return(ctx Context) error { return s.End(ctx) }
