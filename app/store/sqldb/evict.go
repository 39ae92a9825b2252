package sqldb

import (
	"time"
)

// The cached state of a run makes its next step cheap. A run that sleeps for days has no steps, and a hundred thousand
// such runs use a hundred megabytes. Therefore entries that were not used for some time are evicted, and read again
// when the run continues.

// evictionRound is the length of a round. An entry that was not used during a whole round is evicted, which is one to
// two rounds after its last use.
const evictionRound = 30 * time.Second

// maxEvictions is the maximum number of entries that a cache evicts at once, since transactions wait for the eviction;
// evictionPause is the pause before the next ones.
const (
	maxEvictions  = 1000
	evictionPause = 5 * time.Millisecond
)

// evictable is a cache whose unused entries are evicted.
type evictable interface {
	nextRound()          // starts a round
	evict(most int) bool // evicts entries that were not used in the last round, and reports whether more remain
	len() int
}

// memoryReleaser releases memory while the store is idle.
type memoryReleaser interface{ ReleaseMemory() error }

// evictables returns the caches whose unused entries are evicted: all caches whose entries can be read again, except
// the cache of workers, with whose rows the liveness of an idle fleet is stored.
func (s *Store) evictables() []evictable {
	c, m := s.cache, s.memory
	return []evictable{
		c.runs, c.heads, c.sessions, c.workflows, c.owners, c.sessionOf, c.stored, c.history, c.leads, m.runs, m.flows,
		m.sessions,
	}
}

// scheduleEviction starts the timer that evicts unused entries of the cache, unless it runs.
func (s *Store) scheduleEviction() {
	if s.evictionTimer == nil {
		s.evictionTimer = time.NewTimer(evictionRound)
	}
}

// evictionDue returns the channel of the eviction timer; nil while the timer does not run.
func (s *Store) evictionDue() <-chan time.Time {
	if s.evictionTimer == nil {
		return nil
	}
	return s.evictionTimer.C
}

// evictUnused evicts some entries, and releases memory when no unused entry remains.
func (s *Store) evictUnused() {
	s.evictionTimer = nil
	more, cached := false, false
	for _, l := range s.evictables() {
		if !s.evicting {
			l.nextRound()
		}
		more = l.evict(maxEvictions) || more
		cached = l.len() > 0 || cached
	}
	s.evicting = more
	switch {
	case more:
		s.evictionTimer = time.NewTimer(evictionPause)
	case cached:
		s.evictionTimer = time.NewTimer(evictionRound)
	default:
		if r, ok := s.cfg.Conn.(memoryReleaser); ok {
			_ = r.ReleaseMemory() // the next eviction tries it again
		}
	}
}
