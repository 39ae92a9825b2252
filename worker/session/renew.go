package session

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Renewals that are due within this fraction of the interval (a quarter) are sent in the same request as a renewal that
// is due now.
const batchFraction = 4

// Suspended is how long a worker keeps the state of a session after the session's lease has ended. Meanwhile each
// heartbeat of the worker asks the app to resume the session.
const Suspended = protocol.SuspendedState

// retryAfter is the pause after a renewal to which no app responded.
const retryAfter = time.Second

// Due returns the sessions whose leases must be renewed now, and the time of the next renewal (zero: none). It omits
// sessions that were idle for too long, so that their leases expire, and drops sessions whose leases have expired.
func (s *Sessions) Due(now time.Time) (renew []protocol.SessionRenewal, next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var soon []*Holding
	due := false
	for _, h := range s.held {
		if !h.until.After(now) && (h.active == 0 || h.suspends) {
			switch {
			case !s.suspend(h, now):
			case now.Before(h.notBefore):
				next = earlier(next, h.notBefore)
			default:
				renew = append(renew, protocol.SessionRenewal{SessionID: h.ID, Epoch: h.Epoch, Resume: true})
			}
			continue
		}
		if h.idling(now) {
			s.releaseIdle(h, now)
			next = earlier(next, h.until)
			continue
		}
		at := h.renewal()
		due = due || !now.Before(at)
		if now.Before(at.Add(-h.interval / batchFraction)) {
			next = earlier(next, at)
		} else {
			soon = append(soon, h)
		}
	}
	for _, h := range soon {
		if due {
			renew = append(renew, protocol.SessionRenewal{SessionID: h.ID, Epoch: h.Epoch, FailFast: h.failFast})
		} else {
			next = earlier(next, h.renewal())
		}
	}
	for id, epoch := range s.givenUp {
		if due || len(renew) > 0 || !now.Before(s.reportAt) {
			renew = append(renew, protocol.SessionRenewal{SessionID: id, Epoch: epoch, GivenUp: true})
		} else {
			next = earlier(next, s.reportAt)
		}
	}
	return renew, next
}

// suspend suspends a session whose lease has ended by the worker's clock. If the session cannot be suspended, the
// worker drops its state and suspend returns false. The caller must hold mu.
func (s *Sessions) suspend(h *Holding, now time.Time) bool {
	switch {
	case h.idling(now):
		s.remove(h, protocol.EndedLeaseExpired)
		return false
	case !h.suspends, !h.suspended.IsZero() && now.Sub(h.suspended) >= Suspended:
		s.giveUp(h, protocol.EndedLeaseExpired)
		return false
	case h.suspended.IsZero():
		h.suspended = now
		s.log.Info().Str("session_id", h.ID).Int64("epoch", h.Epoch).Int("active", h.active).
			Msg("session suspended: its lease could not be renewed in time")
	}
	return true
}

// giveUp drops the state of an epoch that the app may still lease to this worker. The next heartbeat reports the epoch.
// The caller must hold mu.
func (s *Sessions) giveUp(h *Holding, reason string) {
	s.remove(h, reason)
	s.givenUp[h.ID] = h.Epoch
}

// idling reports whether the session has been idle for so long that its lease is not renewed. The caller must hold mu.
func (h *Holding) idling(now time.Time) bool {
	return h.active == 0 && h.idle > 0 && now.Sub(h.last) >= h.idle
}

// Renewed processes the app's response to renewals. The worker sent the request at sent, and the app created the
// response at store by the store's clock. Renewed drops sessions that the app reports as not held. If err is set, all
// sessions stay and are renewed again.
func (s *Sessions) Renewed(
	sent, store time.Time, renewals []protocol.SessionRenewal, states []protocol.SessionState, err error,
) {
	if len(renewals) == 0 {
		return
	}
	answers := make(map[string]protocol.SessionState, len(states))
	for _, a := range states {
		answers[a.SessionID] = a
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range renewals {
		a, ok := answers[r.SessionID]
		if r.GivenUp {
			switch {
			case err != nil || !ok || a.Held:
				s.reportAt = time.Now().Add(retryAfter)
			case s.givenUp[r.SessionID] == r.Epoch:
				delete(s.givenUp, r.SessionID)
			}
			continue
		}
		h := s.held[r.SessionID]
		if h == nil || h.Epoch != r.Epoch {
			continue // the session was dropped, or acquired anew, meanwhile
		}
		switch {
		case err != nil || !ok || a.Held && a.LeaseExpiresAt.IsZero():
			h.notBefore = time.Now().Add(min(retryAfter, h.interval/4))
		case !a.Held || a.Epoch > h.Epoch:
			if r.Resume && a.Epoch <= h.Epoch {
				s.giveUp(h, orElse(a.Reason, "not held"))
			} else {
				s.remove(h, orElse(a.Reason, "not held"))
			}
		default:
			if !h.suspended.IsZero() {
				s.log.Info().Str("session_id", h.ID).Int64("epoch", h.Epoch).
					Float64("suspended_seconds", time.Since(h.suspended).Seconds()).Msg("session resumed")
			}
			h.suspended = time.Time{}
			// a later renewal may not move the end: a session with a time to live has a latest end
			h.notBefore = sent.Add(h.interval / 4)
			h.extend(Lease{sent, store, a.LeaseExpiresAt.Time}.until(h.lease))
			if a.Snapshot && s.opt.TakeSnapshot != nil {
				s.opt.TakeSnapshot(h.ID, h.Epoch)
			}
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
