package engine

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// This file contains the changes of a session that do not come from a run: acquire, renew, release, move, close and
// expire. Each is a decision on the session's row alone, so none of them loads a run, and sessions without runs can be
// managed, too.

// SessionInput is an input of a decision on a session that does not come from a run. All implementations are in this
// package.
type SessionInput interface {
	decide(s *Session, now history.Time) (SessionChange, error)
}

// DecideSession returns the change of the session s, which is nil if there is no row. It does not change s. After every
// decision it calls watch, which records whether tasks wait for the owner.
func DecideSession(s *Session, in SessionInput, now time.Time) (SessionChange, error) {
	at := history.At(now)
	c, err := in.decide(s, at)
	if err == nil {
		c.Timeline = append(c.Timeline, c.Session.checkPreparation(at)...)
		c.Session.freeResources()
	}
	c.Session.recordWaiting(at)
	return c, err
}

// CreateSession acquires a session at a worker's request. The outcome in the response is created, reused or reacquired.
type CreateSession struct {
	Namespace      string
	Options        protocol.SessionOptions
	Lessee         Lessee
	EpochWatermark EpochWatermark
	Outcome        *string // set by the decision
}

// decide applies the same rules as an acquisition by a task, with one exception: a worker that acquires the session
// itself does not need a free place for an activity.
func (in CreateSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil {
		if o := in.Options; o.Create != nil && !*o.Create {
			return SessionChange{}, protocol.Refuse(
				protocol.ReasonSessionMissing, "session %s does not exist, and the request forbids to create it", o.SessionID,
			)
		}
		err := protocol.CheckName("session_id", in.Options.SessionID)
		if refusal, ok := errors.AsType[*protocol.Error](err); ok {
			return SessionChange{}, protocol.Refuse(protocol.ReasonInvalidSession, "%s", refusal.Message)
		}
		fresh := NewSession(in.Namespace, in.Options.SessionID, &in.Options, now)
		if fresh.Queue == "" {
			fresh.Queue = in.Lessee.Worker.Queues[0]
		}
		s = &fresh
	} else if err := in.fits(s, now); err != nil {
		return SessionChange{}, err
	}
	if v := AdmitSession(s, in.Lessee, now.Time, true); !v.OK {
		return SessionChange{}, refusal(v, s, in.Lessee)
	}
	c := SessionChange{Session: *s}
	want := NewSession(in.Namespace, in.Options.SessionID, &in.Options, now)
	if s.Origin == OriginWorker {
		c.Session.requestLimits(want.numbers())
	}
	if s.HeldBy(in.Lessee.Worker.ID, now.Time) && s.Incarnation == in.Lessee.Worker.Incarnation {
		*in.Outcome = "reused"
		// The owner itself requests other limits, so they apply immediately, except the TTL.
		if n := c.Session.Next; n != nil {
			c.Session.setLimits(*n)
			c.Session.requestLimits(*n)
		}
		c.Session.Yielding = false
		c.Session.move(now.Time)
		return c, nil
	}
	*in.Outcome = "created"
	if s.EverAcquired {
		*in.Outcome = "reacquired"
	}
	c.Timeline = c.Session.acquire(in.Lessee, in.EpochWatermark(in.Namespace), now.Time, "")
	c.Session.move(now.Time)
	return c, nil
}

// fits reports whether a worker of these queues may acquire an existing session with these options.
func (in CreateSession) fits(s *Session, now history.Time) error {
	w := in.Lessee.Worker
	switch {
	case s.Terminal || !s.EverAcquired:
		return nil // admission returns a more exact reason
	case s.Queue != "" && !slices.Contains(w.Queues, s.Queue):
		return protocol.Refuse(
			protocol.ReasonSessionQueue, "session %s is for queue %s, which worker %s does not serve", s.ID, s.Queue, w.ID,
		).With("registered_task_queue", w.Queues[0]).With("requested_session_queue", s.Queue)
	case s.Held(now.Time) && s.Owner != w.ID && !s.claimableByOthers(now.Time):
		return nil // a worker that is not admitted is refused for its owner or missing capability, not for the options
	case s.stateLost(now.Time) && in.Options.Reacquire != nil && !*in.Options.Reacquire:
		return protocol.Refuse(
			protocol.ReasonSessionReacquire, "session %s was lost (%s), and the request forbids to acquire it again", s.ID,
			s.Reason,
		)
	case !s.fits(&in.Options):
		return protocol.Refuse(protocol.ReasonInvalidSession, "session %s exists with other options", s.ID)
	}
	return nil
}

// refusal converts a verdict to an error with the values that a client needs to react.
func refusal(v Verdict, s *Session, l Lessee) error {
	e := protocol.Refuse(v.Reason, "%s", v.Text())
	switch v.Reason {
	case protocol.ReasonSessionRequirements:
		e.With("missing_requirements", Missing(s.NeededCapabilities(), l.Worker.Capabilities))
	case protocol.ReasonSessionLimit:
		e.With("max_concurrent_worker_sessions", l.Worker.MaxSessions)
	case protocol.ReasonSessionActivityLimit:
		e.With("max_concurrent_activities", s.MaxActivities)
	}
	return e
}

// SessionHolder is the owner of a session according to the client. Epoch 0 means that the client sent none; then only
// the worker ID is compared, as the protocol allows.
type SessionHolder struct {
	Worker string
	Epoch  int64
}

// holds refuses a worker that is not the owner, or that owns the session under another epoch than it states: the state
// in its memory then belongs to an epoch that has ended.
func (h SessionHolder) holds(s *Session) error {
	switch {
	case s == nil:
		return protocol.Refuse(protocol.ReasonSessionNotFound, "session not found")
	case s.Owner != h.Worker:
		return protocol.Refuse(protocol.ReasonSessionOwner, "session %s is not held by %s", s.ID, h.Worker)
	case h.Epoch != 0 && h.Epoch != s.Epoch:
		return protocol.Refuse(protocol.ReasonSessionOwner, "session %s is at epoch %d, not %d", s.ID, s.Epoch, h.Epoch).
			With("epoch", s.Epoch)
	}
	return nil
}

// RenewSession extends the lease of a held session. It never renews an expired lease, since another worker may already
// have acquired the session. A worker gives an idle session up by not renewing it. The app also refuses to renew a
// session whose idle timeout has passed, in case the worker does not know this timeout.
type RenewSession struct {
	SessionHolder
	Lease int64 // length of this renewal in seconds; 0: the session's own length
	Touch bool  // an explicit heartbeat resets the idle timeout
	// NoDrain: neither an operator nor the worker itself drains the worker. Then the renewal also undoes the drain of a
	// session by an operator: the app that should have undone it at the resume may have stopped.
	NoDrain bool
}

// decide renews for the session's own length. Only sessions with options may have another length for one renewal.
func (in RenewSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if err := in.holds(s); err != nil {
		return SessionChange{}, err
	}
	if !s.Held(now.Time) {
		return SessionChange{}, protocol.Refuse(
			protocol.ReasonSessionNotActive, "session %s lost its lease at %s", s.ID, s.LeaseUntil.Format(time.RFC3339),
		)
	}
	if !in.Touch && s.idle(now.Time) && s.SnapshotRequest == nil {
		return SessionChange{}, protocol.Refuse(
			protocol.ReasonSessionNotActive, "session %s has been idle since %s", s.ID, s.lastActivity().Format(time.RFC3339),
		)
	}
	c := SessionChange{Session: *s}
	if s.Yielding && !in.Touch {
		return c, nil // the owner keeps the session only until its lease ends
	}
	if in.NoDrain && s.drainedByOperator() {
		c.Timeline = c.Session.undrain(now)
	}
	c.Session.LastActivity = s.lastActivity()
	if in.Touch {
		c.Session.LastActivity, c.Session.Yielding = now, false
	}
	length := s.LeaseLength()
	if in.Lease > 0 && s.Origin == OriginWorker {
		if length = seconds(in.Lease); s.FailFast {
			length = failFastLength(length)
		}
	}
	c.Session.renew(now.Time, length)
	c.Session.HolderSilent = false
	if c.Session.Renewals++; c.Session.Renewals == 1 {
		c.Session.FirstRenewal = now
	}
	c.Session.LastRenewal = now
	return c, nil
}

// ReleaseSession releases a session without ending it: in a clean shutdown, or, with Failed, because its executor ended
// unexpectedly.
type ReleaseSession struct {
	SessionHolder
	Why        string
	Failed     string
	KnownEpoch int64  // with protocol.ReasonGivenUp: the highest epoch that the worker has seen; 0: not reported
	For        string // with ReasonSetUpFailed: the worker for which the session is reserved; empty: any worker
	// SnapshotFollows: the owner stores a snapshot first, when the app has stopped dispatching the session's tasks.
	SnapshotFollows bool
	Snapshot        *protocol.SessionSnapshot // nil: none
	SnapshotFailed  string                    // with protocol.ReasonSnapshot: why the owner stored no snapshot
}

func (in ReleaseSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if err := in.holds(s); err != nil {
		return SessionChange{}, err
	}
	if s.Terminal {
		return SessionChange{}, protocol.Refuse(protocol.ReasonSessionNotActive, "session %s has ended: %s", s.ID, s.Reason)
	}
	if in.Why == protocol.ReasonGivenUp {
		return in.giveUp(s, now), nil
	}
	if !s.Held(now.Time) { // the lease was lost, not released: no_reacquire applies
		return SessionChange{}, protocol.Refuse(
			protocol.ReasonSessionNotActive, "session %s lost its lease at %s", s.ID, s.LeaseUntil.Format(time.RFC3339),
		)
	}
	if in.Why == protocol.ReasonSnapshot {
		return in.snapshotTaken(s, now)
	}
	if in.Why == ReasonEvictedCap {
		if err := s.inUse(now); err != nil {
			return SessionChange{}, err
		}
	}
	c := SessionChange{Session: *s}
	if in.SnapshotFailed != "" {
		c.Timeline = append(c.Timeline, protocol.SessionEvent{
			At: now, What: protocol.SessionSnapshotLost, Worker: s.Owner, Epoch: s.Epoch, By: s.Owner,
			Why: protocol.ReasonSnapshotFailed + ": " + in.SnapshotFailed,
		})
	}
	if in.SnapshotFollows && s.SnapshotRequest != nil {
		return c, nil // the request of the app is on its way to the worker
	}
	if in.SnapshotFollows && s.needsSnapshot(now.Time) {
		if s.Active > 0 {
			return SessionChange{}, protocol.Invalid("reason", "session %s cannot be released: activities run in it", s.ID)
		}
		c.Timeline = append(c.Timeline, c.Session.requestSnapshot(now, in.Worker, in.Why, false))
		return c, nil
	}
	if in.Snapshot != nil && s.Snapshots && in.Failed == "" && !s.NoReacquire && s.ReleasePolicy != PolicyFail {
		c.storeSnapshot(in.Snapshot, now)
	}
	// A shutdown is a drain that the worker started, so the same policy applies.
	if in.Why == ReasonShutdown && (s.NoReacquire || in.Failed == "") {
		c.Timeline = append(c.Timeline, c.Session.drain(now, in.Worker)...)
		return c, nil
	}
	if in.Failed != "" {
		c.Timeline = append(c.Timeline, c.Session.fail(in.Worker, in.Failed, in.Why, now))
		return c, nil
	}
	c.Timeline = append(c.Timeline, c.Session.release(now, in.Worker, in.Why))
	if in.Why == ReasonSetUpFailed && in.For != "" {
		c.Session.For, c.Session.ForUntil = in.For, plus(now, ReservationTime)
	}
	return c, nil
}

// fail ends the ownership of the session because the session's executor ended unexpectedly.
func (s *Session) fail(worker, cause, detail string, now history.Time) protocol.SessionEvent {
	e := s.ended(now, "failed", worker, cause)
	if !s.NoReacquire {
		s.clearHolder(now)
	}
	s.lose(protocol.SessionFailed, cause, now)
	s.GivenUp = detail
	return e
}

// ended returns the timeline entry for the end of the current epoch. It counts running attempts; the store adds the
// attempts that have ended.
func (s *Session) ended(now history.Time, kind, by, why string) protocol.SessionEvent {
	e := protocol.SessionEvent{
		At: now, What: kind, Worker: s.Owner, Epoch: s.Epoch, By: by, Why: why, Ran: s.Active, Renewals: s.Renewals,
		FirstRenewal: s.FirstRenewal,
		LastRenewal:  s.LastRenewal,
	}
	if last := s.lastActivity(); s.Owner != "" && !last.IsZero() {
		e.Idle = now.Sub(last.Time).Seconds()
	}
	return e
}

// release ends the ownership of the session without loss of state. lose is for a lost lease, after which no_reacquire
// applies.
func (s *Session) release(now history.Time, by, why string) protocol.SessionEvent {
	e := s.ended(now, "released", by, why)
	s.clearHolder(now)
	s.Status, s.Reason, s.GivenUp = protocol.SessionActive, ReasonReleased, why
	if why == ReasonEvictedCap {
		s.EvictedAt = now
	}
	return e
}

// lastEnd returns the reason why the previous epoch ended, for an owner that finds the state missing. It includes the
// reason that the former owner reported.
func (s *Session) lastEnd() string {
	switch {
	case s.Reason == ReasonReleased:
		return cmp.Or(s.GivenUp, s.Reason)
	case s.GivenUp == ReasonEvictedIdle:
		return s.GivenUp
	case s.GivenUp != "":
		return s.Reason + ": " + s.GivenUp
	}
	return s.Reason
}

// clearHolder removes the owner from the row. The lease ends now, so that other workers can acquire the session after
// this commit.
func (s *Session) clearHolder(now history.Time) {
	s.Owner, s.Incarnation, s.Moving, s.Leaving, s.Yielding = "", "", "", false, false
	s.SnapshotRequest = nil
	s.OtherAt = history.Time{}
	s.LeaseUntil, s.UpdatedAt = now, now
	s.unpinRelease(now)
}

// PinCheck is how often to check whether an app still serves the release to which a session without an owner is pinned.
const PinCheck = 5 * time.Second

// unpinRelease removes the pin to the owner's release, unless the policy reserves the session for workers of that
// release.
func (s *Session) unpinRelease(now history.Time) {
	if s.ReleasePolicy != PolicyFinish || s.Release == "" {
		s.Release = ""
		return
	}
	s.PinnedUntil = plus(now, PinCheck)
}

// ReservationTime is how long a migrated session is reserved for its target worker. Afterwards any worker may acquire
// it, so that a misspelled worker ID does not block it.
const ReservationTime = 30 * time.Second

// MigrateSession makes the owner release the session at an operator's request: immediately if no task runs in it or
// with Force, otherwise when its running tasks have ended; until then no new task is dispatched in it. If For is not
// empty, the session is then reserved for that worker for some time.
type MigrateSession struct {
	Operator string
	Why      string
	For      string
	Force    bool
}

func (in MigrateSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil {
		return SessionChange{}, protocol.Refuse(protocol.ReasonSessionNotFound, "session not found")
	}
	if s.Terminal {
		return SessionChange{}, protocol.Refuse(protocol.ReasonSessionNotActive, "session %s has ended: %s", s.ID, s.Reason)
	}
	c := SessionChange{Session: *s}
	n := &c.Session
	if n.For = in.For; n.For == s.Owner {
		n.For = ""
	}
	why := "migrated"
	if in.Why != "" {
		why += ": " + in.Why
	}
	switch {
	case !s.Held(now.Time):
		n.startReservation(now)
		n.UpdatedAt = now
	// No task runs, or the operator accepts that running tasks lose their session.
	case in.Force || s.Active == 0:
		if !in.Force && s.SnapshotRequest != nil {
			n.UpdatedAt = now
			return c, nil
		}
		leave := n.leave
		if in.Force {
			leave = n.release
		}
		c.Timeline = append(c.Timeline, leave(now, in.Operator, why))
		if !n.AwaitsSnapshot() {
			n.startReservation(now)
		}
	default:
		n.Moving, n.Leaving, n.UpdatedAt = in.Operator, false, now
		e := s.ended(now, "draining", in.Operator, why)
		c.Timeline = append(c.Timeline, e)
	}
	return c, nil
}

// startReservation starts the time in which only the worker for which the session is reserved may acquire it.
func (s *Session) startReservation(now history.Time) {
	s.ForUntil = history.Time{}
	if s.For != "" {
		s.ForUntil = plus(now, ReservationTime)
	}
}

// moved ends the worker's ownership of a session that is marked for a move, if no activity runs in the session. It
// returns false otherwise.
func (s *Session) moved(now history.Time) ([]protocol.SessionEvent, bool) {
	if s.Moving == "" || s.Active > 0 || !s.Held(now.Time) || s.SnapshotRequest != nil {
		return nil, false
	}
	if s.needsSnapshot(now.Time) {
		why := "migrated"
		if s.Leaving {
			why = ReasonShutdown
		}
		return []protocol.SessionEvent{s.requestSnapshot(now, s.Moving, why, s.Leaving)}, true
	}
	if s.prepared(now.Time) && !s.ready(now.Time) {
		return nil, false // the successor restores the snapshot
	}
	if s.Leaving {
		return s.drain(now, s.Moving), true
	}
	e := s.release(now, s.Moving, "migrated")
	s.startReservation(now)
	return []protocol.SessionEvent{e}, true
}

// CloseSession ends a session, or releases it. If an operator closes it (Operator is set, SessionHolder is empty), it
// ends permanently. The DELETE request of a worker ends only a session with options, and only if Why is not
// protocol.ReasonWorkerShutdown or the session has no_reacquire. The DELETE of any other session releases it by its
// release policy, because the published SDKs send it for each session when they stop: a deployment must not end the
// session of a workflow.
//
// The DELETE of a worker that no longer holds the session has no effect, because another worker may be about to acquire
// it. With protocol.ReasonWorkerShutdown it is not refused either.
type CloseSession struct {
	SessionHolder
	Why      string
	Operator string
}

func (in CloseSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil {
		return SessionChange{}, protocol.Refuse(protocol.ReasonSessionNotFound, "session not found")
	}
	c := SessionChange{Session: *s}
	if in.Operator == "" {
		refusal := in.holds(s)
		if refusal != nil && in.Why != protocol.ReasonWorkerShutdown && !in.isRepetition(s) {
			return SessionChange{}, refusal
		}
		if held := refusal == nil && s.Held(now.Time); !held && !s.Terminal {
			return c, nil
		}
	}
	if s.Terminal {
		return c, nil
	}
	if in.Operator == "" && in.releases(s) {
		c.Timeline = append(c.Timeline, c.Session.endForShutdown(now, in.Worker, cmp.Or(in.Why, ReasonDeleted))...)
		return c, nil
	}
	why := in.Why
	if why == "" {
		why = ReasonClosed
	}
	by := in.Worker
	if in.Operator != "" {
		by = in.Operator
		why += " by " + in.Operator
	}
	c.Session.endAs(protocol.SessionClosed, why, now)
	c.Timeline = append(c.Timeline, s.ended(now, "closed", by, why))
	return c, nil
}

// releases reports whether the DELETE of its owner releases a session instead of ending it.
func (in CloseSession) releases(s *Session) bool {
	return !s.NoReacquire && (s.Origin != OriginWorker || in.Why == protocol.ReasonWorkerShutdown)
}

// isRepetition reports whether a DELETE may be the repetition of an earlier one whose response was lost: a DELETE with
// the same reason released the session, and no worker has acquired it since.
func (in CloseSession) isRepetition(s *Session) bool {
	return s.Owner == "" && !s.Terminal && s.Reason == ReasonReleased && s.GivenUp == cmp.Or(in.Why, ReasonDeleted) &&
		in.releases(s) && (in.Epoch == 0 || in.Epoch == s.Epoch)
}

// DueSession ends a session whose TTL has passed, or makes one whose lease has expired acquirable by any worker. Stale
// is the owner if its registration is stale: then the session counts as orphaned instead of expired. Settled means that
// no queued task of the session exists, so that a different count is wrong. Served are the releases that live apps
// serve, as far as known: a pin to any other release is removed. Other describes the session's tasks if the check for
// queues that the owner does not poll is due.
type DueSession struct {
	Stale   string
	Settled bool
	Served  []string
	Other   *OtherQueue
}

// decide applies one due change, the most final one first; the sweeper calls it again for the others.
func (in DueSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	n := &c.Session
	switch {
	case s.Unsettled():
		if in.Settled {
			n.Ready, n.MoreReady = 0, false
		}
	case s.Terminal: // no task is queued any more: update the row
		return c, nil
	// The TTL limits what the session costs, so it also ends a session that is in use.
	case !s.TTLUntil.IsZero() && !s.TTLUntil.After(now.Time):
		n.endAs(protocol.SessionExpired, ReasonTTL, now)
		c.Timeline = append(c.Timeline, s.ended(now, "expired", "", ReasonTTL))
	case s.Loan != nil && !s.Loan.Until.IsZero() && !s.Loan.Until.After(now.Time):
		n.endAs(protocol.SessionClosed, ReasonLoanExpired, now)
		c.Timeline = append(c.Timeline, s.ended(now, "closed", "", ReasonLoanExpired))
	case s.Yielding && !s.LeaseUntil.After(now.Time):
		c.Timeline = append(c.Timeline, n.release(now, "", ReasonEvictedCap))
	case s.Status == protocol.SessionActive && s.Owner != "" && !s.LeaseUntil.After(now.Time) && s.ready(now.Time):
		c.Timeline = append(c.Timeline, n.handOver(now)...)
	case s.Status == protocol.SessionActive && s.Owner != "" && !s.LeaseUntil.After(now.Time):
		e := s.ended(now, "expired", "", ReasonLeaseLost)
		status, reason := protocol.SessionExpired, ReasonLeaseLost
		switch {
		// Only the recorded status differs: it shows whether the owner died or stopped renewing the session.
		case in.Stale != "" && in.Stale == s.Owner:
			status, reason = protocol.SessionOrphaned, ReasonOrphaned
			e.What, e.Why = "orphaned", ReasonOrphaned
		case s.idle(now.Time):
			e.What, e.Why = "idle_unpinned", "idle since "+s.lastActivity().Format(time.RFC3339)
		}
		n.lose(status, reason, now)
		if e.What == "idle_unpinned" {
			n.GivenUp = ReasonEvictedIdle
		}
		c.Timeline = append(c.Timeline, e)
	// The session's tasks have waited for the owner long enough, so any worker may acquire the session now.
	case !s.Open && s.readyTaskWaitsForOwner(now.Time) && !s.OpensAt().Time.IsZero() && !s.OpensAt().After(now.Time):
		n.Open, n.UpdatedAt = true, now
	case s.Held(now.Time) && !s.OtherAt.IsZero() && !s.OtherAt.After(now.Time):
		in.releaseForQueue(s, &c, now)
	case s.Status != protocol.SessionActive && len(s.Used) > 0 && !s.suspendedUntil().After(now.Time):
		n.Used, n.Suspends, n.UpdatedAt = nil, false, now
		c.Freed = s.Owner
	case s.SnapshotRequest != nil && !s.SnapshotRequest.Until.After(now.Time):
		n.snapshotFailed(&c, s.SnapshotRequest, "the worker did not respond", now)
	case s.Snapshot != nil && !s.Snapshot.Until.After(now.Time) && (s.Owner == "" || !s.NeedsSetUp()):
		n.Snapshot, n.UpdatedAt = nil, now
		if s.Owner == "" {
			n.GivenUp = protocol.ReasonSnapshotLost + ": it expired"
			c.Timeline = append(c.Timeline, protocol.SessionEvent{
				At: now, What: protocol.SessionSnapshotLost, Epoch: s.Epoch, Why: n.GivenUp,
			})
		}
	case s.Prepare != nil && !s.Prepare.Until.After(now.Time):
		n.UpdatedAt = now // checkPreparation discards it
	case s.For != "" && !s.ForUntil.After(now.Time):
		n.For, n.ForUntil = "", history.Time{}
	case !s.PinnedUntil.IsZero() && !s.PinnedUntil.After(now.Time):
		n.PinnedUntil = plus(now, PinCheck)
		// An empty list means that the releases are unknown, so no pin is removed.
		if len(in.Served) > 0 && !slices.Contains(in.Served, s.Release) {
			n.Release, n.PinnedUntil, n.UpdatedAt = "", history.Time{}, now
			c.Timeline = append(
				c.Timeline,
				protocol.SessionEvent{At: now, What: "unpinned", Epoch: s.Epoch, Why: "no app serves release " + s.Release},
			)
		}
	default:
		return SessionChange{}, errNotDue
	}
	return c, nil
}

// lose ends an epoch that its owner did not release. A session with no_reacquire ends, since no other worker has its
// state.
func (s *Session) lose(status protocol.SessionStatus, reason string, now history.Time) {
	if s.NoReacquire {
		s.endAs(status, reason, now)
		return
	}
	s.Status, s.Reason, s.GivenUp, s.UpdatedAt, s.Moving, s.Leaving = status, reason, "", now, "", false
	s.Yielding, s.OtherAt, s.SnapshotRequest = false, history.Time{}, nil
	s.unpinRelease(now)
}

// OrphanSession ends the ownership of a session whose owner's registration became stale before the lease expired: the
// session's tasks need not wait for the lease of a worker that is probably dead. The incarnation must be the one whose
// heartbeats are missing: a worker that has registered again keeps its sessions.
type OrphanSession struct{ Worker, Incarnation string }

func (in OrphanSession) decide(s *Session, now history.Time) (SessionChange, error) {
	if s == nil || !s.Held(now.Time) || s.Owner != in.Worker || s.Incarnation != in.Incarnation {
		return SessionChange{}, errNotDue
	}
	c := SessionChange{Session: *s}
	if s.ready(now.Time) {
		c.Timeline = c.Session.handOver(now)
		return c, nil
	}
	c.Session.lose(protocol.SessionOrphaned, ReasonOrphaned, now)
	c.Session.LeaseUntil = now
	c.Timeline = append(c.Timeline, s.ended(now, "orphaned", "", ReasonOrphaned))
	return c, nil
}

// ForgetSession removes the row of a session that has ended, at an operator's request, so that its ID can be used
// again. Its epoch is stored, as by CleanUp. It is refused while activities wait in the session. Unless Force is set,
// it is also refused while activities run in the session or its last lease is valid.
type ForgetSession struct {
	Operator string
	Why      string
	Force    bool
}

func (in ForgetSession) decide(s *Session, now history.Time) (SessionChange, error) {
	switch {
	case s == nil:
		return SessionChange{}, protocol.Refuse(protocol.ReasonSessionNotFound, "session not found")
	case !s.Terminal:
		return SessionChange{}, protocol.Refuse(
			protocol.ReasonSessionNotEnded, "session %s has not ended; close it first", s.ID,
		)
	case s.Ready > 0:
		return SessionChange{}, protocol.Refuse(
			protocol.ReasonSessionNotEnded, "activities that wait in session %s have not been failed yet; try again", s.ID,
		)
	case !in.Force && s.running() > 0:
		return SessionChange{}, protocol.Refuse(
			protocol.ReasonSessionNotEnded, "%d activities still run in session %s; wait for them or use force",
			s.running(), s.ID,
		)
	case !in.Force && s.LeaseUntil.After(now.Time):
		return SessionChange{}, protocol.Refuse(
			protocol.ReasonSessionNotEnded, "worker %s may use session %s until its lease ends at %s; wait or use force",
			s.Owner, s.ID, s.LeaseUntil.Format(time.RFC3339),
		)
	}
	why := "forgotten"
	if in.Why != "" {
		why += ": " + in.Why
	}
	return SessionChange{
		Session: *s, Delete: true,
		Timeline: []protocol.SessionEvent{{
			At: now, What: "cleaned_up", Worker: s.Owner, Epoch: s.Epoch, By: in.Operator, Why: why,
		}},
	}, nil
}

// CleanUp removes the row of a session that has ended or expired and has no tasks. Its epoch is stored (see
// EpochWatermark), so that the ID never gets a lower one.
type CleanUp struct{ Before time.Time }

func (in CleanUp) decide(s *Session, now history.Time) (SessionChange, error) {
	switch {
	case s == nil, s.Held(now.Time), s.Ready > 0, s.suspendedUntil().After(now.Time), s.running() > 0 && !s.Terminal:
		return SessionChange{}, errNotDue
	// An ended session stays stored for some time, so that users can see why it ended. A workflow-scoped session that
	// has not ended belongs to its workflow.
	case s.Terminal && s.UpdatedAt.After(in.Before), s.Origin == OriginWorkflow && !s.Terminal:
		return SessionChange{}, errNotDue
	}
	return SessionChange{
		Session: *s, Delete: true,
		Timeline: []protocol.SessionEvent{{At: now, What: "cleaned_up", Worker: s.Owner, Epoch: s.Epoch}},
	}, nil
}
