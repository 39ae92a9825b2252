package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// After a worker has registered, idle sessions with a hand-over move to it until the workers hold about the same number
// of sessions: after a rolling restart, the worker that started last would hold few.

// Sessions move to a worker from balanceDelay until balanceWindow after it registered, at most one per BalanceInterval.
// With the delay, the hand-overs of a deployment come first.
const (
	balanceDelay    = 30 * time.Second
	balanceWindow   = 10 * time.Minute
	BalanceInterval = time.Minute
)

// balanceWait is how long after the set-up a session waits for the end of its running activities. Afterwards the
// prepared state is discarded and the session stays with its owner.
const balanceWait = time.Minute

// MayBalance reports whether a session may move to a worker for balance now.
func (w *Worker) MayBalance(now time.Time) bool {
	age := now.Sub(w.RegisteredAt.Time)
	return w.MaxSessions > 0 && age >= balanceDelay && age <= balanceWindow &&
		now.Sub(w.BalancedAt.Time) >= BalanceInterval
}

// Imbalanced reports whether one session should move from an owner to a worker, by their numbers of sessions: the owner
// holds over 20 % more, and the move reduces the difference.
func Imbalanced(owner, worker int) bool {
	return owner-worker >= 2 && 5*(owner-worker) > worker
}

// unused reports whether no activity runs in the session or waits for it.
func (s *Session) unused() bool { return s.running() == 0 && s.Ready == 0 && !s.MoreReady }

// Balances reports whether the session may move to a worker that holds fewer sessions than the owner.
func (s *Session) Balances(owner, to *Worker, now time.Time) bool {
	return !s.Terminal && s.HeldBy(owner.ID, now) && s.Moving == "" && !s.Yielding && s.Preparing(now) == nil &&
		s.unused() && s.HandsOver(owner, to)
}

// IdleSince returns the time of the session's last activity.
func (s *Session) IdleSince() time.Time { return s.lastActivity().Time }

// Why returns the reason of the hand-over for the timeline; empty: the owner drains.
func (p *Preparation) Why() string {
	if p.Balance {
		return protocol.EndedRebalanced
	}
	return ""
}

// DrainPreparation continues a preparation for balance as a hand-over, because the owner drains: the session now moves
// when its running activities have ended.
type DrainPreparation struct {
	Preparation Preparation
	Operator    string
}

func (in DrainPreparation) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil || s.Preparing(now.Time) == nil || !s.Prepare.Balance || !s.Prepare.continues(&in.Preparation) {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	p := *s.Prepare
	p.Balance, p.Operator = false, in.Operator
	c.Session.Prepare, c.Session.UpdatedAt = &p, now
	return c, nil
}
