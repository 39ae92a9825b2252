package engine

import (
	"cmp"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An awakeable is a promise of a run that a caller outside of Sojourn resolves by its ID, once. It belongs to the run:
// when the run closes or continues as new, open awakeables end without an outcome.

const (
	// AwakeableWait is the kind of a wait for an awakeable.
	AwakeableWait = "awakeable"
	// AwakeableTimeout is the kind of the timer of an awakeable, which shares its command number.
	AwakeableTimeout = "awakeable_timeout"
)

// openAwakeable opens an awakeable, with its timer if the command has a timeout.
func (st *step) openAwakeable(c protocol.Command, seq int64) {
	limit, limited := c.Wait()
	id := StepID(st.ID, seq)
	st.emit(&history.AwakeableOpened{Sequence: seq, AwakeableID: id, Timeout: limit})
	if limited {
		st.emit(&history.TimerScheduled{
			Sequence: seq, TimerID: id, Delay: limit, FireAt: plus(st.now, seconds(limit)), Kind: AwakeableTimeout,
		})
	}
}

// ResolveAwakeable ends an open awakeable with a result, or with a failure if Failure is set. Hash is the hash of the
// request, by which the app recognizes a repetition in history.
type ResolveAwakeable struct {
	Seq      int64
	ID       string // of the awakeable
	Result   string
	Failure  *protocol.Failure
	Hash     string
	Identity string
}

// ErrAwakeableNotOpen is the refusal of an outcome for an awakeable that the run does not have open. The caller of the
// decision reads history to tell an awakeable that ended from one that never existed.
var ErrAwakeableNotOpen = protocol.Refuse(protocol.ReasonAwakeableClosed, "the awakeable is not open")

func (in ResolveAwakeable) decide(st *step) error {
	id := st.AwakeableID(in.Seq)
	if w, ok := st.Waits.Get(in.Seq); !ok || w.Kind != AwakeableWait || in.ID != id {
		return ErrAwakeableNotOpen
	}
	st.cancelAwakeableTimer(in.Seq)
	if f := in.Failure; f != nil {
		failure := storedFailure(*f)
		failure.ID, failure.Category = st.failureID(), "awakeable"
		st.emit(&history.AwakeableFailed{
			Sequence: in.Seq, AwakeableID: id, BodyHash: in.Hash, Identity: in.Identity, Failure: failure,
		})
		st.d.Answer = Answer{Outcome: "failed", Recorded: true}
		return nil
	}
	st.emit(&history.AwakeableCompleted{
		Sequence: in.Seq, AwakeableID: id, Result: in.Result, PayloadCodec: codecOf(in.Result), BodyHash: in.Hash,
		Identity: in.Identity,
	})
	st.d.Answer = Answer{Outcome: "completed", Recorded: true}
	return nil
}

// cancelAwakeableTimer ends the timer of an awakeable before the event that ends the awakeable, so that history does
// not contain two outcomes.
func (st *step) cancelAwakeableTimer(seq int64) {
	if t, ok := st.Timers.Get(seq); ok {
		st.emit(&history.TimerCancelled{Sequence: seq, TimerID: StepID(st.ID, seq), Kind: t.Kind})
	}
}

// timeOutAwakeable ends an awakeable by its timer.
func (st *step) timeOutAwakeable(seq int64, t Timer) {
	id := st.AwakeableID(seq)
	st.emit(&history.TimerFired{Sequence: seq, TimerID: StepID(st.ID, seq), Delay: t.Delay, Kind: t.Kind})
	st.emit(&history.AwakeableTimedOut{Sequence: seq, AwakeableID: id, Timeout: t.Delay})
}

// cancelAwakeable ends an awakeable because its workflow no longer waits for it, or records that it had already ended.
func (st *step) cancelAwakeable(target, seq int64) {
	w, ok := st.Waits.Get(target)
	d := &history.AwakeableCancelRequested{CommandSequence: seq, Target: target, Effect: cancelTooLate}
	if ok = ok && w.Kind == AwakeableWait; ok {
		d.Effect = cancelDone
	}
	st.emit(d)
	if ok {
		st.cancelAwakeableTimer(target)
		st.closeAwakeable(target, cancelledByFlow)
	}
}

// closeAwakeable ends an awakeable without an outcome.
func (st *step) closeAwakeable(seq int64, why string) {
	st.emit(&history.AwakeableClosed{Sequence: seq, AwakeableID: st.AwakeableID(seq), Reason: why})
}

func (s *Run) awakeableOpened(d *history.AwakeableOpened) {
	s.NeedsAwakeables = true
	w := Wait{Kind: AwakeableWait}
	if d.AwakeableID != StepID(s.ID, d.Sequence) { // a copied event; callers know the ID
		w.ID = d.AwakeableID
	}
	s.Waits.Put(d.Sequence, w)
}

// AwakeableID returns the ID of an open awakeable.
func (s *Run) AwakeableID(seq int64) string {
	w, _ := s.Waits.Get(seq)
	return cmp.Or(w.ID, StepID(s.ID, seq))
}

// awakeableEnded removes an awakeable and wakes the code that may wait for it.
func (s *Run) awakeableEnded(seq int64, e history.Event) {
	id := s.AwakeableID(seq)
	s.Waits.Delete(seq)
	s.wakeForEndedStep(e, "", Cause{Kind: AwakeableWait, Sequence: seq, ID: id})
}

// openAwakeables returns the number of open awakeables, and how many of them have a timeout.
func (s *Run) openAwakeables() (n, timeouts int) {
	if !s.NeedsAwakeables {
		return 0, 0
	}
	for seq, w := range s.Waits.All() {
		if w.Kind != AwakeableWait {
			continue
		}
		n++
		if _, ok := s.Timers.Get(seq); ok {
			timeouts++
		}
	}
	return n, timeouts
}

// awakeableWait returns the wait for an open awakeable: its ID, the end of its timeout, and the number of others.
func (s *Run) awakeableWait(seq int64) protocol.Wait {
	open, _ := s.openAwakeables()
	w := protocol.Wait{Reason: protocol.WaitAwakeable, Name: s.AwakeableID(seq), More: open - 1}
	if t, ok := s.Timers.Get(seq); ok {
		w.Until = t.FireAt
	}
	return w
}
