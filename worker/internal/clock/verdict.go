package clock

import "time"

// Verdict is the decision about a task before its code begins.
type Verdict int

// These are the verdicts.
const (
	Begin   Verdict = iota // the lease is valid: begin the task
	Confirm                // the lease may have expired: renew it before the task begins
	Drop                   // the lease has expired: do not begin the task
)

func (v Verdict) String() string { return [...]string{"begin", "confirm", "drop"}[v] }

// Lease describes a task's lease when the task's code is about to begin.
type Lease struct {
	// time since an instant at or before the start of the lease: when a renewal was sent, or when the task was leased
	Since  Elapsed
	Lasts  time.Duration // duration of the lease from then on, less a margin
	Known  bool          // Since is exact and not only a lower bound: a longer time means that the lease has expired
	Paused bool          // the process may have been paused since then
}

// Judge decides whether the task may begin.
func (l Lease) Judge() Verdict {
	expired := l.Since.Longest() >= l.Lasts
	switch {
	case expired && l.Known && l.Since.Agree():
		return Drop
	case expired || l.Paused || !l.Since.Agree():
		return Confirm
	}
	return Begin
}
