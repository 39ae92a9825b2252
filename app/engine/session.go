package engine

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A session binds activities to one worker, which may keep a browser, a file or a model for them. There are two
// invariants. At most one worker owns the session at a time: the lease decides this, by the store's clock. Writes of a
// former owner are refused: the epoch is the fencing token. The rules are in the files session*.go, in admit.go (which
// worker may acquire a session) and in lease.go (acquisition).

// Origin says how a session was created, which determines its defaults.
type Origin string

// The three origins are: the session ID of an activity; requests and options of a worker; StartSession and EndSession
// of a workflow.
const (
	OriginImplicit Origin = "implicit"
	OriginWorker   Origin = "worker"
	OriginWorkflow Origin = "workflow"
)

// Session is the row of a session: affinity of activities to a worker, with a lease and an epoch. A session that no
// worker holds has no owner. A closed session keeps its last owner for display.
type Session struct {
	Namespace string `json:"-"`
	ID        string `json:"-"`
	Origin    Origin `json:"-"`
	// WorkflowID is the workflow ID to which a workflow-scoped session belongs; the session survives continue-as-new.
	WorkflowID string                 `json:"-"`
	Status     protocol.SessionStatus `json:"-"`
	Owner      string                 `json:"-"`
	// Epoch is the fence. Every acquisition increases it over the whole life of the ID, also if clean-up removed the
	// row in between: a worker that was paused all that time must not hold an epoch that is in use again.
	Epoch      int64        `json:"-"`
	LeaseUntil history.Time `json:"-"`
	UpdatedAt  history.Time `json:"-"`

	Incarnation string `json:"incarnation,omitempty"`
	Terminal    bool   `json:"terminal,omitempty"` // the session was closed, or its TTL has passed
	// EverAcquired: a worker has acquired the session at least once. Listings omit sessions that were never acquired,
	// except workflow-scoped ones.
	EverAcquired bool         `json:"claimed,omitempty"`
	TTLUntil     history.Time `json:"ttl_until,omitzero"`
	LastActivity history.Time `json:"last_activity,omitzero"`
	Lease        int64        `json:"lease,omitempty"` // length of one renewal, in microseconds
	Idle         int64        `json:"idle,omitempty"`  // idle timeout in microseconds; 0: none
	TTL          int64        `json:"ttl,omitempty"`   // in seconds; 0: none
	Requirements []string     `json:"requirements,omitempty"`
	// Resources are amounts of the resources of workers that the session needs.
	Resources protocol.Resources `json:"resources,omitempty"`
	// Used are the resources that the session uses at its owner, or at its last owner with suspended state.
	Used protocol.Resources `json:"used,omitempty"`
	// Suspends: the owner keeps the state for some time after the lease has ended, so Used continues to count.
	Suspends   bool   `json:"suspends,omitempty"`
	Queue      string `json:"queue,omitempty"`
	Connection string `json:"connection,omitempty"`
	// maximum number of concurrent activities; 0: see DefaultMaxActivities
	MaxActivities int `json:"max_activities,omitempty"`
	// the maximum that the owner registered; 0: its slots
	DefaultMaxActivities int  `json:"together,omitempty"`
	NoCreate             bool `json:"no_create,omitempty"`
	NoReacquire          bool `json:"no_reacquire,omitempty"`
	// never evicted when its owner holds its maximum number of sessions
	Pinned bool `json:"pinned,omitempty"`
	// FailFast limits the leases of the session, and of attempts in it, to protocol.FailFastLease.
	FailFast bool `json:"fail_fast,omitempty"`
	// Yielding marks a session that moves when its lease ends, so that its owner can hold another session. The lease is
	// not renewed. A task, or an explicit heartbeat, clears the mark.
	Yielding      bool   `json:"yielding,omitempty"`
	ReleasePolicy string `json:"release_policy,omitempty"`
	// limits requested since the acquisition, which apply from the next acquisition on
	Next *Numbers `json:"next,omitempty"`
	// Fallback is how long a task waits for the owner before any worker may acquire the session, in microseconds; 0: as
	// long as the owner holds it.
	Fallback int64 `json:"fallback,omitempty"`
	// WaitingSince, with soft affinity: since when the owner has leased none of the tasks that wait for it.
	WaitingSince history.Time `json:"waiting_since,omitzero"`
	// HolderSilent, with soft affinity: every app has missed two heartbeats of the owner, so tasks do not wait for it.
	HolderSilent bool `json:"holder_silent,omitempty"`
	// soft affinity: tasks have waited long enough, so any worker may acquire the session
	Open bool `json:"open,omitempty"`
	// Release is the release of the owner. The session is pinned to it until it is released; with PolicyFinish also
	// afterwards.
	Release string `json:"release,omitempty"`
	// Moving is the operator who moves the session. No new task is dispatched in it, and when its last task has ended
	// the owner loses it, so that no running task is interrupted.
	Moving string `json:"moving,omitempty"`
	// Leaving, together with Moving: the session moves because its owner drains, so the release policy applies.
	Leaving bool `json:"leaving,omitempty"`
	// PinnedUntil applies to a session with PolicyFinish and no owner. It is the time of the next check whether an app
	// of Release is still alive. Without these checks, the session would wait forever for a release that no app runs
	// any more.
	PinnedUntil history.Time `json:"pinned_until,omitzero"`
	// HolderQueues are the queues that the owner polls; only for implicit sessions.
	HolderQueues []string `json:"holder_queues,omitempty"`
	// OtherAt is the time of the next check for tasks in queues that the owner does not poll; zero: no check is due.
	OtherAt history.Time `json:"other_at,omitzero"`
	// while it has no owner, the session is reserved for this worker …
	For      string       `json:"for,omitempty"`
	ForUntil history.Time `json:"for_until,omitzero"` // … until this time
	// Drained, with PolicyFail: the owner was drained, and no task has failed with this loss yet.
	Drained      bool `json:"drained,omitempty"`
	Acquisitions int  `json:"claims,omitempty"` // number of acquisitions of this row
	// Fresh: no task was delivered under this epoch, except deliveries that were undone. The first delivery makes the
	// owner build the session's state.
	Fresh        bool         `json:"fresh,omitempty"`
	Renewals     int          `json:"renewals,omitempty"` // number of renewals of the current ownership's lease
	FirstRenewal history.Time `json:"first_renewal,omitzero"`
	LastRenewal  history.Time `json:"last_renewal,omitzero"`
	Reason       string       `json:"reason,omitempty"`   // why the last ownership ended
	GivenUp      string       `json:"given_up,omitempty"` // reason that the last owner reported
	Before       string       `json:"before,omitempty"`   // Reason and GivenUp of the ownership before that
	// when the session was last evicted, if its last ownership ended by eviction
	EvictedAt history.Time `json:"evicted_at,omitzero"`
	// Definition is the name of the session definition by which workers set the session up; empty: none. Once set, it
	// does not change.
	Definition string `json:"definition,omitempty"`
	OnLost     string `json:"on_lost,omitempty"` // OnLost of the definition's first use
	// ArgumentsHash is the hash of the definition's stored arguments; empty: no arguments.
	ArgumentsHash string `json:"arguments_hash,omitempty"`
	// SetUpEpoch is the epoch in which a worker last reported a set-up that completed.
	SetUpEpoch int64 `json:"set_up_epoch,omitempty"`
	// Prepare is the set-up at a successor that will acquire the session; nil: none.
	Prepare *Preparation `json:"prepare,omitempty"`
	// UnpreparedBy are the workers whose preparation of the session in this epoch failed or expired.
	UnpreparedBy []string `json:"unprepared_by,omitempty"`
	// PreparedFor is the epoch for which the state of the current epoch was prepared; 0: it was not prepared.
	PreparedFor int64 `json:"prepared_for,omitempty"`
	// Snapshots: the owner stores a snapshot of the state before it loses the session, and can restore one.
	Snapshots bool `json:"snapshots,omitempty"`
	// Snapshot is the stored state of the session; nil: none.
	Snapshot *Snapshot `json:"snapshot,omitempty"`
	// SnapshotRequest is the app's request to the owner for a snapshot; nil: none.
	SnapshotRequest *SnapshotRequest `json:"snapshot_request,omitempty"`
	// Pool is the name of the pool of which the session is a member; empty: none. Then WorkflowID is the workflow that
	// has borrowed the session; empty: none.
	Pool      string       `json:"pool,omitempty"`
	Loans     int          `json:"loans,omitempty"` // number of loans of this member
	Loan      *Loan        `json:"loan,omitempty"`  // the loan of this member; nil: it is not lent
	ClosedAt  history.Time `json:"closed_at,omitzero"`
	RenewedAt history.Time `json:"renewed_at,omitzero"`
	CreatedAt history.Time `json:"created_at,omitzero"`

	SessionCounts `json:"-"`
}

// Numbers are limits that session options may change in an existing session. They take effect at the next acquisition,
// since the current owner was promised the old ones.
type Numbers struct {
	Lease         int64 `json:"lease"` // in microseconds, like the field of Session
	Idle          int64 `json:"idle,omitempty"`
	TTL           int64 `json:"ttl,omitempty"` // in seconds; 0: none
	MaxActivities int   `json:"max_activities"`
	Fallback      int64 `json:"fallback,omitempty"`
	Pinned        bool  `json:"pinned,omitempty"`
	FailFast      bool  `json:"fail_fast,omitempty"`
}

func (s *Session) numbers() Numbers {
	return Numbers{s.Lease, s.Idle, s.TTL, s.MaxActivities, s.Fallback, s.Pinned, s.FailFast}
}

// requestLimits stores limits that apply from the next acquisition on.
func (s *Session) requestLimits(n Numbers) {
	s.Next = nil
	if n != s.numbers() {
		s.Next = &n
	}
}

// applyRequestedLimits applies the requested limits. A different TTL counts from this acquisition. An unchanged TTL
// continues to run; otherwise a client could extend the session forever by repeating its request.
func (s *Session) applyRequestedLimits() {
	n := s.Next
	if n == nil {
		return
	}
	s.Next = nil
	s.setLimits(*n)
	if n.TTL != s.TTL {
		s.TTL, s.TTLUntil = n.TTL, history.Time{}
	}
}

// setLimits sets all limits except the TTL.
func (s *Session) setLimits(n Numbers) {
	s.Lease, s.Idle, s.MaxActivities, s.Fallback, s.Pinned = n.Lease, n.Idle, n.MaxActivities, n.Fallback, n.Pinned
	s.FailFast = n.FailFast
}

// SessionCounts are the counts of a session that follow from the rows of its tasks. The session's row does not store
// them, so a step in a held session usually does not write that row. The transaction that locks the row counts the
// tasks and updates the SessionCounts with each decision.
type SessionCounts struct {
	Active int // number of attempts leased under the session's epoch
	// numbers of attempts leased under other epochs, by epoch; they count towards the session's limit
	StaleAttempts map[int64]int
	Ready         int  // number of ready tasks
	MoreReady     bool // Ready is a lower bound: more tasks may be ready than were counted
	// RecentActivity is the owner's last activity according to its tasks and their events; zero: not loaded.
	RecentActivity history.Time
}

// subtractReady subtracts a task from the ready ones. If Ready is only a lower bound, it stays.
func (t *SessionCounts) subtractReady() {
	if !t.MoreReady {
		t.Ready = max(0, t.Ready-1)
	}
}

// Same reports whether two states of a session have equal rows; an equal row is not written. It runs at every step in a
// session, so it compares fields by name instead of by reflection; a test checks that the list is complete. The counts
// are omitted, because the row does not store them: they are counted from the rows of the tasks.
func (s *Session) Same(o *Session) bool {
	return s.Namespace == o.Namespace && s.ID == o.ID && s.Origin == o.Origin && s.WorkflowID == o.WorkflowID &&
		s.Status == o.Status && s.Owner == o.Owner && s.Epoch == o.Epoch && s.LeaseUntil == o.LeaseUntil &&
		s.UpdatedAt == o.UpdatedAt && s.Incarnation == o.Incarnation && s.Terminal == o.Terminal &&
		s.EverAcquired == o.EverAcquired && s.TTLUntil == o.TTLUntil && s.LastActivity == o.LastActivity &&
		s.Lease == o.Lease && s.Idle == o.Idle && s.TTL == o.TTL && s.Queue == o.Queue &&
		s.Connection == o.Connection && s.MaxActivities == o.MaxActivities &&
		s.DefaultMaxActivities == o.DefaultMaxActivities &&
		s.NoCreate == o.NoCreate && s.NoReacquire == o.NoReacquire && s.Pinned == o.Pinned &&
		s.FailFast == o.FailFast &&
		s.Yielding == o.Yielding && s.OtherAt == o.OtherAt && s.ReleasePolicy == o.ReleasePolicy &&
		s.Fallback == o.Fallback && s.WaitingSince == o.WaitingSince && s.Open == o.Open &&
		s.HolderSilent == o.HolderSilent &&
		s.Release == o.Release && s.Moving == o.Moving && s.Leaving == o.Leaving &&
		s.PinnedUntil == o.PinnedUntil && s.For == o.For && s.ForUntil == o.ForUntil && s.Drained == o.Drained &&
		s.Acquisitions == o.Acquisitions && s.Fresh == o.Fresh && s.Renewals == o.Renewals &&
		s.FirstRenewal == o.FirstRenewal && s.LastRenewal == o.LastRenewal && s.Reason == o.Reason &&
		s.GivenUp == o.GivenUp && s.Before == o.Before && s.EvictedAt == o.EvictedAt && s.ClosedAt == o.ClosedAt &&
		s.RenewedAt == o.RenewedAt && s.CreatedAt == o.CreatedAt &&
		s.Definition == o.Definition && s.OnLost == o.OnLost && s.ArgumentsHash == o.ArgumentsHash &&
		s.SetUpEpoch == o.SetUpEpoch && s.PreparedFor == o.PreparedFor && s.Prepare.same(o.Prepare) &&
		slices.Equal(s.UnpreparedBy, o.UnpreparedBy) &&
		s.Suspends == o.Suspends && s.Resources.Equal(o.Resources) && s.Used.Equal(o.Used) &&
		s.Pool == o.Pool && s.Loans == o.Loans && equal(s.Loan, o.Loan) &&
		s.Snapshots == o.Snapshots && equal(s.Snapshot, o.Snapshot) && equal(s.SnapshotRequest, o.SnapshotRequest) &&
		slices.Equal(s.Requirements, o.Requirements) && slices.Equal(s.HolderQueues, o.HolderQueues) &&
		(s.Next == nil) == (o.Next == nil) && (s.Next == nil || *s.Next == *o.Next)
}

// SessionKey is the key of a session.
type SessionKey struct{ Namespace, ID string }

// Compare orders keys by namespace and ID.
func (k SessionKey) Compare(o SessionKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.ID, o.ID))
}

// Key returns the key of the session's row.
func (s *Session) Key() SessionKey { return SessionKey{s.Namespace, s.ID} }

// Held reports whether a worker owns the session at now. Only the lease decides this, by the store's clock; whether an
// app can reach the worker does not matter, since an owner that lost its connection still works in the session.
func (s *Session) Held(now time.Time) bool {
	return s.Status == protocol.SessionActive && s.Owner != "" && s.LeaseUntil.After(now)
}

// Shown returns the status that users see. A session that was held and then released has the status expired, since any
// worker may acquire it. A session that waits for its first acquisition is active.
func (s *Session) Shown() protocol.SessionStatus {
	if s.Status == protocol.SessionActive && s.Owner == "" && s.EverAcquired {
		return protocol.SessionExpired
	}
	return s.Status
}

// HeldBy reports whether this worker owns the session at now.
func (s *Session) HeldBy(worker string, now time.Time) bool { return s.Held(now) && s.Owner == worker }

// maxActivities returns the maximum number of activities that may run concurrently in the session: its own limit, or
// else its owner's; 0 means that only the worker's slots limit it.
func (s *Session) maxActivities() int {
	if s.MaxActivities > 0 {
		return s.MaxActivities
	}
	return s.DefaultMaxActivities
}

// Full reports whether the session's activity limit is reached. Attempts on former owners count, too (see running).
func (s *Session) Full() bool { return s.maxActivities() > 0 && s.running() >= s.maxActivities() }

// Unsettled reports whether tasks are queued that must fail: the session has ended, or its release policy requires a
// drain to fail a task.
func (s *Session) Unsettled() bool { return (s.Terminal || s.Drained) && s.Ready > 0 }

// lastActivity returns the time of the owner's last activity in the session. The row may lag behind by a tenth of the
// idle timeout, which saves a write in most steps; the tasks and their events are exact.
func (s *Session) lastActivity() history.Time { return latest(s.LastActivity, s.RecentActivity) }

// idle reports whether the session has reached its idle timeout.
func (s *Session) idle(now time.Time) bool {
	return s.Idle > 0 && now.Sub(s.lastActivity().Time) >= time.Duration(s.Idle)*time.Microsecond
}

// Unsure reports whether the store must read the tasks and their events to find out whether the session is idle: its
// row shows it as idle, but the row may lag behind.
func (s *Session) Unsure(now time.Time) bool {
	lag, idle := now.Sub(s.LastActivity.Time), time.Duration(s.Idle)*time.Microsecond
	return idle > 0 && lag >= idle && lag < idle+idle/lagging
}

// DueAt returns the time at which the sweeper must visit the session: its lease or TTL expires, its reservation for a
// worker ends, or tasks wait that can no longer run.
func (s *Session) DueAt() history.Time {
	if s.Unsettled() {
		return s.UpdatedAt
	}
	if s.Terminal {
		return history.Time{}
	}
	due := earliest(earliest(s.TTLUntil, s.ForUntil), s.PinnedUntil)
	if s.Loan != nil {
		due = earliest(due, s.Loan.Until)
	}
	if s.Prepare != nil {
		due = earliest(due, s.Prepare.Until)
	}
	// The owner that restores the snapshot has received it, and a restore may take longer than its age.
	if s.Snapshot != nil && (s.Owner == "" || !s.NeedsSetUp()) {
		due = earliest(due, s.Snapshot.Until)
	}
	if s.SnapshotRequest != nil {
		due = earliest(due, s.SnapshotRequest.Until)
	}
	if s.Status == protocol.SessionActive && s.Owner != "" {
		due = earliest(earliest(due, s.LeaseUntil), s.OtherAt)
	}
	if s.Status != protocol.SessionActive {
		due = earliest(due, s.suspendedUntil())
	}
	if !s.Open {
		due = earliest(due, s.OpensAt())
	}
	return due
}

// Worker is the registration of a worker: what it offers, and until when it counts as alive. Incarnation distinguishes
// processes of the same worker ID, so that a restarted worker is not mistaken for the process that held its leases.
type Worker struct {
	Namespace   string                `json:"-"`
	ID          string                `json:"-"`
	Incarnation string                `json:"-"`
	Status      protocol.WorkerStatus `json:"-"` // active or draining; the statuses stale and mismatched are computed
	AliveUntil  history.Time          `json:"-"`
	UpdatedAt   history.Time          `json:"-"`

	Queues        []string `json:"queues"`
	Runtime       string   `json:"runtime,omitempty"`
	SDKVersion    string   `json:"sdk_version,omitempty"`
	BuildID       string   `json:"build_id,omitempty"`
	Release       string   `json:"release,omitempty"`
	WorkflowTypes []string `json:"workflow_types,omitempty"`
	ActivityTypes []string `json:"activity_types,omitempty"`
	AnyActivity   bool     `json:"any_activity,omitempty"`
	Capabilities  []string `json:"capabilities,omitempty"`
	WorkflowSlots int      `json:"workflow_slots"`
	ActivitySlots int      `json:"activity_slots"`
	MaxSessions   int      `json:"max_sessions"` // 0: the worker never holds sessions
	// Resources are the resources that its sessions may use together.
	Resources protocol.Resources `json:"resources,omitempty"`
	// SessionResources are the resources that a session uses unless it needs other amounts, by the name of the session's
	// definition; "*" applies to all sessions.
	SessionResources map[string]protocol.Resources `json:"session_resources,omitempty"`
	// MaxSetUps is the maximum number of set-ups of sessions that it runs at once; 0: not declared.
	MaxSetUps int `json:"max_set_ups,omitempty"`
	// SessionLease is the lease of its implicit and workflow-scoped sessions, in microseconds.
	SessionLease int64 `json:"session_lease"`
	// SessionBuffer is how long before the end of a lease the worker renews it, in microseconds.
	SessionBuffer int64 `json:"session_buffer,omitempty"`
	SessionIdle   int64 `json:"session_idle"` // in microseconds
	// DefaultMaxActivities is the maximum number of concurrent activities in a session without a limit; 0:
	// its slots.
	DefaultMaxActivities int   `json:"together,omitempty"`
	AttemptLease         int64 `json:"attempt_lease"` // in microseconds
	// ResumesSessions: the worker suspends the state of a session whose lease expired, and may continue under the same
	// epoch (session_resume.go).
	ResumesSessions bool `json:"resumes_sessions,omitempty"`
	// Explicit: the worker sent its incarnation, as Socket.IO workers and Go workers do; clients of the HTTP API do
	// not.
	Explicit   bool     `json:"explicit,omitempty"`
	Superseded []string `json:"superseded,omitempty"` // previous incarnations, the latest last, at most 16
	// DeregisteredAt is when the worker deregistered: it receives no further task and may finish its leased tasks.
	DeregisteredAt history.Time    `json:"left_at,omitzero"`
	Contracts      json.RawMessage `json:"contracts,omitempty"` // by workflow type: queries, signals and updates
	// Fingerprints are the fingerprints of its workflow code by workflow type, as the worker's SDK reports them.
	Fingerprints map[string]string `json:"fingerprints,omitempty"`
	Versions     map[string]string `json:"versions,omitempty"`     // versions of its activity code by activity type
	Manifest     json.RawMessage   `json:"manifest,omitempty"`     //
	Isolation    json.RawMessage   `json:"isolation,omitempty"`    //
	Machine      json.RawMessage   `json:"machine,omitempty"`      //
	Slots        json.RawMessage   `json:"slots,omitempty"`        //
	Process      json.RawMessage   `json:"process,omitempty"`      //
	HeartbeatAt  history.Time      `json:"heartbeat_at,omitzero"`  //
	RegisteredAt history.Time      `json:"registered_at,omitzero"` //
	HeartbeatApp string            `json:"heard_by,omitempty"`     // the app that received the heartbeat of HeartbeatAt
	// AliveByApp has, by app, the time until which the worker may be alive according to heartbeats that this app
	// received and has not stored. If an app has stored the last heartbeat of a worker that sends no more, it has no
	// entry.
	AliveByApp map[string]history.Time `json:"heard_until,omitempty"`
	// Beats: the worker sends heartbeats, so missing heartbeats mean that it is dead.
	Beats         bool  `json:"beats,omitempty"`
	HeartbeatSecs int64 `json:"heartbeat_secs,omitempty"`
	// BalancedAt is when the last session was chosen to move to the worker for balance.
	BalancedAt history.Time `json:"balanced_at,omitzero"`
	// Group is the group of the token with which the worker registered.
	Group string `json:"group,omitempty"`
	// Settings is the revision of the operators' settings that the worker applies; nil: it supports none.
	Settings *int64 `json:"settings,omitempty"`
	// Scoped: the registration stored Group; registrations of older releases did not.
	Scoped bool `json:"scoped,omitempty"`
}

// WorkerKey is the key of a worker.
type WorkerKey struct{ Namespace, ID string }

// Key returns the key of the worker's row.
func (w *Worker) Key() WorkerKey { return WorkerKey{w.Namespace, w.ID} }

// Workflow is the row of a workflow ID. It makes the ID unique and names the current run. It is a separate row because
// two concurrent starts of the same ID have no common run to lock.
type Workflow struct {
	Namespace string
	ID        string
	RunID     string // ID of the current run
	Runs      int64
}

// WorkflowKey is the key of a workflow.
type WorkflowKey struct{ Namespace, ID string }

// Key returns the key of the workflow's row.
func (w *Workflow) Key() WorkflowKey { return WorkflowKey{w.Namespace, w.ID} }
