package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A timer is a row with the time it fires at. Nothing waits in memory for it, so it outlives every process; the
// sweeper finds it when it is due.

// startTimer opens a timer. Microseconds, if the command has them, are exact; Delay stays next to them for replayers
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

// cancelTimer stops a timer, or records that it was too late: a replay must take the same branch as the code
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

// The effects of a cancellation in the history.
const (
	cancelDone    = "cancelled" // the step ends at once
	cancelTooLate = "too_late"  // the step had ended
	// cancelRequested leaves an activity or child open: its worker, or its run, is asked to stop and reports its end.
	cancelRequested = "requested"
	// cancelAbandoned is the effect for an activity or child with the policy abandon: it continues, and its outcome is
	// recorded when it ends.
	cancelAbandoned = "abandoned"
)

// FireTimer is a timer whose time has come.
type FireTimer struct{ Seq int64 }

// decide judges the time anew: the sweeper that names the timer may have read it before it was cancelled.
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
	st.emit(&history.TimerFired{
		Sequence: in.Seq, TimerID: StepID(st.ID, in.Seq), Delay: t.Delay, Kind: t.Kind, Parallel: t.Parallel,
	})
	return nil
}
