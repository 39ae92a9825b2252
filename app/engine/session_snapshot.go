package engine

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A session whose definition has OnHandOver and Restore keeps its state when it moves. Before the owner loses the
// session, the app stops dispatching its tasks and requests a snapshot from the owner. The snapshot contains the
// effects of all activities that completed, because no activity runs while the owner takes it, and every later one
// invalidates it. The next owner restores it after its set-up.

// Snapshot is the state of a session that an owner stored for the next one.
type Snapshot struct {
	// Epoch is the epoch whose activities find this state: the epoch of the owner that stored it, and after the next
	// acquisition that of the new owner, until an activity of it has ended.
	Epoch    int64        `json:"epoch"`
	Worker   string       `json:"worker"` // the owner that stored it
	Bytes    int64        `json:"bytes"`
	Checksum string       `json:"sha256"`         // of the encoded payload
	File     string       `json:"file,omitempty"` // in the workers' directory; empty: the database has the payload
	Until    history.Time `json:"until"`          // end of its age
}

// SnapshotRequest is the app's request to the owner to store a snapshot before it loses the session. Meanwhile Moving
// is set, so that no task of the session is dispatched.
type SnapshotRequest struct {
	By    string       `json:"by,omitempty"`
	Why   string       `json:"why,omitempty"`
	Until history.Time `json:"until"` // the session then moves without a snapshot
}

// snapshotWait is how long the app waits for a requested snapshot. Workers have a shorter timeout; it applies to a
// worker that renews its sessions and never stores the snapshot.
const snapshotWait = protocol.MaxSnapshotTimeout + 15*time.Second

// equal reports whether two pointers are both nil or point to equal values.
func equal[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

// mayRestore reports whether a worker has registered the definition with OnHandOver and Restore.
func (w *Worker) mayRestore(definition string) bool {
	return slices.Contains(w.Capabilities, protocol.SnapshotCapability(definition))
}

// hasSnapshot reports whether the state of the session's epoch is stored.
func (s *Session) hasSnapshot(now time.Time) bool {
	return s.Snapshot != nil && s.Snapshot.Epoch == s.Epoch && s.Snapshot.Until.After(now)
}

// StoresSnapshot reports whether the database has the payload of the session's snapshot.
func (s *Session) StoresSnapshot() bool { return s.Snapshot != nil && s.Snapshot.File == "" }

// Restores reports whether the owner must restore a snapshot after its set-up.
func (s *Session) Restores() bool {
	return s.Snapshot != nil && s.Snapshot.Epoch == s.Epoch && s.NeedsSetUp()
}

// PassesSnapshot reports whether the owner has stored the snapshot that a prepared successor restores.
func (s *Session) PassesSnapshot(now time.Time) bool {
	return s.prepared(now) && s.hasSnapshot(now) && !s.NeedsSetUp() && !s.Prepare.Restored
}

// needsSnapshot reports whether the owner must store a snapshot before the session moves. Without a set-up in its epoch
// the session has no state, or has a snapshot that was not restored yet.
func (s *Session) needsSnapshot(now time.Time) bool {
	return s.Snapshots && s.SnapshotRequest == nil && !s.NeedsSetUp() && !s.NoReacquire && !s.Terminal &&
		s.ReleasePolicy != PolicyFail && s.Held(now) && !s.hasSnapshot(now)
}

// requestSnapshot stops the dispatch of the session's tasks and requests a snapshot from the owner. With leaving, the
// release policy applies afterwards.
func (s *Session) requestSnapshot(now history.Time, by, why string, leaving bool) protocol.SessionEvent {
	s.Moving, s.Leaving, s.UpdatedAt = cmp.Or(by, "app"), leaving, now
	s.SnapshotRequest = &SnapshotRequest{By: by, Why: why, Until: plus(now, snapshotWait)}
	return protocol.SessionEvent{
		At: now, What: protocol.SessionSnapshotRequested, Worker: s.Owner, Epoch: s.Epoch, By: by, Why: why,
	}
}

// leave releases the session, or first requests a snapshot from its owner.
func (s *Session) leave(now history.Time, by, why string) protocol.SessionEvent {
	if s.needsSnapshot(now.Time) {
		return s.requestSnapshot(now, by, why, false)
	}
	return s.release(now, by, why)
}

// AwaitsSnapshot reports whether the owner has been asked for a snapshot under this epoch.
func (s *Session) AwaitsSnapshot() bool { return s.SnapshotRequest != nil && s.Owner != "" }

// ready reports whether a successor has the state of the session: its set-up has ended, and it has restored the
// snapshot if the owner stores snapshots.
func (s *Session) ready(now time.Time) bool {
	return s.prepared(now) && (!s.Snapshots || s.Prepare.Restored)
}

// storeSnapshot stores the snapshot that the owner took. It replaces an earlier one.
func (c *SessionChange) storeSnapshot(in *protocol.SessionSnapshot, now history.Time) {
	s := &c.Session
	age := protocol.SnapshotAge
	if in.MaxAge > 0 {
		age = seconds(int64(in.MaxAge))
	}
	s.Snapshot = &Snapshot{
		Epoch: s.Epoch, Worker: s.Owner, Bytes: in.Bytes, Checksum: in.Checksum, File: in.File, Until: plus(now, age),
	}
	c.Snapshot = &in.Data.Blob
	to := s.Owner
	if s.prepared(now.Time) {
		to = s.Prepare.Worker // its next heartbeat receives the snapshot
	}
	c.Timeline = append(c.Timeline, protocol.SessionEvent{
		At: now, What: protocol.SessionSnapshotStored, Worker: to, Epoch: s.Epoch, By: s.Owner,
	})
}

// snapshotTaken applies the owner's response to a request for a snapshot. With a prepared successor the owner keeps the
// session until the successor has restored the snapshot; otherwise it releases the session. Without a snapshot the
// successor's state is useless.
func (in ReleaseSession) snapshotTaken(s *Session, now history.Time) (SessionChange, error) {
	r := s.SnapshotRequest
	if r == nil {
		return SessionChange{}, protocol.Refuse(
			protocol.ReasonSessionNotActive, "no snapshot of session %s is requested", s.ID,
		)
	}
	c := SessionChange{Session: *s}
	n := &c.Session
	n.SnapshotRequest, n.UpdatedAt = nil, now
	if in.Snapshot == nil {
		n.snapshotFailed(&c, r, in.SnapshotFailed, now)
		return c, nil
	}
	c.storeSnapshot(in.Snapshot, now)
	if !s.prepared(now.Time) {
		n.leaveFor(&c, r, r.Why, now)
	}
	return c, nil
}

// snapshotFailed moves a session whose owner did not store the requested snapshot: its state is lost.
func (s *Session) snapshotFailed(c *SessionChange, r *SnapshotRequest, cause string, now history.Time) {
	s.SnapshotRequest = nil
	if p := s.Prepare; p != nil && p.Balance { // the owner does not drain, so the session stays
		s.notPrepared()
		c.Timeline = append(c.Timeline, s.endPreparation(now, protocol.ReasonSnapshotFailed+": "+cause))
		return
	}
	why := protocol.ReasonSnapshotFailed + ": " + cause
	c.Timeline = append(c.Timeline, protocol.SessionEvent{
		At: now, What: protocol.SessionSnapshotLost, Worker: s.Owner, Epoch: s.Epoch, By: s.Owner, Why: why,
	})
	s.leaveFor(c, r, why, now)
}

// leaveFor releases the session for which a snapshot was requested.
func (s *Session) leaveFor(c *SessionChange, r *SnapshotRequest, why string, now history.Time) {
	if s.Leaving {
		c.Timeline = append(c.Timeline, s.endForShutdown(now, r.By, why)...)
		return
	}
	c.Timeline = append(c.Timeline, s.release(now, r.By, why))
	s.startReservation(now)
}

// passSnapshot decides what a new owner restores. It is called in an acquisition, after the epoch has increased from
// former. A snapshot that the owner cannot restore, or that is too old, counts as lost.
func (s *Session) passSnapshot(w *Worker, former int64, now time.Time) (timeline []protocol.SessionEvent) {
	s.SnapshotRequest = nil
	s.Snapshots = s.Definition != "" && w.mayRestore(s.Definition)
	p := s.Snapshot
	if s.Snapshot = nil; p == nil || s.PreparedFor != 0 {
		return nil
	}
	lost := ""
	switch {
	case p.Epoch != former: // activities ran after it was stored
		return nil
	case !p.Until.After(now):
		lost = "it expired at " + p.Until.Format(time.RFC3339)
	case !s.Snapshots:
		lost = "worker " + w.ID + " does not declare " + protocol.SnapshotCapability(s.Definition)
	}
	if lost != "" {
		s.Before = protocol.ReasonSnapshotLost + ": " + lost
		return []protocol.SessionEvent{{
			At: history.At(now), What: protocol.SessionSnapshotLost, Worker: w.ID, Epoch: s.Epoch, By: w.ID, Why: s.Before,
		}}
	}
	next := *p
	next.Epoch = s.Epoch
	s.Snapshot, s.Before = &next, ""
	return nil
}

// stateUsed invalidates the snapshot of the session's epoch, because an activity of the epoch begins.
func (s *Session) stateUsed() {
	if s.Snapshot != nil && !s.NeedsSetUp() {
		s.Snapshot = nil
	}
}

// setUpDone records that the state of the epoch exists. A snapshot that the owner restored is no longer needed.
func (s *Session) setUpDone() { s.SetUpEpoch, s.Snapshot = s.Epoch, nil }

// usedSnapshot records the end of an attempt that a worker reported: the set-up of its epoch has completed, also if the
// attempt that ran it has not reported that yet. Otherwise the next owner would restore the state from before this
// attempt.
func (st *step) usedSnapshot(a Activity, r *protocol.Recovered) {
	if a.SessionID == "" || r != nil && r.SetUp != nil && r.SetUp.Outcome != protocol.Rebuilt {
		return
	}
	s, ok := st.session(a.SessionID)
	if ok && s.Snapshot != nil && s.Epoch == a.Epoch && s.NeedsSetUp() {
		s.setUpDone()
		st.storeSession(s)
	}
}

// restoreFailed records that the owner could not restore the snapshot: the state is lost.
func (st *step) restoreFailed(a Activity, cause string) {
	s, ok := st.session(a.SessionID)
	if !ok || s.Snapshot == nil || s.Epoch != a.Epoch || !s.NeedsSetUp() {
		return
	}
	text := strings.ToValidUTF8(cause[:min(len(cause), maxCause)], "")
	s.Snapshot, s.Before = nil, protocol.ReasonRestoreFailed+": "+text
	st.storeSession(s, protocol.SessionEvent{
		At: st.now, What: protocol.SessionSnapshotLost, Worker: a.Owner, Epoch: a.Epoch, By: a.Owner, Why: s.Before,
	})
}
