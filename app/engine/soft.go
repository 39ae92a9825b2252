package engine

import (
	"maps"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// With soft affinity, a task prefers the session's owner but does not depend on it. A slow owner must not lose the
// session to the first worker with a free slot, so the fallback happens only after a task has waited for some time for
// this owner and for nothing else.

// FallbackAfter is how long a task of a soft session waits for the owner by default, in seconds.
const FallbackAfter = 30

// fallbackAfter returns after which time other workers may acquire the session for a waiting task, in microseconds; 0
// means hard affinity, without fallback.
func fallbackAfter(affinity string, after int64) int64 {
	if affinity != protocol.AffinitySoft {
		return 0
	}
	return orElse(after, FallbackAfter) * 1_000_000
}

// Affinity returns the session's affinity and, for soft affinity, the seconds after which it falls back.
func (s *Session) Affinity() (affinity string, after int64) {
	if s.Fallback == 0 {
		return protocol.AffinityHard, 0
	}
	return protocol.AffinitySoft, s.Fallback / 1_000_000
}

// setAffinity applies the affinity of an activity that refers to its session only by ID. An activity without affinity
// changes nothing.
func (s *Session) setAffinity(affinity string, after int64) {
	if affinity != "" && s.Origin == OriginImplicit {
		s.Fallback = fallbackAfter(affinity, after)
	}
}

// readyTaskWaitsForOwner reports whether a ready task of a soft session waits only for the owner, and not for the
// session's activity limit or an operator's migration. In a workflow-scoped session, no task may be running either,
// since its result would be refused after a fallback.
func (s *Session) readyTaskWaitsForOwner(now time.Time) bool {
	apart := s.Active == 0 || s.Origin != OriginWorkflow
	return s.Fallback > 0 && s.Ready > 0 && s.Held(now) && !s.Terminal && s.Moving == "" && !s.Drained && !s.Full() &&
		apart
}

// running returns the number of activities that run in the session, including attempts on former owners.
func (s *Session) running() int {
	n := s.Active
	if s.Origin == OriginWorkflow {
		return n // results of former owners of a workflow-scoped session are refused, so their attempts do not count
	}
	for _, left := range s.StaleAttempts {
		n += left
	}
	return n
}

// activityLimitReached reports whether the session's activity limit is reached. Running attempts in a workflow-scoped
// session without an owner do not count: their results are refused after the next acquisition.
func (s *Session) activityLimitReached(now time.Time) bool {
	return s.Full() && (s.Origin != OriginWorkflow || s.Held(now))
}

// moveRunningToOtherEpochs counts the running attempts as stale attempts when the epoch ends. They continue on the
// former owner and count towards the session's activity limit until they end.
func (s *Session) moveRunningToOtherEpochs() {
	if s.Active > 0 {
		s.StaleAttempts = maps.Clone(s.StaleAttempts) // copy the map, because rows are shared
		if s.StaleAttempts == nil {
			s.StaleAttempts = map[int64]int{}
		}
		s.StaleAttempts[s.Epoch] += s.Active
	}
	s.Active = 0
}

// staleAttemptEnded counts one stale attempt less.
func (s *Session) staleAttemptEnded(epoch int64) {
	s.StaleAttempts = maps.Clone(s.StaleAttempts)
	if s.StaleAttempts[epoch]--; s.StaleAttempts[epoch] <= 0 {
		delete(s.StaleAttempts, epoch)
	}
}

// recordWaiting records since when tasks have been waiting for the owner without being leased by it. The time starts
// when the first task begins to wait for the owner, not when the task was created: it may have waited for something
// else before.
func (s *Session) recordWaiting(now history.Time) {
	switch {
	case !s.readyTaskWaitsForOwner(now.Time):
		s.WaitingSince, s.Open = history.Time{}, false
	case s.WaitingSince.IsZero():
		s.WaitingSince, s.Open = now, s.HolderSilent
	}
}

// SkipHolder records whether every app has missed two heartbeats of a soft session's owner. While that is so, other
// workers may acquire the session as soon as a task is ready in it.
type SkipHolder struct {
	Worker, Incarnation string
	Silent              bool
}

func (in SkipHolder) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil || s.Fallback == 0 || !s.Held(now.Time) || s.Owner != in.Worker || s.Incarnation != in.Incarnation ||
		s.HolderSilent == in.Silent {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	c.Session.HolderSilent, c.Session.UpdatedAt = in.Silent, now
	if in.Silent && s.readyTaskWaitsForOwner(now.Time) {
		c.Session.Open = true
	}
	return c, nil
}

// resetWait records that the owner leased a task in the session: it is neither dead nor full, and the waiting time
// starts again.
func (s *Session) resetWait() { s.WaitingSince, s.Open, s.HolderSilent = history.Time{}, false, false }

// OpensAt returns when any worker may acquire the held session; zero: never in its current state.
func (s *Session) OpensAt() history.Time {
	if s.WaitingSince.IsZero() {
		return history.Time{}
	}
	return plus(s.WaitingSince, time.Duration(s.Fallback)*time.Microsecond)
}

// claimableByOthers reports whether a worker other than the owner may acquire the session now.
func (s *Session) claimableByOthers(now time.Time) bool {
	return s.Open && s.readyTaskWaitsForOwner(now)
}
