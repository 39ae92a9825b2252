package clock

import "time"

// Verdict is the decision about a task before its code begins.
type Verdict int

// The verdicts.
const (
	Begin   Verdict = iota // its lease lives
	Confirm                // ask the app: only a renewal shows that it does
	Drop                   // its lease has expired
)

func (v Verdict) String() string { return [...]string{"begin", "confirm", "drop"}[v] }

// Lease describes a task's lease when the task's code is about to begin.
type Lease struct {
	// time since an instant at or before the start of the lease: when a renewal was sent, or when the task was leased
	Since  Elapsed
	Lasts  time.Duration // how long it lives from then on, less a margin
	Known  bool          // Since is exact and not only a lower bound: a longer time means that the lease has expired
	Paused bool          // the process may have been stopped meanwhile
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
