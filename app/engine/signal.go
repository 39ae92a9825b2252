package engine

import (
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A signal is accepted once it is stored, whether or not the code already waits for it. From then on the code must
// receive it exactly once: as the result of a wait or, if the run continues as new first, in the next run.

// MaxSignals is the maximum number of signals that a run may have unseen. Every step of the run loads their rows, so
// without a limit a sender could slow the run down more and more.
const MaxSignals = 5000

// SignalRun delivers a signal to the run. Value is the encoded argument array, or empty.
type SignalRun struct {
	Name      string
	Value     string
	RequestID string
	Identity  string
	Headers   history.Headers
	Trace     history.TraceContext
}

func (in SignalRun) decide(st *step) error {
	if err := st.notActive(); err != nil {
		return err
	}
	if err := st.CheckHasCode("signals"); err != nil {
		return err
	}
	if n := st.Signals.Len() + int(st.unseenInherited()); n >= MaxSignals {
		return protocol.Refuse(
			protocol.ReasonStructuralLimit, "the run has %d signals that its code has not received", n,
		).With("limit_kind", "pending_signal_count").With("current_value", n).With(
			"configured_limit", MaxSignals,
		)
	}
	st.receive(in)
	st.d.Answer.Outcome = "signal_received"
	return nil
}

// receive records a signal. If it resolves a wait with a timeout, the timer of that wait is cancelled in the same step;
// otherwise both could be recorded as the outcome of one wait.
func (st *step) receive(in SignalRun) {
	st.receiveEvent(&history.SignalReceived{
		SignalName: in.Name, SignalID: st.eventID("s"), Value: in.Value, PayloadCodec: codecOf(in.Value),
		RequestID: in.RequestID, Identity: in.Identity, Headers: in.Headers, Trace: in.Trace,
	})
}

func (st *step) receiveEvent(d *history.SignalReceived) {
	e := st.emit(d)
	st.endSelectionWaits()
	for k, t := range st.Timers.All() {
		if w, ok := st.Waits.Get(k); ok && t.Kind == SignalTimeout && w.Signal == e.Seq {
			st.emit(&history.TimerCancelled{Sequence: k, TimerID: StepID(st.ID, k), Kind: t.Kind, Parallel: t.Parallel})
		}
	}
}

// checkCarried refuses a continue-as-new command that names signals which the task did not contain, or events that are
// not signals: signals would be lost or delivered twice.
func checkCarried(commands []protocol.Command, inbox *Inbox, carry []Signal, shown int64) error {
	for i, c := range commands {
		_, own := inbox.InheritedOf(c.Unreceived)
		n := len(c.Unreceived)
		if n > 0 && (len(own) != len(carry) || c.Unreceived[n-1] > shown || c.Unreceived[0] < 1 ||
			!increasing(c.Unreceived) || n > len(own) && c.Unreceived[0] < inbox.First()) {
			return protocol.Invalid(
				fmt.Sprintf("commands.%d.unreceived_signals", i),
				"must list, in order, the signal events that the task contained",
			)
		}
		// The range follows the inherited signals in the list.
		if r := c.UnreceivedRange; r != nil && (inbox == nil || r.First < inbox.First() || r.Last < r.First ||
			r.Last > inbox.Last() || n > len(own) && c.Unreceived[n-len(own)-1] >= r.First) {
			return protocol.Invalid(
				fmt.Sprintf("commands.%d.unreceived_signal_range", i), "must be a range of signals that the run inherited",
			)
		}
	}
	return nil
}

// increasing reports whether each number is greater than the one before it.
func increasing(events []int64) bool {
	for i := 1; i < len(events); i++ {
		if events[i] <= events[i-1] {
			return false
		}
	}
	return true
}

// applied returns the event that resolves a wait with its signal. It contains the signal's value, because replayers
// read the value from it.
func (st *step) applied(seq int64, w Wait) *history.SignalApplied {
	return &history.SignalApplied{
		Sequence: seq, SignalName: w.Name, SignalWaitID: StepID(st.ID, seq), SignalID: w.SignalID, Value: w.Value,
		PayloadCodec: codecOf(w.Value),
		Parallel:     w.Parallel,
	}
}

// openWait opens a wait for a signal. The wait gets a timer only if no stored signal resolves it immediately.
func (st *step) openWait(c protocol.Command, seq int64) {
	id := StepID(st.ID, seq)
	limit, limited := c.Wait()
	st.emit(&history.SignalWaitOpened{
		Sequence: seq, SignalName: c.SignalName, SignalWaitID: id, Timeout: limit, Buffers: c.Buffers, Parallel: c.Parallel,
	})
	if w, _ := st.Waits.Get(seq); limited && w.Signal == 0 {
		st.emit(&history.TimerScheduled{
			Sequence: seq, TimerID: id, Delay: limit, FireAt: plus(st.now, seconds(limit)), Kind: SignalTimeout,
			SignalWaitID: id, Parallel: c.Parallel,
		})
	}
}

// sendSignal stores a signal for another workflow as an undelivered message. The workflow receives a signal to itself
// immediately.
func (st *step) sendSignal(c protocol.Command, seq int64) {
	st.emit(&history.SignalSent{CommandSequence: seq, WorkflowID: c.WorkflowID, SignalName: c.SignalName})
	if c.WorkflowID == st.WorkflowID {
		// The task that sends the signal has not seen it, so the event must not have the task's ID.
		task, seen := st.task, st.seen
		st.task, st.seen = "", 0
		st.receive(SignalRun{
			Name: c.SignalName, Value: c.Arguments.Blob, Identity: "workflow " + st.WorkflowID, Headers: c.Headers,
		})
		st.task, st.seen = task, seen
		return
	}
	st.d.Outbox = append(st.d.Outbox, Message{
		Kind: "signal", Namespace: st.Namespace, WorkflowID: c.WorkflowID, FromRun: st.ID, FromSeq: seq, Name: c.SignalName,
		Value: c.Arguments.Blob, Headers: c.Headers,
	})
}
