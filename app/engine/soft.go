package engine

import (
	"maps"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// With soft affinity a task prefers the session's holder and does not depend on it. A holder that is slow must
// not lose the session to the first worker that happens to be free, so the fallback begins only after a task
// has waited for a while for this holder and for nothing else.

// FallbackAfter is the default number of seconds for which a task of a soft session waits for its holder.
const FallbackAfter = 30

// fallback returns the time after which a task falls back from its session's holder, in microseconds; 0 means hard
// affinity, without fallback.
func fallback(affinity string, after int64) int64 {
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

// setAffinity applies the affinity of an activity that refers to its session by ID only. An activity without affinity
// changes nothing.
func (s *Session) setAffinity(affinity string, after int64) {
	if affinity != "" && s.Origin == OriginImplicit {
		s.Fallback = fallback(affinity, after)
	}
}

// waits reports whether a ready task of a soft session waits only for its holder, and not for the session's activity
// limit or an operator's migration. In a workflow-scoped session, no task may be running either, since its result would
// be refused after a fallback.
func (s *Session) waits(now time.Time) bool {
	apart := s.Active == 0 || s.Origin != OriginWorkflow
	return s.Fallback > 0 && s.Ready > 0 && s.Held(now) && !s.Terminal && s.Moving == "" && !s.Drained && !s.Full() &&
		apart
}

// running counts the activities that run in the session, including attempts of former holders.
func (s *Session) running() int {
	n := s.Active
	if s.Origin == OriginWorkflow {
		return n // results of a workflow-scoped session's former holders are refused
	}
	for _, left := range s.StaleAttempts {
		n += left
	}
	return n
}

// crowded reports whether the session's activity limit is reached. Running attempts of a workflow-scoped session
// without a holder do not count: their results are refused after the next acquisition.
func (s *Session) crowded(now time.Time) bool {
	return s.Full() && (s.Origin != OriginWorkflow || s.Held(now))
}

// moveRunningToOtherEpochs counts the running attempts as attempts of an earlier epoch, when the epoch ends. Running
// attempts continue at the former holder and count towards the session's activity limit until they end.
func (s *Session) moveRunningToOtherEpochs() {
	if s.Active > 0 {
		s.StaleAttempts = maps.Clone(s.StaleAttempts) // rows are shared
		if s.StaleAttempts == nil {
			s.StaleAttempts = map[int64]int{}
		}
		s.StaleAttempts[s.Epoch] += s.Active
	}
	s.Active = 0
}

// staleAttemptEnded subtracts one attempt from the running attempts of former holders.
func (s *Session) staleAttemptEnded(epoch int64) {
	s.StaleAttempts = maps.Clone(s.StaleAttempts)
	if s.StaleAttempts[epoch]--; s.StaleAttempts[epoch] <= 0 {
		delete(s.StaleAttempts, epoch)
	}
}

// watch records the time since which tasks wait for the holder and it leases none of them. The time starts when the
// first task begins to wait for the holder, and not when the task was created: it may have waited for something else
// before.
func (s *Session) watch(now history.Time) {
	switch {
	case !s.waits(now.Time):
		s.WaitingSince, s.Open = history.Time{}, false
	case s.WaitingSince.IsZero():
		s.WaitingSince, s.Open = now, s.HolderSilent
	}
}

// SkipHolder records whether the holder of a soft session has missed two heartbeats at every app. While it has, other
// workers may claim the session as soon as a task is ready in it.
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
	if in.Silent && s.waits(now.Time) {
		c.Session.Open = true
	}
	return c, nil
}

// resetWait records that a worker leased a task in the session: the worker is neither dead nor full, and the wait
// starts again.
func (s *Session) resetWait() { s.WaitingSince, s.Open, s.HolderSilent = history.Time{}, false, false }

// OpensAt returns the time from which any worker may acquire the held session; zero: never in its current state.
func (s *Session) OpensAt() history.Time {
	if s.WaitingSince.IsZero() {
		return history.Time{}
	}
	return plus(s.WaitingSince, time.Duration(s.Fallback)*time.Microsecond)
}

// claimableByOthers reports whether a worker other than the holder may claim the session now.
func (s *Session) claimableByOthers(now time.Time) bool { return s.Open && s.waits(now) }
