// Package clock measures the age of an app's responses and detects that this process was paused, so that no task
// starts under an expired lease. A process that was paused reads old messages when it resumes, and without this check
// would treat them as new.
package clock

import "time"

// maxClockDifference is the maximum difference of the two clocks of a process over a time span. Above it neither clock
// is trusted.
const maxClockDifference = time.Second

// Elapsed is a span of time by both clocks of this process. The monotonic one is paused while the machine is suspended,
// the wall clock may be set.
type Elapsed struct{ Mono, Wall time.Duration }

// Between returns the time from a to b, which must both come from time.Now.
func Between(a, b time.Time) Elapsed {
	return Elapsed{Mono: b.Sub(a), Wall: b.Round(0).Sub(a.Round(0))}
}

// Longest returns the elapsed time by the clock that counted more of it.
func (e Elapsed) Longest() time.Duration { return max(e.Mono, e.Wall) }

// Agree reports whether both clocks measured the same time.
func (e Elapsed) Agree() bool { return (e.Mono - e.Wall).Abs() <= maxClockDifference }

// recent is the time for which the delay of a response is remembered: at least this long, at most twice as long, and
// longer if no other response arrives.
const recent = time.Minute

// Ages estimates the age of responses that contain the store's time: how much later than the fastest recent response
// each was read. The zero value is ready. It is not safe for concurrent use.
type Ages struct {
	began time.Duration // begin of the newer window
	// The shortest ways from the store's time to ours in the window before, and in the newer one.
	old, best *Elapsed
}

// Of returns the age of a response that contains the time store of the store's clock. at is the time of this process
// when it read the response; all values of at must have the same origin. known is false for the first response, because
// there is no other response to compare with.
func (a *Ages) Of(at Elapsed, store time.Time) (age Elapsed, known bool) {
	way := Elapsed{at.Mono - time.Duration(store.UnixNano()), at.Wall - time.Duration(store.UnixNano())}
	best, known := a.shortest()
	if known {
		age = Elapsed{max(0, way.Mono-best.Mono), max(0, way.Wall-best.Wall)}
	}
	a.addSample(at, way)
	return age, known
}

func (a *Ages) shortest() (Elapsed, bool) {
	switch {
	case a.best == nil:
		return Elapsed{}, false
	case a.old == nil:
		return *a.best, true
	}
	return Elapsed{min(a.old.Mono, a.best.Mono), min(a.old.Wall, a.best.Wall)}, true
}

func (a *Ages) addSample(at, way Elapsed) {
	if a.best == nil || at.Longest()-a.began > recent {
		first := way
		a.began, a.old, a.best = at.Longest(), a.best, &first
		return
	}
	a.best.Mono, a.best.Wall = min(a.best.Mono, way.Mono), min(a.best.Wall, way.Wall)
}
