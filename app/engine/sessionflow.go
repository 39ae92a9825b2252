package engine

import (
	"cmp"
	"slices"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// This file handles sessions in workflows. An activity refers to a session by its ID or by options, and a workflow may
// start and end workflow-scoped sessions. Both are part of a run's decision: if the step is not committed, the session
// does not exist.

// These are defaults of session options, in seconds.
const (
	WorkerSessionLease = 120
	WorkerSessionTTL   = 1800
)

// NewSession returns a session without an owner. o are session options, or nil for an implicit session.
func NewSession(namespace, id string, o *protocol.SessionOptions, now history.Time) Session {
	s := Session{
		Namespace: namespace, ID: id, Origin: OriginImplicit, Status: protocol.SessionActive, CreatedAt: now, UpdatedAt: now,
		LastActivity: now,
	}
	if o == nil {
		return s
	}
	s.Origin = OriginWorker
	s.Queue, s.Connection = o.Queue, o.Connection
	s.Requirements = slices.Compact(slices.Sorted(slices.Values(o.Requirements)))
	s.Resources = o.Resources
	s.Lease = orElse(int64(o.Lease), WorkerSessionLease) * 1_000_000
	if s.TTL = orElse(int64(o.TTL), WorkerSessionTTL); o.TTL == protocol.NoTTL {
		s.TTL = 0
	}
	s.MaxActivities = int(orElse(int64(o.MaxActivities), 1))
	s.Idle = o.Idle * 1_000_000
	s.NoCreate = o.Create != nil && !*o.Create
	s.NoReacquire = o.Reacquire != nil && !*o.Reacquire
	s.ReleasePolicy = o.ReleasePolicy
	s.Fallback, s.Pinned, s.FailFast = fallbackAfter(o.Affinity, o.FallbackAfter), o.Pinned, o.FailFast
	return s
}

func orElse(v, other int64) int64 {
	if v == 0 {
		return other
	}
	return v
}

// sessionFor returns the session for an activity of this run in this queue, or the reason for a refusal. It creates the
// session if necessary. New limits for an existing session apply from its next acquisition on, so that two workflows
// that use one ID with different limits do not fail each other's activities.
func (st *step) sessionFor(id, queue string, o *protocol.SessionOptions) (Session, *protocol.Error) {
	s, ok := st.session(id)
	_, _, handle := ParseStepID(id)
	switch {
	case ok && s.Terminal && s.Reason == string(protocol.ReasonSessionResources):
		return s, protocol.Refuse(
			protocol.ReasonSessionResources, "session %s needs %s, which no live worker of its queue had when it started",
			id, s.Resources,
		)
	case ok && s.Terminal:
		return s, protocol.Refuse(protocol.ReasonSessionClosed, "session %s has ended: %s", id, s.Reason)
	// A workflow-scoped session belongs to one workflow ID. If other workflows used it, its end would cancel their
	// activities.
	case ok && s.Origin == OriginWorkflow && s.WorkflowID != st.WorkflowID:
		return s, protocol.Refuse(protocol.ReasonSessionMissing, "session %s belongs to another workflow", id)
	// A worker has acquired the session under other options, and running the activity would violate one of the two.
	// Before the first acquisition, the options may change.
	case ok && o != nil && s.EverAcquired && !s.fits(o):
		return s, protocol.Refuse(protocol.ReasonInvalidSession, "session %s exists with other options", id)
	case ok && o != nil && s.Origin == OriginWorker:
		want := NewSession(st.Namespace, id, o, st.now)
		s.requestLimits(want.numbers())
		return s, nil
	case ok:
		return s, nil
	// Only StartSession creates an ID of the form RUN-seq. Creating an implicit session with this ID would hide a
	// mistake.
	case handle && o == nil:
		return s, protocol.Refuse(protocol.ReasonSessionMissing, "session %s was never started", id)
	case o != nil && o.Create != nil && !*o.Create:
		return s, protocol.Refuse(
			protocol.ReasonSessionMissing, "session %s does not exist, and the activity forbids to create it", id,
		)
	}
	s = NewSession(st.Namespace, id, o, st.now)
	if o != nil && s.Queue == "" {
		s.Queue = queue
	}
	if room := st.tooLarge(&s, s.Queue); room != "" {
		return s, protocol.Refuse(protocol.ReasonSessionResources, "session %s needs %s; %s", id, s.Resources, room)
	}
	return s, nil
}

// fits reports whether session options are compatible with the session, apart from its limits. For a session of another
// origin, only requirements and connection are compared, because options cannot change its other rules.
func (s *Session) fits(o *protocol.SessionOptions) bool {
	want := NewSession(s.Namespace, s.ID, o, history.Time{})
	// an option that is not set is compatible with every value
	agree := func(is, asked string) bool { return is == "" || asked == "" || is == asked }
	same := slices.Equal(s.Requirements, want.Requirements) && agree(s.Connection, o.Connection)
	same = same && (len(o.Resources) == 0 || s.Resources.Equal(o.Resources))
	if s.Origin != OriginWorker {
		return same
	}
	return same && agree(s.Queue, o.Queue) &&
		releasePolicyOrDefault(s.ReleasePolicy) == releasePolicyOrDefault(o.ReleasePolicy) &&
		s.NoReacquire == want.NoReacquire &&
		(s.Fallback > 0) == (want.Fallback > 0)
}

// releasePolicyOrDefault returns a release policy, or the default policy for "".
func releasePolicyOrDefault(p string) string {
	if p == "" {
		return PolicyMigrate
	}
	return p
}

// startSession creates a workflow-scoped session. A worker acquires it with its first activity, because only then the
// requirements are known.
func (st *step) startSession(c protocol.Command, seq int64) {
	s := st.newScopedSession(StepID(st.ID, seq), c.WorkerSession)
	requirements := slices.Clone(c.Requirements)
	if o := c.WorkerSession; o != nil {
		requirements = append(requirements, o.Requirements...)
	}
	s.Requirements = slices.Compact(slices.Sorted(slices.Values(requirements)))
	d := &history.SessionStarted{CommandSequence: seq, SessionID: s.ID}
	if c.WorkerSession != nil {
		d.Options = raw(c.WorkerSession)
	}
	if room := st.tooLarge(&s, cmp.Or(s.Queue, st.Queue)); room != "" {
		st.emit(d)
		st.usesSessions()
		e := s.ended(st.now, "closed", "run "+st.ID, string(protocol.ReasonSessionResources)+": "+room)
		s.endAs(protocol.SessionClosed, string(protocol.ReasonSessionResources), st.now)
		st.storeSession(s, e)
		return
	}
	store, _, _ := s.define(c.SessionDefinition) // no worker has acquired the session, so every definition is accepted
	d.SessionDefinition = s.Definition
	st.emit(d)
	st.usesSessions()
	st.storeSession(s, protocol.SessionEvent{
		At: st.now, What: "started", By: "run " + st.ID, Why: "workflow " + st.WorkflowID,
	})
	if store {
		st.storeArguments(s.ID, c.SessionDefinition.Arguments.Blob)
	}
}

// newScopedSession returns a workflow-scoped session without an owner and without requirements. o are the options of
// its start_session command, or nil.
func (st *step) newScopedSession(id string, o *protocol.SessionOptions) Session {
	s := NewSession(st.Namespace, id, nil, st.now)
	s.Origin, s.WorkflowID = OriginWorkflow, st.WorkflowID
	if o != nil {
		s.MaxActivities, s.Queue, s.ReleasePolicy = int(o.MaxActivities), o.Queue, o.ReleasePolicy
		s.Resources = o.Resources
		s.Fallback, s.Pinned, s.FailFast = fallbackAfter(o.Affinity, o.FallbackAfter), o.Pinned, o.FailFast
	}
	return s
}

// endSession ends a workflow-scoped session in this step: it cancels the session's open activities, whose late results
// are refused. Ending a session again is recorded and has no effect, so that code may end a session in its clean-up
// unconditionally.
func (st *step) endSession(c protocol.Command, seq int64) {
	s, _ := st.session(c.SessionID)
	if s.Terminal || !st.startedSession(c.SessionID) {
		st.emit(&history.SessionEnded{CommandSequence: seq, SessionID: c.SessionID, Effect: "already_ended"})
		return
	}
	effect := "ended"
	if s.Loan != nil {
		effect = "returned"
	}
	st.emit(&history.SessionEnded{CommandSequence: seq, SessionID: c.SessionID, Effect: effect})
	for _, a := range st.Activities.All() {
		if a.SessionID != c.SessionID {
			continue
		}
		st.cancelled(a, SessionEndedReason)
	}
	// Load it again, because cancelling the activities has changed its counts.
	s, _ = st.session(c.SessionID)
	if s.Loan != nil {
		st.giveBack(s)
		return
	}
	st.close(s, ReasonEndedByFlow)
}

// startedSession reports whether the session exists and a run of this workflow ID started it.
func (st *step) startedSession(id string) bool {
	s, ok := st.session(id)
	return ok && s.Origin == OriginWorkflow && s.WorkflowID == st.WorkflowID
}

// endChain ends the workflow-scoped sessions of the workflow ID, because its last run closes and no later run could use
// or end them.
func (st *step) endChain(why string) {
	for _, s := range st.env.Chain {
		if now, _ := st.session(s.ID); !now.Terminal {
			if now.ID == "" {
				now = *s
			}
			if now.WorkflowID == st.WorkflowID { // this step may have returned it to its pool
				st.close(now, why)
			}
		}
	}
	for _, c := range st.d.Sessions { // sessions that the run started in this step
		if c.Session.Origin == OriginWorkflow && !c.Session.Terminal && c.Session.WorkflowID == st.WorkflowID {
			st.close(c.Session, why)
		}
	}
}

// close ends one session with the run's step.
func (st *step) close(s Session, why string) {
	e := s.ended(st.now, "closed", "run "+st.ID, why)
	s.endAs(protocol.SessionClosed, why, st.now)
	st.storeSession(s, e)
}

// endAs ends the session and clears all fields that apply to a future owner.
func (s *Session) endAs(status protocol.SessionStatus, why string, now history.Time) {
	s.Status, s.Terminal, s.Reason = status, true, why
	s.ClosedAt, s.UpdatedAt, s.Active, s.Moving, s.Drained = now, now, 0, "", false
	s.Leaving, s.Yielding, s.OtherAt = false, false, history.Time{}
	s.Snapshot, s.SnapshotRequest, s.Loan = nil, nil, nil
	s.For, s.ForUntil, s.PinnedUntil = "", history.Time{}, history.Time{}
}
