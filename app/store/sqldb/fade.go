package sqldb

import (
	"time"
)

// What is remembered of a run makes its next step cheap. One that sleeps for days takes none, and a hundred thousand of
// them are a hundred megabytes: what nobody used for a while is forgotten, and read again when it wakes up.

// fadeEvery is how long a round takes. What was not used in a whole one goes, so after one to two of them.
const fadeEvery = 30 * time.Second

// mostFaded is the most that a list forgets at once, since who comes meanwhile waits for it, and fadeOn how soon it
// continues.
const (
	mostFaded = 1000
	fadeOn    = 5 * time.Millisecond
)

// fading is a list whose entries fade.
type fading interface {
	round()             // begins one
	fade(most int) bool // forgets what was not used in the last round, and says whether there is more of it
	len() int
}

// rester gives memory back while nothing happens.
type rester interface{ Rest() error }

// fades are the lists that do: all of which each entry can be read again, except for that of workers, with whose rows
// a fleet at rest is stored.
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

// fade forgets some, and when there is nothing left gives memory back.
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
			_ = r.Rest() // it has what it had
		}
	}
}
