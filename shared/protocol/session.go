package protocol

import (
	"encoding/json"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// SessionCreate claims a session by request, before any activity of it.
type SessionCreate struct {
	WorkerID    string `json:"worker_id"`
	Namespace   string `json:"namespace,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`
	SessionOptions
}

// Refused returns the refusal of a creation that could not be decoded: clients of the contract expect a separate reason
// for an invalid ID.
func (SessionCreate) Refused(why error) error {
	var e *Error
	if errors.As(why, &e) && len(e.Fields["session_id"]) > 0 {
		e.Reason = ReasonInvalidSession
	}
	return why
}

// ReasonWorkerShutdown is the reason with which the published SDKs close each of their sessions when a worker stops. A
// DELETE with it releases a session unless it must not be acquired again.
const ReasonWorkerShutdown = "worker_shutdown"

// Reasons in the notice that a session ended for its owner because the lease expired.
const (
	EndedLeaseExpired   = "lease_expired"
	EndedHeartbeatStale = "worker_heartbeat_stale"
)

// ReasonGivenUp is the reason of a release by a worker that has discarded the state of the epoch: no task may start
// under that epoch any more, even at the same worker.
const ReasonGivenUp = "given_up"

// SessionVerb renews, releases or closes a session of the caller. Epoch is optional; if it is sent, it must be the
// current one.
type SessionVerb struct {
	WorkerID  string `json:"worker_id"`
	Namespace string `json:"namespace,omitempty"`
	SessionID string `json:"session_id"`
	Epoch     int64  `json:"epoch,omitempty"`
	Lease     Count  `json:"lease_seconds,omitempty" minimum:"1" maximum:"315360000"`
	Reason    string `json:"reason,omitempty"`
	Failed    string `json:"failed,omitempty"` // release: the executor ended uncleanly, with this cause
	// release with the reason given_up: the highest epoch of the session that the worker has seen. The next epoch
	// exceeds it, unless it is more than a day ahead of the database's clock.
	Known int64 `json:"known_epoch,omitempty"`
	// release: the worker will store a snapshot. The app stops dispatching tasks of the session, and the response has the
	// outcome snapshot_requested; the worker then releases the session with the reason snapshot.
	SnapshotFollows bool `json:"snapshot_follows,omitempty"`
	// release: the state of the session for its next owner
	Snapshot *SessionSnapshot `json:"snapshot,omitempty"`
	// release with the reason snapshot: why the worker stored no snapshot
	SnapshotFailed string `json:"snapshot_failed,omitempty"`
}

// SessionSnapshot is the state of a session that its owner stored for the next owner.
type SessionSnapshot struct {
	Data     payload.Payload `json:"data,omitzero"`  // bytes; absent: File has them
	File     string          `json:"file,omitempty"` // name of a file in the workers' snapshot directory
	Bytes    int64           `json:"bytes" minimum:"0"`
	Checksum string          `json:"sha256"` // of the encoded data, in hexadecimal digits
	// time after which the snapshot is discarded; 0: an hour
	MaxAge Count `json:"max_age_seconds,omitempty" minimum:"1" maximum:"315360000"`
}

// SnapshotAge is the default age after which a snapshot of a session is discarded. MaxSnapshotTimeout is the longest
// time that a worker takes for a snapshot.
const (
	SnapshotAge        = time.Hour
	MaxSnapshotTimeout = 5 * time.Minute
)

// SuspendedState is how long a worker keeps the state of a session after the session's lease has ended, by the worker's
// clock.
const SuspendedState = 5 * time.Minute

// ReasonSnapshot is the reason of a release by a worker from which the app requested a snapshot, and of the notice with
// that request. The app then releases the session, or first waits until a prepared successor has restored the snapshot.
const ReasonSnapshot = "snapshot"

// Reasons why a snapshot of a session's state is missing: the owner did not store it, the next owner could not read or
// restore it, or it expired.
const (
	ReasonSnapshotFailed = "snapshot_failed"
	ReasonSnapshotLost   = "snapshot_lost"
	ReasonRestoreFailed  = "restore_failed"
)

// Outcomes of a release after which the worker still owns the session: the app waits for the worker's snapshot, or a
// prepared successor restores the snapshot first.
const (
	OutcomeSnapshotRequested = "snapshot_requested"
	OutcomeSnapshotStored    = "snapshot_stored"
)

// SnapshotCapability is the capability of workers that registered a session definition with OnHandOver and Restore.
func SnapshotCapability(definition string) string { return "session_snapshot:" + definition }

// SessionResponse is the receipt of every session verb.
type SessionResponse struct {
	Admitted bool `json:"admitted"`
	// created, reused, reacquired, heartbeat_recorded, released, snapshot_requested, snapshot_stored, closed,
	// already_closed
	Outcome string       `json:"outcome,omitempty"`
	TaskID  *string      `json:"activity_task_id"`
	Status  int          `json:"status"`
	Reason  *string      `json:"reason"`
	Session *SessionView `json:"session,omitempty"`
}

// SessionView is a session as receipts, listings and the detail route show it.
type SessionView struct {
	SessionID    string   `json:"session_id"`
	Namespace    string   `json:"namespace"`
	Origin       string   `json:"door"`  // implicit, worker, workflow
	Scope        string   `json:"scope"` // namespace, workflow
	WorkflowID   string   `json:"workflow_id,omitempty"`
	Connection   *string  `json:"connection"`
	Queue        *string  `json:"queue"`
	Requirements []string `json:"requirements"`
	// amounts of the resources of workers that the session needs, by its options
	Resources Resources `json:"resources,omitempty"`
	// amounts that it uses at its owner, including defaults of its definition; also of suspended state
	Used           Resources      `json:"used_resources,omitempty"`
	Status         SessionStatus  `json:"status"`
	Epoch          int64          `json:"epoch"`
	LeaseOwner     *string        `json:"lease_owner"`
	Holder         *SessionHolder `json:"holder"`
	LeaseExpiresAt history.Time   `json:"lease_expires_at"`
	TTLExpiresAt   history.Time   `json:"ttl_expires_at"`
	IdleSeconds    int64          `json:"idle_seconds,omitempty"`
	ClosedAt       history.Time   `json:"closed_at"`
	FailureReason  *string        `json:"failure_reason"`         // ttl_expired, lease_expired, worker_heartbeat_stale
	EndedReason    string         `json:"ended_reason,omitempty"` // why the last epoch ended
	Lease          int64          `json:"lease_seconds"`
	TTL            int64          `json:"ttl_seconds"` // 0: none
	MaxActivities  int            `json:"max_concurrent_activities"`
	Create         bool           `json:"create_if_missing"`
	Reacquire      bool           `json:"allow_reacquire_after_failure"`
	Active         int            `json:"active_activity_count"`
	Ready          int            `json:"ready_activity_count"`
	Release        string         `json:"release,omitempty"`
	ReleasePolicy  string         `json:"release_policy,omitempty"`
	Affinity       string         `json:"affinity"` // hard, soft
	FallbackAfter  int64          `json:"fallback_after_seconds,omitempty"`
	Definition     string         `json:"session_definition,omitempty"`
	Pinned         bool           `json:"pinned,omitempty"`    // never released to make room for another session
	FailFast       bool           `json:"fail_fast,omitempty"` // leases of at most 10 s
	Yielding       bool           `json:"yielding,omitempty"`  // not renewed, to make room for another session
	// soft affinity and a task waits: time from which any worker may acquire the session
	FallbackAt history.Time `json:"fallback_at,omitzero"`
	Moving     string       `json:"moving,omitempty"` // operator who requested the migration
	// during a hand-over: worker that sets the session up while its owner still holds it
	Successor *SessionSuccessor `json:"successor,omitempty"`
	// state that an owner stored and the next owner restores
	Snapshot        *SnapshotView  `json:"snapshot,omitempty"`
	KeptFor         string         `json:"kept_for,omitempty"` // worker with a short priority to acquire it
	Claims          int            `json:"claims,omitempty"`   // acquisitions since the session was stored
	Pool            string         `json:"pool,omitempty"`     // name of the pool of which it is a member
	Uses            int            `json:"uses,omitempty"`     // loans of this member so far
	LentAt          history.Time   `json:"lent_at,omitzero"`   // workflow_id has borrowed it since then
	LoanExpiresAt   history.Time   `json:"loan_expires_at,omitzero"`
	LastActivityAt  history.Time   `json:"last_activity_at"`
	LastHeartbeatAt history.Time   `json:"last_heartbeat_at"`
	CreatedAt       history.Time   `json:"created_at"`
	UpdatedAt       history.Time   `json:"updated_at"`
	Waiting         string         `json:"waiting,omitempty"`  // reason why its tasks wait, for people
	Wait            *Wait          `json:"wait,omitempty"`     // reason why its tasks wait, for programs
	Timeline        []SessionEvent `json:"timeline,omitempty"` // newest entries, oldest first
	// page token of the timeline route for the preceding entries; absent: there are none
	TimelineToken *string `json:"timeline_page_token,omitempty"`
}

// SessionSuccessor is the worker that prepares a session during a hand-over. It owns the session once its set-up and
// the last running task at the owner have ended.
type SessionSuccessor struct {
	WorkerID       string       `json:"worker_id"`
	StartedAt      history.Time `json:"started_at,omitzero"`  // when the app chose this worker
	PreparedAt     history.Time `json:"prepared_at,omitzero"` // end of its set-up; absent: the set-up still runs
	LeaseExpiresAt history.Time `json:"lease_expires_at"`     // its heartbeats renew this lease of the preparation
	// EndedRebalanced: the session moves because this worker holds fewer sessions; absent: because the owner drains
	Why string `json:"why,omitempty" enum:"rebalanced"`
}

// SnapshotView describes the stored state of a session.
type SnapshotView struct {
	WorkerID  string       `json:"worker_id"` // the owner that stored it
	Bytes     int64        `json:"bytes"`
	File      string       `json:"file,omitempty"` // in the workers' snapshot directory; absent: the app stores it
	ExpiresAt history.Time `json:"expires_at"`
}

// SessionHolder is the worker that owns a session.
type SessionHolder struct {
	WorkerID        string       `json:"worker_id"`
	TaskQueue       string       `json:"task_queue"`
	Status          WorkerStatus `json:"status"`
	LastHeartbeatAt history.Time `json:"last_heartbeat_at"`
	Stale           bool         `json:"is_stale"`
}

// SessionOperation is an operator's request to close a session, to migrate it to another worker, or to forget it.
type SessionOperation struct {
	Namespace string `json:"-"`
	SessionID string `json:"-"`
	Verb      string `json:"-"`
	Identity  string `json:"-"`
	Reason    string `json:"reason,omitempty" maxLength:"1000"`
	// migrate: at once, even if activities run in it; forget: even if activities run in it or its last lease is valid
	Force bool   `json:"force,omitempty"`
	To    string `json:"worker_id,omitempty"` // migrate: the new owner; empty: any suitable worker
}

// SessionEvent is one entry of a session's ownership timeline.
type SessionEvent struct {
	At history.Time `json:"at"`
	// All renewals of one epoch are one entry, at the time of the last renewal.
	What   string `json:"what" enum:"started,borrowed,returned,claimed,reclaimed,set_up,set_up_failed,preparing,prepared,preparation_ended,snapshot_requested,snapshot_stored,snapshot_lost,resumed,renewed,draining,released,expired,idle_unpinned,orphaned,failed,closed,unpinned,cleaned_up"`
	Worker string `json:"worker_id,omitempty"` // the owner before or after this event
	Epoch  int64  `json:"epoch,omitempty"`
	// worker, operator or run that caused the event; empty: the app, at a deadline
	By   string `json:"by,omitempty"`
	Why  string `json:"why,omitempty"`
	Task string `json:"task_id,omitempty"` // acquisitions: the task that needed the session
	// For an event that ends an epoch: attempts in it (counted up to 10,000) and renewals of the lease that no attempt
	// caused.
	Ran      int `json:"ran,omitempty"`
	Renewals int `json:"renewals,omitempty"`
	// First and last of these renewals.
	FirstRenewal history.Time `json:"first_renewal,omitzero"`
	LastRenewal  history.Time `json:"last_renewal,omitzero"`
	Idle         float64      `json:"idle_seconds,omitempty"`
	Release      string       `json:"release,omitempty"` // acquisitions: release of the worker
	Seconds      float64      `json:"set_up_seconds,omitempty"`
}

// Entries of the timeline about a successor that sets the session up before the owner stops. Worker is the successor.
const (
	SessionPreparing        = "preparing"
	SessionPrepared         = "prepared"
	SessionPreparationEnded = "preparation_ended"
)

// Entries of the timeline about snapshots. Worker is the owner; a stored snapshot names the successor that restores it.
const (
	SessionSnapshotRequested = "snapshot_requested"
	SessionSnapshotStored    = "snapshot_stored"
	SessionSnapshotLost      = "snapshot_lost"
)

// EndedHandedOver is the reason for the end of an epoch whose owner was replaced by a successor with prepared state,
// and for the acquisition by the successor.
const EndedHandedOver = "handed_over"

// EndedRebalanced is the reason for a hand-over to a worker that holds fewer sessions, and for the end of the epoch in
// it.
const EndedRebalanced = "rebalanced"

// ForSuccessor reports whether a heartbeat of the entry's worker finds a change of a preparation.
func (e SessionEvent) ForSuccessor() bool {
	return e.What == SessionPreparing || e.What == SessionPreparationEnded || e.What == SessionSnapshotStored ||
		e.What == "reclaimed" && e.Why == EndedHandedOver
}

// Ends reports whether an epoch of the session ended with this event.
func (e SessionEvent) Ends() bool {
	switch e.What {
	case "released", "expired", "idle_unpinned", "orphaned", "failed", "closed":
		return e.Worker != ""
	}
	return false
}

// SessionList filters and pages sessions, last updated first.
type SessionList struct {
	Namespace string `json:"namespace,omitempty"`
	Status    string `json:"status,omitempty"`
	Owner     string `json:"owner,omitempty"`
	Queue     string `json:"queue,omitempty"`
	Workflow  string `json:"workflow_id,omitempty"`
	Query     string `json:"query,omitempty"` // substring of the id
	PageSize  int    `json:"page_size,omitempty"`
	PageToken string `json:"next_page_token,omitempty"`
}

// SessionPage is one page of sessions, with counts over all of the namespace.
type SessionPage struct {
	Namespace     string         `json:"namespace"`
	Metrics       map[string]int `json:"metrics"` // total and one per status
	Sessions      []SessionView  `json:"sessions"`
	NextPageToken *string        `json:"next_page_token"`
}

// SessionTimeline requests a page of a session's timeline, also after the session was deleted; without a token the
// newest.
type SessionTimeline struct {
	Namespace string `json:"-"`
	SessionID string `json:"-"`
	PageSize  int    `json:"page_size,omitempty"`
	PageToken string `json:"next_page_token,omitempty"`
}

// SessionTimelinePage is one page of a session's timeline, oldest entry first; the next page has the preceding entries.
// Entries for lease renewals are added to the page and do not count towards page_size.
type SessionTimelinePage struct {
	Namespace     string         `json:"namespace"`
	SessionID     string         `json:"session_id"`
	Timeline      []SessionEvent `json:"timeline"`
	NextPageToken *string        `json:"next_page_token"`
}

// SessionAttempts requests the attempts of a session, newest first: of one epoch, or of all with epoch 0.
type SessionAttempts struct {
	Namespace string `json:"-"`
	SessionID string `json:"-"`
	Epoch     int64  `json:"epoch,omitempty"`
	PageSize  int    `json:"page_size,omitempty"`
	PageToken string `json:"next_page_token,omitempty"`
}

// SessionAttempt is one delivery of an activity in a session.
type SessionAttempt struct {
	WorkflowID   string `json:"workflow_id"`
	RunID        string `json:"run_id"`
	TaskID       string `json:"task_id"`
	AttemptID    string `json:"activity_attempt_id"`
	ActivityType string `json:"activity_type"`
	Attempt      int    `json:"attempt_number,omitempty"` // absent for a lost delivery
	Worker       string `json:"worker_id"`
	Epoch        int64  `json:"epoch"` // of the session at that time
	// running, completed, failed, cancelled, expired (the worker was lost), returned
	Outcome   string       `json:"outcome" enum:"running,completed,failed,cancelled,expired,returned"`
	Why       string       `json:"why,omitempty"`
	StartedAt history.Time `json:"started_at,omitzero"`
	EndedAt   history.Time `json:"ended_at,omitzero"`
	// time of the last heartbeat from the code; set for running and lost deliveries
	Heartbeat        history.Time    `json:"last_heartbeat_at,omitzero"`
	HeartbeatDetails json.RawMessage `json:"last_heartbeat_details,omitempty"` // progress in the last heartbeat
}

// SessionAttemptPage is one page of a session's attempts. It does not have attempts of runs deleted by retention.
type SessionAttemptPage struct {
	Namespace     string           `json:"namespace"`
	SessionID     string           `json:"session_id"`
	Attempts      []SessionAttempt `json:"attempts"`
	NextPageToken *string          `json:"next_page_token"`
}

// FailFastLease is the longest lease of a fail-fast session and of attempts in it. Workers renew these leases every
// FailFastRenewal.
const (
	FailFastLease   = 10 * time.Second
	FailFastRenewal = 3 * time.Second
)

// CapFailFast is the capability of workers that renew the leases of fail-fast sessions in time.
const CapFailFast = "fail_fast_sessions"
