package sqldb

import (
	"time"
)

// The cached state of a run makes its next step cheap. A run that sleeps for days has no steps, and a hundred thousand
// such runs use a hundred megabytes: entries that were not used for some time are evicted, and read again when the run
// wakes up.

// fadeEvery is the length of a round. Entries that were not used during a whole round are evicted, that is, after one
// to two rounds.
const fadeEvery = 30 * time.Second

// mostFaded is the maximum number of entries that a list evicts at once, since changes wait for the eviction; fadeOn is
// the pause before it continues.
const (
	mostFaded = 1000
	fadeOn    = 5 * time.Millisecond
)

// fading is a list whose entries fade.
type fading interface {
	round()             // begins a round
	fade(most int) bool // evicts entries that were not used in the last round, and reports whether there are more
	len() int
}

// rester releases memory while the store is idle.
type rester interface{ Rest() error }

// fades returns the lists whose entries are evicted: all lists whose entries can be read again, except the list of
// workers, whose rows store the membership of an idle fleet.
func (s *Store) fades() []fading {
	c, m := s.cache, s.memory
	return []fading{
		c.runs, c.heads, c.sessions, c.workflows, c.owners, c.sessionOf, c.stored, c.history, c.leads, m.runs, m.flows,
		m.sessions,
	}
}

// keep has what is remembered now forgotten some time.
func (s *Store) keep() {
	if s.fader == nil {
		s.fader = time.NewTimer(fadeEvery)
	}
}

// faded rings when something is to be forgotten; never while nothing is remembered.
func (s *Store) faded() <-chan time.Time {
	if s.fader == nil {
		return nil
	}
	return s.fader.C
}

// fade evicts some entries, and releases memory when there are none left to evict.
func (s *Store) fade() {
	s.fader = nil
	more, kept := false, false
	for _, l := range s.fades() {
		if !s.fadesOn {
			l.round()
		}
		more = l.fade(mostFaded) || more
		kept = l.len() > 0 || kept
	}
	s.fadesOn = more
	switch {
	case more:
		s.fader = time.NewTimer(fadeOn)
	case kept:
		s.fader = time.NewTimer(fadeEvery)
	default:
		if r, ok := s.cfg.Conn.(rester); ok {
			_ = r.Rest() // the memory is not released
		}
	}
}
