package engine

import (
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A fail-fast session and the attempts in it have short leases, which their owner renews more often. After the owner
// was killed, another worker acquires the session within seconds; a network gap of that length costs the session.

// failFastLength returns the length of a lease in a fail-fast session, of which length is the usual one.
func failFastLength(length time.Duration) time.Duration { return min(length, protocol.FailFastLease) }

// LeaseLength returns the length of one renewal of the session's lease.
func (s *Session) LeaseLength() time.Duration {
	length := time.Duration(s.Lease) * time.Microsecond
	if s.FailFast {
		return failFastLength(length)
	}
	return length
}

// setFailFast makes a session fail-fast from its next acquisition on: the current owner was promised longer leases.
func (s *Session) setFailFast() {
	if !s.EverAcquired {
		s.FailFast = true
		return
	}
	n := s.numbers()
	if s.Next != nil {
		n = *s.Next
	}
	n.FailFast = true
	s.requestLimits(n)
}

// lacksFailFast reports whether the session is fail-fast in the worker's acquisition, and the worker cannot renew such
// leases in time.
func (s *Session) lacksFailFast(w *Worker) bool {
	failFast := s.FailFast
	if s.Next != nil {
		failFast = s.Next.FailFast
	}
	return failFast && !slices.Contains(w.Capabilities, protocol.CapFailFast)
}
