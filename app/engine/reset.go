package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A reset continues a run from the end of one of its workflow tasks as a new run of the same workflow ID. The history
// of the new run begins with a copy of the events up to that point, so its code replays them and then receives other
// events than before. One transaction ends the open run and creates the new one.
//
// Sessions, children and awakeables that the copied events open belong to the new run afterwards. Signals, updates
// without a result, outcomes of awakeables and ends of children that the earlier run received after the point are
// recorded in the new run again. Sessions, children and awakeables that its code started after the point end with it.

// ReasonReset is the reason of the termination of a run that was reset.
const ReasonReset = "reset"

// ResetPoint is the workflow task with whose end the copy of a reset ends: that of an event, or the first or last one.
type ResetPoint struct {
	Event int64            // number of the last event that the task recorded; 0: see To
	To    protocol.ResetTo // first_task or last_task
}

// Reset is the reset of a run. It is prepared outside of the transaction. If the run is open and gets more events
// meanwhile, Decide returns ErrResetBehind.
type Reset struct {
	// Sessions are the sessions of the copied events that the decision reads.
	Sessions []string
	// Children are workflow IDs of children that were open when the run closed. The decision needs their current runs.
	Children []string
	// Point is the number of the last copied event.
	Point int64

	runCopy
	// Ends are the ends of Children whose current runs have closed, by workflow ID. The caller loads them.
	Ends map[string]Message

	noReapply bool
	arrived   []history.Event // events after the point that are recorded again
	updates   map[string]bool // IDs of updates that continue in the new run
	later     map[string]bool // IDs of sessions that were started or borrowed after the point
	resume    bool            // the last copied event does not end a workflow task, so the code must run again
}

// ErrResetBehind means that the run has events which the reset was prepared without. The caller reads them and prepares
// the reset again.
var ErrResetBehind = errors.New("the run that is reset has new events")

// PrepareReset returns the reset of a run with this history as the run runID. The error is a refusal.
func PrepareReset(
	from *Head, events []history.Event, point ResetPoint, noReapply bool, runID, reason string,
) (*Reset, error) {
	if !from.HasCode() {
		return nil, protocol.Refuse(
			protocol.ReasonActivityRun, "run %s runs one activity and has no workflow task; start the activity again", from.ID,
		).With("run_id", from.ID)
	}
	r := &Reset{
		runCopy:   runCopy{from: from, runID: runID, parent: from.Status.Open(), reason: reason},
		noReapply: noReapply, updates: map[string]bool{}, later: map[string]bool{},
	}
	if from.Bytes > MaxCopiedBytes {
		return nil, r.unsupported(fmt.Sprintf("its history has %d MiB, at most %d", from.Bytes>>20, MaxCopiedBytes>>20))
	}
	if len(events) == 0 || !r.begin(events[0]) {
		return nil, r.unsupported("the history does not begin with WorkflowStarted")
	}
	var err error
	if r.Point, err = resetPoint(from, events, point); err != nil {
		return nil, err
	}
	for _, e := range events[1:r.Point] {
		e.Data = copyEvent(e.Data, from.ID, runID)
		r.copied, r.seen = append(r.copied, e), max(r.seen, e.SeenThrough)
	}
	run := r.fold(r.firstEvent(history.Time{}, ""))
	r.commands = run.CommandSeq
	for _, c := range r.started.CopiedFrom.Ranges() {
		r.resume = r.resume || c.Event == r.Point
	}
	if err := r.findArrived(run, events); err != nil {
		return nil, err
	}
	r.Sessions = r.findSessions(run)
	return r, nil
}

func (r *Reset) unsupported(why string) error {
	return protocol.Refuse(
		protocol.ReasonUnsupportedHistory, "run %s cannot be reset: %s; start the workflow again", r.from.ID, why,
	).With("run_id", r.from.ID)
}

// resetPoint returns the number of the event that ends the workflow task of a point.
func resetPoint(from *Head, events []history.Event, point ResetPoint) (int64, error) {
	ends := taskEnds(from, events)
	if len(ends) == 0 {
		return 0, protocol.Refuse(
			protocol.ReasonResetPoint,
			"run %s has no workflow task that ended with recorded commands and left the run open; start the workflow again",
			from.ID,
		).With("run_id", from.ID)
	}
	if point.Event == 0 {
		if point.To == protocol.ResetToFirstTask {
			return ends[0], nil
		}
		return ends[len(ends)-1], nil
	}
	i, found := slices.BinarySearch(ends, point.Event)
	if found {
		return point.Event, nil
	}
	var nearest string
	err := protocol.Refuse(protocol.ReasonResetPoint, "").With("run_id", from.ID)
	if i > 0 {
		err.With("previous_event", ends[i-1])
		nearest = fmt.Sprint(ends[i-1])
	}
	if i < len(ends) {
		err.With("next_event", ends[i])
		nearest += map[bool]string{true: " and "}[i > 0] + fmt.Sprint(ends[i])
	}
	err.Message = fmt.Sprintf(
		"event %d of run %s is not the last event of a workflow task after which the run was open; nearest: %s",
		point.Event, from.ID, nearest,
	)
	return 0, err
}

// taskEnds returns the numbers of the events that end a workflow task, in order: the last event of each task that has
// completed and has not closed the run. A task that recorded nothing has no such event.
func taskEnds(from *Head, events []history.Event) (ends []int64) {
	last := map[string]int64{} // last event by task
	var tasks []string
	eager := false // the last task is an eager workflow task
	for i := range events {
		if id := events[i].TaskID; id != "" {
			if _, known := last[id]; !known {
				tasks = append(tasks, id)
				result, ok := events[max(0, i-1)].Data.(*history.ActivityCompleted)
				eager = ok && result.EagerHash != ""
			}
			last[id] = events[i].Seq
		}
	}
	for i, id := range tasks {
		if i == len(tasks)-1 {
			run, n, ok := ParseTaskID(id)
			if ok && run == from.ID && !eager && !from.completed(n) {
				break // it recorded local activities and is still open, or the run closed before it completed
			}
			// Only the last task can have closed the run.
			if closing := &events[len(events)-1]; !from.Status.Open() && closing.TaskID == id {
				break
			}
		}
		ends = append(ends, last[id])
	}
	return ends
}

// completed reports whether the nth workflow task, which is not an eager one, has completed.
func (h *Head) completed(n int64) bool {
	return h.Last != nil && (h.Last.Number > n || h.Last.Number == n && h.Last.Outcome != "failed")
}

// findArrived finds the events after the point that the new run receives again. run is the run at the point.
func (r *Reset) findArrived(run *Run, events []history.Event) error {
	tail := events[r.Point:]
	completed := map[string]bool{} // updates that have a result
	for i := range tail {
		if d, ok := tail[i].Data.(*history.UpdateCompleted); ok {
			completed[d.UpdateID] = true
		}
	}
	// The copied events contain the acceptance of these updates. If the handler of an update has started, the code
	// continues it, although the earlier run may have completed the update.
	waiting := map[string]bool{} // IDs of the updates whose handlers have not started
	for _, u := range run.Updates.All() {
		r.updates[u.ID] = true
		waiting[u.ID] = !u.Taken
	}
	ended := map[int64]bool{} // children and attachments at the point that have ended, by command number
	signals := 0
	for i := range tail {
		e := &tail[i]
		again := false
		switch d := e.Data.(type) {
		case *history.SignalReceived:
			sent, own := events[e.Seq-2].Data.(*history.SignalSent)
			own = own && sent.WorkflowID == run.WorkflowID
			if again = !own && !r.noReapply || own && i == 0; again { // the last command of the copied task may have sent it
				signals++
			}
		case *history.UpdateAccepted:
			again = !r.noReapply && !completed[d.UpdateID]
			r.updates[d.UpdateID] = again
		case *history.UpdateCompleted:
			if again = waiting[d.UpdateID]; again {
				answered := *d
				answered.Sequence = 0 // no handler runs for it
				e = &history.Event{At: e.At, Data: &answered}
			}
		case *history.ChildRunStarted:
			_, again = run.Children.Get(d.Sequence)
		case *history.AwakeableCompleted:
			again = !r.noReapply && run.hasAwakeable(d.Sequence)
		case *history.AwakeableFailed:
			again = !r.noReapply && run.hasAwakeable(d.Sequence)
		case *history.AttachedChildEnded:
			_, again = run.Attached.Get(d.CommandSequence)
			ended[d.CommandSequence] = true
		case *history.SessionStarted:
			r.later[d.SessionID] = true
		case *history.ActivityCompleted:
			r.later[borrowedSession(d)] = true
		default:
			if seq, ok := endedChild(d); ok {
				_, again = run.Children.Get(seq)
				ended[seq] = true
			}
		}
		if again {
			r.arrived = append(r.arrived, history.Event{At: e.At, Data: e.Data})
		}
	}
	if signals > MaxSignals {
		return protocol.Refuse(
			protocol.ReasonStructuralLimit, "run %s received %d signals after event %d, at most %d are received again; "+
				"reset it to a later event, or without applying them again", r.from.ID, signals, r.Point, MaxSignals,
		).With("limit_kind", "pending_signal_count").With("current_value", signals).With("configured_limit", MaxSignals)
	}
	if r.from.Status.Open() {
		return nil // the open run has received everything that its children reported
	}
	for seq, a := range run.Attached.All() {
		if !ended[seq] {
			return r.unsupported("the run was attached to child workflow " + a.WorkflowID + " when it closed")
		}
	}
	for seq, c := range run.Children.All() {
		if !ended[seq] && !slices.Contains(r.Children, c.WorkflowID) {
			r.Children = append(r.Children, c.WorkflowID)
		}
	}
	return nil
}

func (s *Run) hasAwakeable(seq int64) bool {
	w, ok := s.Waits.Get(seq)
	return ok && w.Kind == AwakeableWait
}

// endedChild returns the number of the command whose child ended with an event.
func endedChild(d history.Data) (seq int64, ok bool) {
	switch d := d.(type) {
	case *history.ChildRunCompleted:
		return d.Sequence, true
	case *history.ChildRunFailed:
		return d.Sequence, true
	case *history.ChildRunCancelled:
		return d.Sequence, true
	case *history.ChildRunTerminated:
		return d.Sequence, true
	}
	return 0, false
}

// Decide ends the earlier run, or changes only the reference to the new run if it has closed, and creates the new run.
// env has the rows of both.
func (r *Reset) Decide(run *Run, env Environment, identity string, now time.Time) (was, next Decision, err error) {
	if run.LastSeq != r.from.LastSeq || run.Status != r.from.Status {
		return was, next, ErrResetBehind
	}
	if run.Status.Open() {
		was, err = DecideRun(run, env, endByReset{r, identity}, now)
	} else if err = run.CheckRedrive(); err == nil {
		f := run.Fork()
		f.ResetTo = r.runID
		was = Decision{After: run.LastSeq, Next: f}
	}
	if err != nil {
		return was, next, err
	}
	stored := env.Session
	env.Session = func(id string) *Session { // both runs may use a session
		for i := range was.Sessions {
			if s := &was.Sessions[i].Session; s.ID == id {
				return s
			}
		}
		return stored(id)
	}
	st, err := r.newRun(identity, env, history.At(now))
	if err != nil {
		return was, next, err
	}
	st.LeasedEver = true // the code has run up to the point
	if run.Status.Open() {
		st.Inherited = run.Inherited
	}
	if err := r.begun(st); err != nil {
		return was, next, err
	}
	st.wakeUp()
	st.Task.recordStuck(st.now)
	st.d.Next = st.Run
	return was, st.d, nil
}

// begun records the events that follow the copied ones, and schedules the open activities again.
func (r *Reset) begun(st *step) error {
	for _, e := range r.arrived {
		st.receiveAgain(e)
	}
	if err := r.endChildren(st); err != nil {
		return err
	}
	for _, a := range st.Activities.All() {
		if err := st.restartActivity(a); err != nil {
			return err
		}
	}
	st.overdue()
	if r.resume && st.Wake <= st.Seen {
		st.Wake, st.WakeFor = st.LastSeq, &Cause{Kind: "start"}
	}
	return nil
}

// receiveAgain records an event of the earlier run in the new run, with the consequences that it has there.
func (st *step) receiveAgain(e history.Event) {
	switch d := e.Data.(type) {
	case *history.SignalReceived:
		st.receiveEvent(d)
		return
	case *history.AwakeableCompleted:
		st.cancelAwakeableTimer(d.Sequence)
	case *history.AwakeableFailed:
		st.cancelAwakeableTimer(d.Sequence)
	}
	st.emit(e.Data)
}

// endChildren records the ends of children that were open when the earlier run closed; no run has received them.
// Children that are still open report to the new run.
func (r *Reset) endChildren(st *step) error {
	if len(r.Children) == 0 {
		return nil
	}
	for seq, c := range st.Children.All() {
		if c.Shared { // ends with the step that started the child
			continue
		}
		run, _ := st.workflow(c.WorkflowID)
		if run == nil || run.Chain != c.Chain || run.Parent == nil || run.Parent.Seq != seq ||
			run.Parent.RunID != c.startedBy(st.ID) {
			return r.unsupported("the end of child workflow " + c.WorkflowID + " is not known, since the ID was used again")
		}
		if run.Status.Open() || run.owesParentReport() {
			continue
		}
		end, ok := r.Ends[c.WorkflowID]
		if !ok || end.Run != run.ID {
			return ErrChildEnded
		}
		end.ToSeq = seq
		if err := (ChildReport{end}).decide(st); err != nil && !errors.Is(err, errNotDue) {
			return err
		}
	}
	return nil
}

// endByReset is the input by which a reset ends the open run.
type endByReset struct {
	*Reset
	identity string
}

func (in endByReset) decide(st *step) error {
	const why = "workflow reset"
	st.emit(&history.TerminateRequested{
		CommandID: st.eventID("c"), Reason: cmp.Or(in.reason, ReasonReset), Identity: in.identity,
	})
	for _, a := range st.Activities.All() {
		// The new run schedules the activity again, so even an activity that would outlive the run must end.
		if st.staysOpenAfterClose(a) && a.Seq <= in.commands {
			st.cancelled(a, why)
		}
	}
	st.closeOpen(why)
	for _, u := range st.Updates.All() {
		if !in.updates[u.ID] {
			st.updateFailed(
				u, 0, history.Failure{Category: "run_closed", ExceptionType: "run_closed", NonRetryable: true, Message: why},
			)
		}
	}
	for seq, c := range st.Children.All() {
		if seq <= in.commands || c.Shared {
			continue
		}
		how := RequestCancel
		if c.ClosePolicy == CancelByRequest {
			how = CancelByRequest
		}
		st.closeChildAs(&c, how, why)
	}
	for _, s := range st.env.Chain {
		now, ok := st.session(s.ID)
		if !ok {
			now = *s
		}
		switch {
		case now.Terminal:
		case in.later[s.ID]:
			st.close(now, why)
		case now.Owner != "": // the next acquisition has a higher epoch
			e := now.release(st.now, "run "+st.ID, why)
			st.storeSession(now, e)
		}
	}
	st.Inherited = InheritedCount{} // of the new run
	st.emit(&history.WorkflowTerminated{
		Reason: ReasonReset, ClosedReason: "terminated", NewRunID: in.runID, Failure: st.ended("terminated", ReasonReset),
	})
	st.d.Answer.Outcome = "reset"
	return nil
}
