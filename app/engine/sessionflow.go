package engine

import (
	"slices"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// What the worker door gives a session whose options leave it out.
const (
	WorkerSessionLease = 120
	WorkerSessionTTL   = 1800
)

// NewSession is a session nobody holds yet, from the options of the worker door, or nil for the implicit one.
func NewSession(namespace, id string, o *protocol.SessionOptions, now history.Time) Session {
	s := Session{Namespace: namespace, ID: id, Door: DoorImplicit, Status: protocol.SessionActive, CreatedAt: now, UpdatedAt: now, LastActivity: now}
	if o == nil {
		return s
	}
	s.Door = DoorWorker
	s.Queue, s.Connection = o.Queue, o.Connection
	s.Requirements = slices.Compact(slices.Sorted(slices.Values(o.Requirements)))
	s.Lease = orElse(o.Lease, WorkerSessionLease) * 1_000_000
	s.TTL = orElse(o.TTL, WorkerSessionTTL)
	s.MaxActivities = int(orElse(int64(o.MaxActivities), 1))
	s.Idle = o.Idle * 1_000_000
	s.NoCreate = o.Create != nil && !*o.Create
	s.NoReacquire = o.Reacquire != nil && !*o.Reacquire
	s.ReleasePolicy = o.ReleasePolicy
	s.Fallback = fallback(o.Affinity, o.FallbackAfter)
	return s
}

func orElse(v, other int64) int64 {
	if v == 0 {
		return other
	}
	return v
}

// sessionFor is the session an activity of this run is to run in, made if need be, or why it cannot.
func (st *step) sessionFor(id string, o *protocol.SessionOptions) (Session, *protocol.Error) {
	s, ok := st.session(id)
	_, _, handle := ParseStepID(id)
	switch {
	case ok && s.Terminal:
		return s, protocol.Refuse(protocol.ReasonSessionClosed, "session %s has ended: %s", id, s.Reason)
	case ok && s.Door == DoorWorkflow && s.WorkflowID != st.WorkflowID:
		return s, protocol.Refuse(protocol.ReasonSessionMissing, "session %s belongs to another workflow", id)
	case ok && o != nil && s.Claimed && !s.sameOptions(o, st.now):
		return s, protocol.Refuse(protocol.ReasonInvalidSession, "session %s exists with other options", id)
	case ok:
		return s, nil
	case handle && o == nil:
		return s, protocol.Refuse(protocol.ReasonSessionMissing, "session %s was never started", id)
	case o != nil && o.Create != nil && !*o.Create:
		return s, protocol.Refuse(protocol.ReasonSessionMissing, "session %s does not exist and the activity may not make it", id)
	}
	return NewSession(st.Namespace, id, o, st.now), nil
}

// sameOptions says whether options of the worker door ask for the session as it is.
func (s *Session) sameOptions(o *protocol.SessionOptions, now history.Time) bool {
	want := NewSession(s.Namespace, s.ID, o, now)
	agree := func(is, asked string) bool { return is == "" || asked == "" || is == asked } // what is left out agrees with anything
	return s.Door == DoorWorker && s.Lease == want.Lease && s.TTL == want.TTL && s.MaxActivities == want.MaxActivities && s.Idle == want.Idle &&
		agree(s.Queue, o.Queue) && agree(s.Connection, o.Connection) && policy(s.ReleasePolicy) == policy(o.ReleasePolicy) &&
		slices.Equal(s.Requirements, want.Requirements) && s.NoReacquire == want.NoReacquire && s.Fallback == want.Fallback
}

// policy is a release policy by its name.
func policy(p string) string {
	if p == "" {
		return PolicyMigrate
	}
	return p
}

// startSession opens a workflow-scoped session; who holds it is decided at its first activity.
func (st *step) startSession(c protocol.Command, seq int64) {
	s := NewSession(st.Namespace, StepID(st.ID, seq), nil, st.now)
	s.Door, s.WorkflowID = DoorWorkflow, st.WorkflowID
	s.Requirements = slices.Compact(slices.Sorted(slices.Values(c.Requirements)))
	if o := c.WorkerSession; o != nil {
		s.MaxActivities, s.Queue, s.ReleasePolicy = o.MaxActivities, o.Queue, o.ReleasePolicy
		s.Fallback = fallback(o.Affinity, o.FallbackAfter)
		s.Requirements = slices.Compact(slices.Sorted(slices.Values(append(s.Requirements, o.Requirements...))))
	}
	d := &history.SessionStarted{CommandSequence: seq, SessionID: s.ID}
	if c.WorkerSession != nil {
		d.Options = raw(c.WorkerSession)
	}
	st.emit(d)
	st.usesSessions()
	st.keep(s, protocol.SessionEvent{At: st.now, What: "started", By: "run " + st.ID, Why: "workflow " + st.WorkflowID})
}

// endSession ends a workflow-scoped session with the step that says so: its open activities are cancelled, late results of them refused.
func (st *step) endSession(c protocol.Command, seq int64) {
	s, ok := st.session(c.SessionID)
	if !ok || s.Door != DoorWorkflow || s.WorkflowID != st.WorkflowID || s.Terminal {
		st.emit(&history.SessionEnded{CommandSequence: seq, SessionID: c.SessionID, Effect: "already_ended"})
		return
	}
	st.emit(&history.SessionEnded{CommandSequence: seq, SessionID: c.SessionID, Effect: "ended"})
	for _, a := range st.Activities.All() {
		if a.SessionID != c.SessionID {
			continue
		}
		st.cancelled(a, SessionEndedReason)
	}
	s, _ = st.session(c.SessionID)
	st.close(s, ReasonEndedByFlow)
}

// endChain ends the workflow-scoped sessions of the workflow id, since its last run closes.
func (st *step) endChain(why string) {
	for _, s := range st.world.Chain {
		if now, _ := st.session(s.ID); !now.Terminal {
			if now.ID == "" {
				now = *s
			}
			st.close(now, why)
		}
	}
	for _, c := range st.d.Sessions { // started in this very run and step
		if c.Session.Door == DoorWorkflow && !c.Session.Terminal {
			st.close(c.Session, why)
		}
	}
}

func (st *step) close(s Session, why string) {
	e := s.ended(st.now, "closed", "run "+st.ID, why)
	s.end(protocol.SessionClosed, why, st.now)
	st.keep(s, e)
}

// end makes the session terminal.
func (s *Session) end(status protocol.SessionStatus, why string, now history.Time) {
	s.Status, s.Terminal, s.Reason = status, true, why
	s.ClosedAt, s.UpdatedAt, s.Active, s.Moving, s.Drained = now, now, 0, "", false
	s.For, s.ForUntil, s.PinnedUntil = "", history.Time{}, history.Time{}
}
