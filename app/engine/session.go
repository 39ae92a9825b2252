package engine

import (
	"encoding/json"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Door is how a session came to be; it chooses the defaults.
type Door string

// The three doors: an id on an activity, worker verbs and options, StartSession and EndSession.
const (
	DoorImplicit Door = "implicit"
	DoorWorker   Door = "worker"
	DoorWorkflow Door = "workflow"
)

// Session is one row: a leased, fenced affinity of activities to a worker. A session nobody holds has no owner; one that was closed keeps its owner.
type Session struct {
	Namespace  string                 `json:"-"`
	ID         string                 `json:"-"`
	Door       Door                   `json:"-"`
	WorkflowID string                 `json:"-"` // of a workflow-scoped session: it belongs to the workflow id and survives continue-as-new
	Status     protocol.SessionStatus `json:"-"`
	Owner      string                 `json:"-"`
	Epoch      int64                  `json:"-"` // the fence: rises at every claim over the life of the id, clean-up included
	LeaseUntil history.Time           `json:"-"`
	UpdatedAt  history.Time           `json:"-"`

	Incarnation   string        `json:"incarnation,omitempty"`
	Terminal      bool          `json:"terminal,omitempty"` // closed, or its TTL passed
	Claimed       bool          `json:"claimed,omitempty"`  // ever; a row without a claim is left out of listings but for the workflow door
	TTLUntil      history.Time  `json:"ttl_until,omitzero"`
	LastActivity  history.Time  `json:"last_activity,omitzero"`
	Lease         int64         `json:"lease,omitempty"` // microseconds one renewal gives
	Idle          int64         `json:"idle,omitempty"`  // microseconds, 0: never idle
	TTL           int64         `json:"ttl,omitempty"`   // seconds, 0: none
	Requirements  []string      `json:"requirements,omitempty"`
	Queue         string        `json:"queue,omitempty"`
	Connection    string        `json:"connection,omitempty"`
	MaxActivities int           `json:"max_activities,omitempty"` // 0: the worker's slots
	NoCreate      bool          `json:"no_create,omitempty"`
	NoReacquire   bool          `json:"no_reacquire,omitempty"`
	ReleasePolicy string        `json:"release_policy,omitempty"`
	Fallback      int64         `json:"fallback,omitempty"`     // microseconds a task waits for the holder until anybody may claim; 0: for as long as that holds
	WaitingSince  history.Time  `json:"waiting_since,omitzero"` // soft: since when the holder has taken none of the tasks that wait for it
	Open          bool          `json:"open,omitempty"`         // soft: they have waited for so long, and anybody may claim
	Strays        map[int64]int `json:"strays,omitempty"`       // attempts that run at holders it fell back from, by epoch: they count for its cap
	Release       string        `json:"release,omitempty"`      // of the holder, pinned from claim to release; with PolicyFinish beyond it
	Moving        string        `json:"moving,omitempty"`       // who asked the holder to give it up: no new task is routed, the last one's end releases it
	PinnedUntil   history.Time  `json:"pinned_until,omitzero"`  // PolicyFinish, held by nobody: when to look whether an app serves Release
	For           string        `json:"for,omitempty"`          // held by nobody, it is kept for this worker …
	ForUntil      history.Time  `json:"for_until,omitzero"`     // … until then
	Drained       bool          `json:"drained,omitempty"`      // PolicyFail: its holder drained, and no task has been told of it yet
	Claims        int           `json:"claims,omitempty"`       // of this row
	Fresh         bool          `json:"fresh,omitempty"`        // no delivery of this holding has been made, but for those that were undone
	Ran           int           `json:"ran,omitempty"`          // attempts begun in this holding
	Renewals      int           `json:"renewals,omitempty"`     // of this holding's lease by themselves
	FirstRenewal  history.Time  `json:"first_renewal,omitzero"`
	LastRenewal   history.Time  `json:"last_renewal,omitzero"`
	Active        int           `json:"active,omitempty"` // leased attempts
	Ready         int           `json:"ready,omitempty"`  // ready tasks
	Reason        string        `json:"reason,omitempty"` // why the last holding ended
	ClosedAt      history.Time  `json:"closed_at,omitzero"`
	RenewedAt     history.Time  `json:"renewed_at,omitzero"`
	CreatedAt     history.Time  `json:"created_at,omitzero"`
}

// SessionKey names a session.
type SessionKey struct{ Namespace, ID string }

// Key is the session's own.
func (s *Session) Key() SessionKey { return SessionKey{s.Namespace, s.ID} }

// Held says whether somebody owns the session at now: owned means the lease has not ended, by the store's clock.
func (s *Session) Held(now time.Time) bool {
	return s.Status == protocol.SessionActive && s.Owner != "" && s.LeaseUntil.After(now)
}

// HeldBy says whether this worker owns it.
func (s *Session) HeldBy(worker string, now time.Time) bool { return s.Held(now) && s.Owner == worker }

// Full says whether its activity cap leaves no room. A cap of 0 leaves it to the worker's slots.
func (s *Session) Full() bool { return s.MaxActivities > 0 && s.running() >= s.MaxActivities }

// Unsettled says whether tasks are queued that may not run: the session has ended, or its policy wants them to be told of a drain.
func (s *Session) Unsettled() bool { return (s.Terminal || s.Drained) && s.Ready > 0 }

// DueAt is when the session needs the sweeper: its lease or its TTL, the end of being kept for somebody, or tasks that wait in vain.
func (s *Session) DueAt() history.Time {
	if s.Unsettled() {
		return s.UpdatedAt
	}
	if s.Terminal {
		return history.Time{}
	}
	due := earliest(earliest(s.TTLUntil, s.ForUntil), s.PinnedUntil)
	if s.Status == protocol.SessionActive && s.Owner != "" {
		due = earliest(due, s.LeaseUntil)
	}
	if !s.Open {
		due = earliest(due, s.OpensAt())
	}
	return due
}

// Worker is a registration: what a process offers, and until when it is believed alive.
type Worker struct {
	Namespace   string                `json:"-"`
	ID          string                `json:"-"`
	Incarnation string                `json:"-"`
	Status      protocol.WorkerStatus `json:"-"` // active or draining; stale and mismatched are derived
	AliveUntil  history.Time          `json:"-"`
	UpdatedAt   history.Time          `json:"-"`

	Queues        []string          `json:"queues"`
	Runtime       string            `json:"runtime,omitempty"`
	SDKVersion    string            `json:"sdk_version,omitempty"`
	BuildID       string            `json:"build_id,omitempty"`
	Release       string            `json:"release,omitempty"`
	WorkflowTypes []string          `json:"workflow_types,omitempty"`
	ActivityTypes []string          `json:"activity_types,omitempty"`
	AnyActivity   bool              `json:"any_activity,omitempty"`
	Capabilities  []string          `json:"capabilities,omitempty"`
	WorkflowSlots int               `json:"workflow_slots"`
	ActivitySlots int               `json:"activity_slots"`
	MaxSessions   int               `json:"max_sessions"`             // 0: never holds sessions
	SessionLease  int64             `json:"session_lease"`            // microseconds: what its sessions of the implicit and workflow doors get
	SessionBuffer int64             `json:"session_buffer,omitempty"` // microseconds before the lease's end at which it renews
	SessionIdle   int64             `json:"session_idle"`             // microseconds
	AttemptLease  int64             `json:"attempt_lease"`            // microseconds
	Explicit      bool              `json:"explicit,omitempty"`       // it named its incarnation itself: the channel or our link, not a client of the HTTP contract
	Superseded    []string          `json:"superseded,omitempty"`     // older incarnations, newest last, at most 16
	Contracts     json.RawMessage   `json:"contracts,omitempty"`      // workflow type → {queries, signals, updates}
	Fingerprints  map[string]string `json:"fingerprints,omitempty"`   // workflow type → what its code was, as the worker's SDK says it
	Manifest      json.RawMessage   `json:"manifest,omitempty"`       //
	Isolation     json.RawMessage   `json:"isolation,omitempty"`      //
	Machine       json.RawMessage   `json:"machine,omitempty"`        //
	Slots         json.RawMessage   `json:"slots,omitempty"`          //
	Process       json.RawMessage   `json:"process,omitempty"`        //
	HeartbeatAt   history.Time      `json:"heartbeat_at,omitzero"`    //
	RegisteredAt  history.Time      `json:"registered_at,omitzero"`   //
	HeartbeatSecs int64             `json:"heartbeat_secs,omitempty"`
}

// WorkerKey names a worker.
type WorkerKey struct{ Namespace, ID string }

// Key is the worker's own.
func (w *Worker) Key() WorkerKey { return WorkerKey{w.Namespace, w.ID} }

// Workflow is the key row of a workflow id: it decides uniqueness and names the current run.
type Workflow struct {
	Namespace string
	ID        string
	RunID     string // current
	Runs      int64
}

// WorkflowKey names a workflow.
type WorkflowKey struct{ Namespace, ID string }

// Key is the workflow's own.
func (w *Workflow) Key() WorkflowKey { return WorkflowKey{w.Namespace, w.ID} }
