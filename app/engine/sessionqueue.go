package engine

import (
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
)

// An implicit session may have tasks in several queues, and its owner need not poll all of them. A task in a queue that
// the owner does not poll can run only after the session has moved. The session moves only when it is idle: otherwise
// it would alternate between two workers that both have tasks of it.

// queued counts a task that became ready in the session. If the owner does not poll the task's queue, it schedules the
// check of the session (OtherAt).
func (s *Session) queued(queue string, now history.Time) {
	s.Ready++
	if s.Origin == OriginImplicit && s.OtherAt.IsZero() && s.Held(now.Time) && len(s.HolderQueues) > 0 &&
		!slices.Contains(s.HolderQueues, queue) {
		s.OtherAt = plus(now, YieldIdle)
	}
}

// acquired records the queues of the new owner. Other ready tasks of the session may be in queues that the owner does
// not poll, so a check is scheduled.
func (s *Session) acquired(w *Worker, now time.Time) {
	s.HolderQueues = nil
	if s.Origin != OriginImplicit {
		return
	}
	s.HolderQueues = w.Queues
	if s.Ready > 0 {
		s.OtherAt = plus(history.At(now), YieldIdle)
	}
}

// otherRetry is the pause after a check that found the session busy, or no live worker that may lease the waiting task.
const otherRetry = time.Second

// OtherQueue describes the open tasks of a session whose owner may not poll all their queues.
type OtherQueue struct {
	Ready  int    // number of ready tasks
	Served int    // number of ready and delayed tasks in queues that the owner polls
	Queue  string // queue of a ready task that the owner does not poll; empty: none
	Taker  bool   // a live worker may lease a task of Queue
}

// releaseForQueue releases a session that has been idle for YieldIdle and has tasks only in queues that its owner does
// not poll, if a live worker may lease such a task.
func (in DueSession) releaseForQueue(s *Session, c *SessionChange, now history.Time) {
	n := &c.Session
	idle := plus(s.lastActivity(), YieldIdle)
	o := in.Other
	switch {
	case o == nil: // the check became due after the tasks were read
		n.OtherAt = plus(now, otherRetry)
	case s.Ready == 0 || o.Queue == "" && o.Ready == s.Ready:
		n.OtherAt = history.Time{}
	case s.running() > 0 || idle.After(now.Time) || s.Moving != "" || o.Served > 0 || !o.Taker || o.Queue == "" ||
		o.Ready != s.Ready && !s.MoreReady:
		n.OtherAt = latest(idle, plus(now, otherRetry))
	default:
		c.Timeline = append(c.Timeline, n.leave(now, "", ReasonOtherQueue+": a task waits in queue "+o.Queue))
	}
}
