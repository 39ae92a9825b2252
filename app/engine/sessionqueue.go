package engine

import (
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
)

// A session of a mere id may have tasks in several queues, and its holder need not serve all of them. A task in a
// queue that the holder does not serve can only run when the session moves. It moves once the session is idle, so
// that it does not alternate between two workers while both have work in it.

// queued counts a task that became ready in the session, and has the session checked if its holder does not serve the
// task's queue.
func (s *Session) queued(queue string, now history.Time) {
	s.Ready++
	if s.Door == DoorImplicit && s.OtherAt.IsZero() && s.Held(now.Time) && len(s.HolderQueues) > 0 &&
		!slices.Contains(s.HolderQueues, queue) {
		s.OtherAt = plus(now, YieldIdle)
	}
}

// acquired notes the queues of the new holder. Tasks that are ready besides the one that acquired the session may be in
// queues that it does not serve.
func (s *Session) acquired(w *Worker, now time.Time) {
	s.HolderQueues = nil
	if s.Door != DoorImplicit {
		return
	}
	s.HolderQueues = w.Queues
	if s.Ready > 0 {
		s.OtherAt = plus(history.At(now), YieldIdle)
	}
}

// otherRetry is the pause after a check that found the session busy, or no worker that may take the waiting task.
const otherRetry = time.Second

// OtherQueue is what was read of the open tasks of a session whose holder may not serve all their queues.
type OtherQueue struct {
	Ready  int    // ready tasks
	Served int    // ready and delayed tasks in queues that the holder serves
	Queue  string // of a ready task that the holder does not serve; empty: there is none
	Taker  bool   // a live worker may take a task of Queue
}

// leaveForQueue releases a session to a worker of another queue, if it has been idle for YieldIdle and has tasks in no
// queue of its holder.
func (in DueSession) leaveForQueue(s *Session, c *SessionChange, now history.Time) {
	n := &c.Session
	idle := plus(s.lastActivity(), YieldIdle)
	o := in.Other
	switch {
	case o == nil: // the check came due after the rows were read
		n.OtherAt = plus(now, otherRetry)
	case s.Ready == 0 || o.Queue == "" && o.Ready == s.Ready:
		n.OtherAt = history.Time{}
	case s.running() > 0 || idle.After(now.Time) || s.Moving != "" || o.Served > 0 || !o.Taker || o.Queue == "" ||
		o.Ready != s.Ready && !s.Many:
		n.OtherAt = latest(idle, plus(now, otherRetry))
	default:
		c.Timeline = append(c.Timeline, n.release(now, "", ReasonOtherQueue+": a task waits in queue "+o.Queue))
	}
}
