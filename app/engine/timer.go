package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A timer is a row with the time at which it fires. No process waits for it, so it outlives every process; the sweeper
// finds it when it is due.

// startTimer opens a timer. If the command has microseconds, they are exact; Delay is stored in addition, for replayers
// that read whole seconds.
func (st *step) startTimer(c protocol.Command, seq int64) {
	delay := seconds(*c.Delay)
	if c.DelayMicros > 0 {
		delay = time.Duration(c.DelayMicros) * time.Microsecond
	}
	st.emit(&history.TimerScheduled{
		Sequence: seq, TimerID: StepID(st.ID, seq), Delay: *c.Delay, DelayMicros: c.DelayMicros, FireAt: plus(st.now, delay),
		Parallel: c.Parallel,
	})
}

// cancelTimer cancels a timer, or records that it had already fired: a replay must take the same branch as the code
// did.
func (st *step) cancelTimer(target, seq int64) {
	t, ok := st.Timers.Get(target)
	d := &history.TimerCancelRequested{CommandSequence: seq, Target: target, Effect: cancelTooLate}
	if ok {
		d.Effect = cancelDone
	}
	st.emit(d)
	if ok {
		st.emit(&history.TimerCancelled{Sequence: target, TimerID: StepID(st.ID, target), Kind: t.Kind, Parallel: t.Parallel})
	}
}

// These are the effects of a cancellation, as history records them.
const (
	cancelDone    = "cancelled" // the step ended immediately
	cancelTooLate = "too_late"  // the step had already ended
	// cancelRequested: the activity or child stays open. Its worker, or its run, is asked to stop and reports its end.
	cancelRequested = "requested"
	// cancelAbandoned: the activity or child has the policy abandon. It continues, and its outcome is recorded when it
	// ends.
	cancelAbandoned = "abandoned"
)

// FireTimer fires a timer that is due.
type FireTimer struct{ Seq int64 }

// decide checks the timer again: it may have been cancelled after the sweeper read it.
func (in FireTimer) decide(st *step) error {
	if err := st.mustBeOpen(); err != nil {
		return err
	}
	t, ok := st.Timers.Get(in.Seq)
	if !ok || t.FireAt.After(st.now.Time) {
		return errNotDue
	}
	if t.Kind == ConditionTimeout {
		return st.timeOutCondition(in.Seq, t)
	}
	if t.Kind == AwakeableTimeout {
		st.timeOutAwakeable(in.Seq, t)
		return nil
	}
	st.emit(&history.TimerFired{
		Sequence: in.Seq, TimerID: StepID(st.ID, in.Seq), Delay: t.Delay, Kind: t.Kind, Parallel: t.Parallel,
	})
	return nil
}
