package engine

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A session binds activities to one worker, which may hold a browser, a file or a model for them. Two invariants hold.
// At most one worker owns the session at a time: the lease decides this by the store's clock. Writes of a former owner
// are refused: the epoch is the fencing token. The rules are in the files session*.go, in admit.go (which worker may
// acquire a session) and in lease.go (acquisition).

// Origin is the origin of a session: how it was created. The origin determines the defaults.
type Origin string

// The three origins: an ID on an activity; worker verbs and options; StartSession and EndSession.
const (
	OriginImplicit Origin = "implicit"
	OriginWorker   Origin = "worker"
	OriginWorkflow Origin = "workflow"
)

// Session is the row of a session: affinity of activities to a worker, with a lease and an epoch. A session without a
// holder has no owner. A closed session keeps its last owner for display.
type Session struct {
	Namespace string `json:"-"`
	ID        string `json:"-"`
	Origin    Origin `json:"-"`
	// of a workflow-scoped session: it belongs to the workflow id and survives continue-as-new
	WorkflowID string                 `json:"-"`
	Status     protocol.SessionStatus `json:"-"`
	Owner      string                 `json:"-"`
	// Epoch is the fence. It rises at every claim over the life of the id, also when clean-up removed the row
	// in between: a worker that slept through all of that must not hold a number that is in use again.
	Epoch      int64        `json:"-"`
	LeaseUntil history.Time `json:"-"`
	UpdatedAt  history.Time `json:"-"`

	Incarnation string `json:"incarnation,omitempty"`
	Terminal    bool   `json:"terminal,omitempty"` // closed, or its TTL passed
	// Claimed: it was claimed at least once. A row without a claim is left out of listings, except for the
	// workflow door.
	EverAcquired         bool         `json:"claimed,omitempty"`
	TTLUntil             history.Time `json:"ttl_until,omitzero"`
	LastActivity         history.Time `json:"last_activity,omitzero"`
	Lease                int64        `json:"lease,omitempty"` // microseconds, length of one renewal
	Idle                 int64        `json:"idle,omitempty"`  // microseconds, 0: never idle
	TTL                  int64        `json:"ttl,omitempty"`   // seconds, 0: none
	Requirements         []string     `json:"requirements,omitempty"`
	Queue                string       `json:"queue,omitempty"`
	Connection           string       `json:"connection,omitempty"`
	MaxActivities        int          `json:"max_activities,omitempty"` // 0: the holder's number
	DefaultMaxActivities int          `json:"together,omitempty"`       // as the holder registered it; 0: its slots
	NoCreate             bool         `json:"no_create,omitempty"`
	NoReacquire          bool         `json:"no_reacquire,omitempty"`
	Pinned               bool         `json:"pinned,omitempty"` // never released to make room at the holder's cap
	// Yielding marks a session that makes room for another one when its lease ends. The lease is not renewed. A task, or a
	// heartbeat by verb, clears the mark.
	Yielding      bool     `json:"yielding,omitempty"`
	ReleasePolicy string   `json:"release_policy,omitempty"`
	Next          *Numbers `json:"next,omitempty"` // numbers requested since the claim; they apply from the next claim on
	// Fallback is for how many microseconds a task waits for the holder until any worker may claim the session; 0: as long
	// as the holder has it.
	Fallback int64 `json:"fallback,omitempty"`
	// WaitingSince, of soft affinity: since when the holder has taken none of the tasks that wait for it.
	WaitingSince history.Time `json:"waiting_since,omitzero"`
	// HolderSilent, of soft affinity: the holder has missed two heartbeats at every app, so tasks do not wait for it.
	HolderSilent bool `json:"holder_silent,omitempty"`
	Open         bool `json:"open,omitempty"` // soft: the tasks have waited long enough for the holder
	// of the holder, pinned from claim to release; with PolicyFinish beyond it
	Release string `json:"release,omitempty"`
	// Moving is the operator who asked the holder to release the session. No new task is dispatched in it, and the end
	// of its last task releases it, so no running task is interrupted.
	Moving string `json:"moving,omitempty"`
	// Leaving, together with Moving: the session moves because its holder drains, so the release policy applies.
	Leaving bool `json:"leaving,omitempty"`
	// PinnedUntil applies to a session with PolicyFinish and no holder. It is the time of the next check whether an app
	// of Release is still alive. Without these checks, the session would wait forever for a release that no app runs
	// any more.
	PinnedUntil history.Time `json:"pinned_until,omitzero"`
	// HolderQueues are the queues that the holder serves; only of implicit sessions.
	HolderQueues []string `json:"holder_queues,omitempty"`
	// OtherAt is the time of the next check for tasks in queues that the holder does not serve; zero: none is due.
	OtherAt  history.Time `json:"other_at,omitzero"`
	For      string       `json:"for,omitempty"`      // without a holder it is reserved for this worker …
	ForUntil history.Time `json:"for_until,omitzero"` // … until this time
	// Drained, with PolicyFail: its holder was drained, and no task has failed with this loss yet.
	Drained      bool `json:"drained,omitempty"`
	Acquisitions int  `json:"claims,omitempty"` // of this row
	// Fresh: no delivery was made under this epoch, except deliveries that were undone. The first delivery carries
	// the flag that the holder must build the session's state.
	Fresh        bool         `json:"fresh,omitempty"`
	Renewals     int          `json:"renewals,omitempty"` // of this holding's lease by themselves
	FirstRenewal history.Time `json:"first_renewal,omitzero"`
	LastRenewal  history.Time `json:"last_renewal,omitzero"`
	Reason       string       `json:"reason,omitempty"`    // why the last holding ended
	GivenUp      string       `json:"given_up,omitempty"`  // reason reported by its holder
	Before       string       `json:"before,omitempty"`    // both, of the holding before this one
	EvictedAt    history.Time `json:"evicted_at,omitzero"` // when it gave way to another, if that was how
	// Definition is the name of the definition by which workers set up the session; empty: none. Once set, it does
	// not change.
	Definition string `json:"definition,omitempty"`
	OnLost     string `json:"on_lost,omitempty"` // that of the definition's first use
	// ArgumentsHash is the hash of the definition's stored arguments; empty: no arguments.
	ArgumentsHash string `json:"arguments_hash,omitempty"`
	// SetUpEpoch is the epoch in which a worker last reported a set-up that completed.
	SetUpEpoch int64        `json:"set_up_epoch,omitempty"`
	ClosedAt   history.Time `json:"closed_at,omitzero"`
	RenewedAt  history.Time `json:"renewed_at,omitzero"`
	CreatedAt  history.Time `json:"created_at,omitzero"`

	SessionCounts `json:"-"`
}

// Numbers are the limits that options of the worker origin may change in an existing session. They take effect at the
// next acquisition, since the current holder was promised the old ones.
type Numbers struct {
	Lease         int64 `json:"lease"` // microseconds, as those of the session
	Idle          int64 `json:"idle,omitempty"`
	TTL           int64 `json:"ttl,omitempty"` // seconds, 0: none
	MaxActivities int   `json:"max_activities"`
	Fallback      int64 `json:"fallback,omitempty"`
	Pinned        bool  `json:"pinned,omitempty"`
}

func (s *Session) numbers() Numbers {
	return Numbers{s.Lease, s.Idle, s.TTL, s.MaxActivities, s.Fallback, s.Pinned}
}

// wants records limits that apply from the next acquisition.
func (s *Session) wants(n Numbers) {
	s.Next = nil
	if n != s.numbers() {
		s.Next = &n
	}
}

// adopt applies the requested numbers. A different TTL counts from this acquisition. An unchanged TTL continues to run;
// otherwise a client could extend the session forever by repeating its request.
func (s *Session) adopt() {
	n := s.Next
	if n == nil {
		return
	}
	s.Next = nil
	s.apply(*n)
	if n.TTL != s.TTL {
		s.TTL, s.TTLUntil = n.TTL, history.Time{}
	}
}

// apply sets all numbers except the TTL.
func (s *Session) apply(n Numbers) {
	s.Lease, s.Idle, s.MaxActivities, s.Fallback, s.Pinned = n.Lease, n.Idle, n.MaxActivities, n.Fallback, n.Pinned
}

// SessionCounts holds the counts of a session that are derived from the rows of its tasks. They are not stored in the
// session's row, so a step in a held session usually does not write that row. The transaction that locks the row counts
// the tasks and updates the SessionCounts during its decisions.
type SessionCounts struct {
	Active        int           // attempts leased under the session's epoch
	StaleAttempts map[int64]int // attempts leased under other epochs, by epoch: they count towards its limit
	Ready         int           // ready tasks
	MoreReady     bool          // more tasks are ready than were counted: Ready is a lower bound
	// time of the holder's last activity according to its tasks and their events; zero: not read
	RecentActivity history.Time
}

// unready subtracts a task from the ready ones. If more tasks are ready than were counted, the number is a lower bound
// and stays.
func (t *SessionCounts) unready() {
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
		s.SetUpEpoch == o.SetUpEpoch &&
		slices.Equal(s.Requirements, o.Requirements) && slices.Equal(s.HolderQueues, o.HolderQueues) &&
		(s.Next == nil) == (o.Next == nil) && (s.Next == nil || *s.Next == *o.Next)
}

// SessionKey names a session.
type SessionKey struct{ Namespace, ID string }

// Compare orders keys by namespace and ID.
func (k SessionKey) Compare(o SessionKey) int {
	return cmp.Or(cmp.Compare(k.Namespace, o.Namespace), cmp.Compare(k.ID, o.ID))
}

// Key returns the key of the session's row.
func (s *Session) Key() SessionKey { return SessionKey{s.Namespace, s.ID} }

// Held reports whether a worker owns the session at now. Only the lease decides this, by the store's clock; whether an
// app can reach the worker does not matter, since a holder that lost its connection still works in the session.
func (s *Session) Held(now time.Time) bool {
	return s.Status == protocol.SessionActive && s.Owner != "" && s.LeaseUntil.After(now)
}

// Shown returns the status that readers see. A session that was held and then released is shown as expired, since any
// worker may acquire it. A session that waits for its first acquisition is active.
func (s *Session) Shown() protocol.SessionStatus {
	if s.Status == protocol.SessionActive && s.Owner == "" && s.EverAcquired {
		return protocol.SessionExpired
	}
	return s.Status
}

// HeldBy reports whether this worker owns it.
func (s *Session) HeldBy(worker string, now time.Time) bool { return s.Held(now) && s.Owner == worker }

// maxActivities returns the maximum number of activities that may run in the session at once: its own limit, else its
// holder's; 0 means that only the worker's slots limit it.
func (s *Session) maxActivities() int {
	if s.MaxActivities > 0 {
		return s.MaxActivities
	}
	return s.DefaultMaxActivities
}

// Full reports whether the session's activity limit is reached. Attempts of former holders count too (see running).
func (s *Session) Full() bool { return s.maxActivities() > 0 && s.running() >= s.maxActivities() }

// Unsettled reports whether tasks are queued that must fail: the session has ended, or its release policy requires a
// drain to fail a task.
func (s *Session) Unsettled() bool { return (s.Terminal || s.Drained) && s.Ready > 0 }

// lastActivity returns the time at which the holder last worked in the session. The row may lag behind by a
// tenth of the idle timeout, which saves a write at most steps; the tasks and their events are exact.
func (s *Session) lastActivity() history.Time { return latest(s.LastActivity, s.RecentActivity) }

// idle reports whether the session has reached its idle timeout.
func (s *Session) idle(now time.Time) bool {
	return s.Idle > 0 && now.Sub(s.lastActivity().Time) >= time.Duration(s.Idle)*time.Microsecond
}

// Unsure reports whether only the tasks and their events show whether the session is idle: its row shows it as idle,
// but the row may lag behind. Only then does the store read the tasks.
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
	if s.Status == protocol.SessionActive && s.Owner != "" {
		due = earliest(earliest(due, s.LeaseUntil), s.OtherAt)
	}
	if !s.Open {
		due = earliest(due, s.OpensAt())
	}
	return due
}

// Worker is a registration: what a process offers, and until when it is believed alive. Incarnation distinguishes
// processes of the same worker ID, so that a restarted worker is not mistaken for the process that held its leases.
type Worker struct {
	Namespace   string                `json:"-"`
	ID          string                `json:"-"`
	Incarnation string                `json:"-"`
	Status      protocol.WorkerStatus `json:"-"` // active or draining; stale and mismatched are derived
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
	MaxSessions   int      `json:"max_sessions"` // 0: never holds sessions
	// microseconds: what its sessions of the implicit and workflow doors get
	SessionLease int64 `json:"session_lease"`
	// microseconds before the lease's end at which it renews
	SessionBuffer int64 `json:"session_buffer,omitempty"`
	SessionIdle   int64 `json:"session_idle"` // microseconds
	// activities at once in its sessions that name no number; 0: its slots
	DefaultMaxActivities int   `json:"together,omitempty"`
	AttemptLease         int64 `json:"attempt_lease"` // microseconds
	// it suspends the state of a session whose lease ran out, and may continue under the same epoch (session_resume.go)
	ResumesSessions bool `json:"resumes_sessions,omitempty"`
	// it named its incarnation itself: the channel or our link, not a client of the HTTP contract
	Explicit   bool     `json:"explicit,omitempty"`
	Superseded []string `json:"superseded,omitempty"` // older incarnations, newest last, at most 16
	// time at which the worker was deregistered: it receives no further task and may finish its leased tasks
	DeregisteredAt history.Time    `json:"left_at,omitzero"`
	Contracts      json.RawMessage `json:"contracts,omitempty"` // workflow type → {queries, signals, updates}
	// workflow type → fingerprint of its code, as reported by the worker's SDK
	Fingerprints map[string]string `json:"fingerprints,omitempty"`
	Versions     map[string]string `json:"versions,omitempty"`     // activity type → version of its code
	Manifest     json.RawMessage   `json:"manifest,omitempty"`     //
	Isolation    json.RawMessage   `json:"isolation,omitempty"`    //
	Machine      json.RawMessage   `json:"machine,omitempty"`      //
	Slots        json.RawMessage   `json:"slots,omitempty"`        //
	Process      json.RawMessage   `json:"process,omitempty"`      //
	HeartbeatAt  history.Time      `json:"heartbeat_at,omitzero"`  //
	RegisteredAt history.Time      `json:"registered_at,omitzero"` //
	HeartbeatApp string            `json:"heard_by,omitempty"`     // the app that received the heartbeat of HeartbeatAt
	// AliveByApp maps an app to the time until which the worker may be alive by heartbeats that this app received and has
	// not stored. An app that stored the last heartbeat of a silent worker has no entry.
	AliveByApp map[string]history.Time `json:"heard_until,omitempty"`
	// the worker sends heartbeats, so a missing heartbeat means that it is dead
	Beats         bool  `json:"beats,omitempty"`
	HeartbeatSecs int64 `json:"heartbeat_secs,omitempty"`
	// of the token it was registered with: with its queues the scope it belongs to
	Group string `json:"group,omitempty"`
	// the revision of the operators' settings that it runs with; nil: it takes none
	Settings *int64 `json:"settings,omitempty"`
	// Group was noted; registrations of older releases did not note it
	Scoped bool `json:"scoped,omitempty"`
}

// WorkerKey names a worker.
type WorkerKey struct{ Namespace, ID string }

// Key returns the key of the worker's row.
func (w *Worker) Key() WorkerKey { return WorkerKey{w.Namespace, w.ID} }

// Workflow is the row of a workflow ID. It enforces uniqueness and names the current run. It is a separate row, because
// two concurrent starts of the same ID have no common run to lock.
type Workflow struct {
	Namespace string
	ID        string
	RunID     string // current
	Runs      int64
}

// WorkflowKey names a workflow.
type WorkflowKey struct{ Namespace, ID string }

// Key returns the key of the workflow's row.
func (w *Workflow) Key() WorkflowKey { return WorkflowKey{w.Namespace, w.ID} }
