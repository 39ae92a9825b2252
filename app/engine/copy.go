package engine

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// MaxCopiedBytes is the maximum size of the history of a run from which events are copied. The copy is one insert, and
// other changes of its commit wait for it.
const MaxCopiedBytes = 32 << 20

// runCopy is a new run whose history begins with a copy of events of an earlier run of the workflow ID.
type runCopy struct {
	from     *Head
	runID    string          // ID of the new run
	copied   []history.Event // without the first one
	commands int64           // number of the last copied command
	seen     int64           // last event that the code of the earlier run had received; 0: all copied events
	parent   bool            // the new run remains the child of the parent
	reason   string          // for people
	started  *history.WorkflowStarted
	startAt  history.Time
	sessions []*history.SessionStarted // sessions that the copied events start and do not end
}

// begin stores the first event of the earlier run. It returns false if that event does not start a run.
func (r *runCopy) begin(first history.Event) bool {
	started, ok := first.Data.(*history.WorkflowStarted)
	r.started, r.startAt = started, first.At
	return ok
}

// firstEvent returns the first event of the new run, which begins at now. The event has the time of the old one, since
// workflow code reads it.
func (r *runCopy) firstEvent(now history.Time, identity string) history.Event {
	d := *r.started
	d.RunID, d.RunNumber, d.ContinuedFrom, d.Identity = r.runID, r.from.Number+1, r.from.ID, identity
	d.DelayUntil = history.Time{}
	if !r.parent { // the parent has received the end of the earlier run and ignores the new run
		d.ParentRunID, d.ParentWorkflowID, d.ParentSequence, d.ParentChainRunID = "", "", 0, ""
		d.ExecutionDeadline = history.Time{}
		if d.ExecutionTimeout > 0 {
			d.ExecutionDeadline = plus(now, seconds(d.ExecutionTimeout))
		}
	}
	d.RunDeadline = history.Time{}
	if d.RunTimeout > 0 {
		d.RunDeadline = plus(now, seconds(d.RunTimeout))
	}
	through := int64(len(r.copied)) + 1
	d.CopiedFrom = &history.CopiedFrom{
		CopiedRange: history.CopiedRange{RunID: r.from.ID, Event: through, Command: r.commands, Seen: r.seen},
		At:          now, Reason: r.reason,
	}
	for _, c := range r.started.CopiedFrom.Ranges() {
		n := history.CopiedRange{RunID: c.RunID, Event: min(c.Event, through), Command: min(c.Command, r.commands)}
		if seen := min(c.SeenEvent(), orElse(r.seen, through)); seen < n.Event {
			n.Seen = seen
		}
		d.CopiedFrom.Earlier = append(d.CopiedFrom.Earlier, n)
	}
	return history.Event{Seq: 1, At: r.startAt, Data: &d}
}

// fold returns the run with the copied events.
func (r *runCopy) fold(first history.Event) *Run {
	run := &Run{Head: Head{Namespace: r.from.Namespace}}
	run.Evolve(first)
	for _, e := range r.copied {
		run.Evolve(e)
	}
	run.NeedsSessions, run.StartKey = r.from.NeedsSessions, r.from.StartKey
	run.HasSessions = run.HasSessions || r.from.HasSessions // also sessions and loans of earlier runs of the chain
	// These are not part of history. They determine which signals count as handled when the run continues as new.
	run.Heeds, run.Heeded = r.from.Heeds, min(r.from.Heeded, run.LastSeq)
	if run.Seen > 0 { // a copied workflow task was the first
		run.FirstSeen = min(r.from.FirstSeen, run.LastSeq)
	}
	return run
}

// findSessions returns the sessions that the new run needs: those that the copied events start and do not end, and the
// sessions of the activities of run.
func (r *runCopy) findSessions(run *Run) (ids []string) {
	ended := map[string]bool{}
	for _, e := range r.copied {
		if d, ok := e.Data.(*history.SessionEnded); ok {
			ended[d.SessionID] = true
		}
	}
	for _, e := range r.copied {
		if d, ok := e.Data.(*history.SessionStarted); ok && !ended[d.SessionID] {
			r.sessions = append(r.sessions, d)
			ids = append(ids, d.SessionID)
		}
	}
	for _, a := range run.Activities.All() {
		if a.SessionID != "" && !a.Cancel && !slices.Contains(ids, a.SessionID) {
			ids = append(ids, a.SessionID)
		}
	}
	return ids
}

// newRun returns the step that creates the run, with the copied events and its sessions open.
func (r *runCopy) newRun(identity string, env Environment, now history.Time) (*step, error) {
	st := &step{env: env, now: now}
	first := r.firstEvent(now, identity)
	st.Run = r.fold(first)
	st.d.Events = append([]history.Event{first}, r.copied...)
	for _, s := range r.sessions {
		if err := st.reopenSession(s); err != nil {
			return nil, err
		}
	}
	return st, nil
}

// copyEvent returns an event of the run from for the history of the run to. The IDs of activities, timers and waits
// name the new run, because an event that ends one of them names the new run, and replayers compare the two. The IDs of
// sessions, children and attempts stay, since their rows exist.
func copyEvent(data history.Data, from, to string) history.Data {
	own := func(id string) string {
		if rest, ok := strings.CutPrefix(id, from+"-"); ok {
			return to + "-" + rest
		}
		return id
	}
	switch d := data.(type) {
	case *history.ActivityScheduled:
		c := *d
		c.ExecutionID = own(d.ExecutionID)
		return &c
	case *history.ActivityRetryScheduled:
		c := *d
		c.ExecutionID = own(d.ExecutionID)
		return &c
	case *history.ActivityCompleted:
		c := *d
		c.ExecutionID = own(d.ExecutionID)
		if c.ReusedFrom == "" {
			c.ReusedFrom, c.ReusedExecution = from, d.ExecutionID
		}
		return &c
	case *history.ActivityFailed:
		c := *d
		c.ExecutionID = own(d.ExecutionID)
		return &c
	case *history.ActivityTimedOut:
		c := *d
		c.ExecutionID = own(d.ExecutionID)
		return &c
	case *history.ActivityCancelled:
		c := *d
		c.ExecutionID = own(d.ExecutionID)
		return &c
	case *history.TimerScheduled:
		c := *d
		c.TimerID, c.ConditionWaitID, c.SignalWaitID = own(d.TimerID), own(d.ConditionWaitID), own(d.SignalWaitID)
		c.Occurrence = own(d.Occurrence)
		return &c
	case *history.TimerFired:
		c := *d
		c.TimerID = own(d.TimerID)
		return &c
	case *history.TimerCancelled:
		c := *d
		c.TimerID = own(d.TimerID)
		return &c
	case *history.SignalWaitOpened:
		c := *d
		c.SignalWaitID = own(d.SignalWaitID)
		return &c
	case *history.SignalApplied:
		c := *d
		c.SignalWaitID = own(d.SignalWaitID)
		return &c
	case *history.ConditionWaitOpened:
		c := *d
		c.ConditionWaitID, c.Occurrence = own(d.ConditionWaitID), own(d.Occurrence)
		return &c
	case *history.ConditionWaitSatisfied:
		c := *d
		c.ConditionWaitID, c.Occurrence = own(d.ConditionWaitID), own(d.Occurrence)
		return &c
	case *history.ConditionWaitTimedOut:
		c := *d
		c.ConditionWaitID, c.Occurrence = own(d.ConditionWaitID), own(d.Occurrence)
		return &c
	case *history.SelectionResolved:
		c := *d
		c.Identity = own(d.Identity)
		return &c
	case *history.SelectionOperationCancelled:
		c := *d
		c.Identity = own(d.Identity)
		return &c
	}
	return data
}

// reopenSession opens a workflow-scoped session that has ended. No worker holds it, so its state is set up again.
func (st *step) reopenSession(d *history.SessionStarted) error {
	was, exists := st.session(d.SessionID)
	if exists && !was.Terminal {
		return nil
	}
	if !exists && d.SessionDefinition != "" {
		return protocol.Refuse(
			protocol.ReasonSessionMissing, "session %s and the arguments of its definition %s were deleted; "+
				"start the workflow again", d.SessionID, d.SessionDefinition,
		).With("session_id", d.SessionID)
	}
	o, err := sessionOptions(d.Options)
	if err != nil {
		return err
	}
	s := st.newScopedSession(d.SessionID, o)
	if exists {
		s.Requirements, s.Definition, s.OnLost = was.Requirements, was.Definition, was.OnLost
		s.ArgumentsHash, s.Epoch = was.ArgumentsHash, was.Epoch
	}
	st.storeSession(s, protocol.SessionEvent{
		At: st.now, What: "started", By: "run " + st.ID, Why: "the session of run " + st.ContinuedFrom + " continues",
	})
	return nil
}

// sessionOptions decodes the session options of an event; nil if it has none.
func sessionOptions(recorded json.RawMessage) (*protocol.SessionOptions, error) {
	if len(recorded) == 0 {
		return nil, nil
	}
	o := new(protocol.SessionOptions)
	return o, json.Unmarshal(recorded, o)
}

// restartActivity schedules an activity of the copied history again, with its first attempt. An activity that its code
// has cancelled ends instead.
func (st *step) restartActivity(a Activity) error {
	if a.Cancel {
		st.emit(&history.ActivityCancelled{ // no session counts it
			Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, Reason: cancelledByFlow,
			Attempt: a.endedAttempt(), Parallel: a.Parallel,
		})
		return nil
	}
	if a.SessionID != "" {
		o, err := sessionOptions(a.Options)
		if err != nil {
			return err
		}
		s, refused := st.sessionFor(a.SessionID, a.Queue, o)
		if refused != nil {
			return refused
		}
		s.queued(a.Queue, st.now)
		st.storeSession(s)
	}
	st.emit(&history.ActivityRetryScheduled{
		Sequence: a.Seq, ExecutionID: StepID(st.ID, a.Seq), ActivityType: a.Type, AvailableAt: st.now, Redriven: true,
		Parallel: a.Parallel,
	})
	return nil
}
