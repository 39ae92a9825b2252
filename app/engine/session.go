package engine

import (
	"encoding/json"
	"reflect"
	"slices"
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

// Session is one row: a leased, fenced affinity of activities to a worker. A session nobody holds has no owner; one
// that was closed keeps its owner.
type Session struct {
	Namespace string `json:"-"`
	ID        string `json:"-"`
	Door      Door   `json:"-"`
	// of a workflow-scoped session: it belongs to the workflow id and survives continue-as-new
	WorkflowID string                 `json:"-"`
	Status     protocol.SessionStatus `json:"-"`
	Owner      string                 `json:"-"`
	// the fence: rises at every claim over the life of the id, clean-up included
	Epoch      int64        `json:"-"`
	LeaseUntil history.Time `json:"-"`
	UpdatedAt  history.Time `json:"-"`

	Incarnation string `json:"incarnation,omitempty"`
	Terminal    bool   `json:"terminal,omitempty"` // closed, or its TTL passed
	// ever; a row without a claim is left out of listings but for the workflow door
	Claimed       bool         `json:"claimed,omitempty"`
	TTLUntil      history.Time `json:"ttl_until,omitzero"`
	LastActivity  history.Time `json:"last_activity,omitzero"`
	Lease         int64        `json:"lease,omitempty"` // microseconds one renewal gives
	Idle          int64        `json:"idle,omitempty"`  // microseconds, 0: never idle
	TTL           int64        `json:"ttl,omitempty"`   // seconds, 0: none
	Requirements  []string     `json:"requirements,omitempty"`
	Queue         string       `json:"queue,omitempty"`
	Connection    string       `json:"connection,omitempty"`
	MaxActivities int          `json:"max_activities,omitempty"` // 0: the holder's number
	Together      int          `json:"together,omitempty"`       // the holder's number, as it registered it; 0: its slots
	NoCreate      bool         `json:"no_create,omitempty"`
	NoReacquire   bool         `json:"no_reacquire,omitempty"`
	ReleasePolicy string       `json:"release_policy,omitempty"`
	Next          *Numbers     `json:"next,omitempty"` // what options asked for since, from the next claim on
	// microseconds a task waits for the holder until anybody may claim; 0: for as long as that holds
	Fallback int64 `json:"fallback,omitempty"`
	// soft: since when the holder has taken none of the tasks that wait for it
	WaitingSince history.Time `json:"waiting_since,omitzero"`
	Open         bool         `json:"open,omitempty"` // soft: they have waited for so long, and anybody may claim
	// of the holder, pinned from claim to release; with PolicyFinish beyond it
	Release string `json:"release,omitempty"`
	// who asked the holder to give it up: no new task is routed, the last one's end releases it
	Moving string `json:"moving,omitempty"`
	// with Moving: because the holder is drained, so that the release policy says what becomes of it
	Leaving bool `json:"leaving,omitempty"`
	// PolicyFinish, held by nobody: when to look whether an app serves Release
	PinnedUntil history.Time `json:"pinned_until,omitzero"`
	For         string       `json:"for,omitempty"`      // held by nobody, it is kept for this worker …
	ForUntil    history.Time `json:"for_until,omitzero"` // … until then
	// PolicyFail: its holder drained, and no task has been told of it yet
	Drained bool `json:"drained,omitempty"`
	Claims  int  `json:"claims,omitempty"` // of this row
	// no delivery of this holding has been made, but for those that were undone
	Fresh        bool         `json:"fresh,omitempty"`
	Renewals     int          `json:"renewals,omitempty"` // of this holding's lease by themselves
	FirstRenewal history.Time `json:"first_renewal,omitzero"`
	LastRenewal  history.Time `json:"last_renewal,omitzero"`
	Reason       string       `json:"reason,omitempty"`    // why the last holding ended
	GivenUp      string       `json:"given_up,omitempty"`  // what its holder said about that
	Before       string       `json:"before,omitempty"`    // both, of the holding before this one
	EvictedAt    history.Time `json:"evicted_at,omitzero"` // when it gave way to another, if that was how
	ClosedAt     history.Time `json:"closed_at,omitzero"`
	RenewedAt    history.Time `json:"renewed_at,omitzero"`
	CreatedAt    history.Time `json:"created_at,omitzero"`

	Tally `json:"-"`
}

// Numbers are what options of the worker door may ask for anew of a session that is there.
type Numbers struct {
	Lease         int64 `json:"lease"` // microseconds, as those of the session
	Idle          int64 `json:"idle,omitempty"`
	TTL           int64 `json:"ttl,omitempty"` // seconds, 0: none
	MaxActivities int   `json:"max_activities"`
	Fallback      int64 `json:"fallback,omitempty"`
}

func (s *Session) numbers() Numbers {
	return Numbers{s.Lease, s.Idle, s.TTL, s.MaxActivities, s.Fallback}
}

// wants notes numbers that hold from the next claim on.
func (s *Session) wants(n Numbers) {
	s.Next = nil
	if n != s.numbers() {
		s.Next = &n
	}
}

// adopt takes over what was asked for. Another TTL counts from the claim.
func (s *Session) adopt() {
	n := s.Next
	if n == nil {
		return
	}
	s.Next = nil
	s.Lease, s.Idle, s.MaxActivities, s.Fallback = n.Lease, n.Idle, n.MaxActivities, n.Fallback
	if n.TTL != s.TTL {
		s.TTL, s.TTLUntil = n.TTL, history.Time{}
	}
}

// Tally is what a session's row leaves to the rows of its tasks, so that a step in a session that is held already
// writes no more than any other. Whoever has the row counts them anew under its lock, and keeps count while decisions
// are made.
type Tally struct {
	Active int           // attempts leased under the session's epoch
	Strays map[int64]int // attempts leased under others, by epoch: they count for its cap
	Ready  int           // ready tasks
	Many   bool          // there are more ready ones than were counted: some stay, whatever a decision takes
	// when the holder was last heard of in a task, as its tasks and their events say; zero: nobody asked
	Lately history.Time
}

// unready takes a task out of the ready ones.
func (t *Tally) unready() {
	if !t.Many {
		t.Ready = max(0, t.Ready-1)
	}
}

// inRow are the fields of a session that its row holds as they are: all but the counts, which it leaves to the rows of
// its tasks, and but for two that Same looks into.
var inRow = func() (fields []int) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Session]()) {
		if len(f.Index) == 1 && f.Name != "Tally" && f.Name != "Requirements" && f.Name != "Next" {
			fields = append(fields, f.Index[0])
		}
	}
	return fields
}()

// Same says whether two states of a session are one to whoever reads its row. It is asked at every step in a session,
// and copies nothing: a session is a kilobyte.
func (s *Session) Same(o *Session) bool {
	if !slices.Equal(s.Requirements, o.Requirements) || (s.Next == nil) != (o.Next == nil) ||
		s.Next != nil && *s.Next != *o.Next {
		return false
	}
	a, b := reflect.ValueOf(s).Elem(), reflect.ValueOf(o).Elem()
	return !slices.ContainsFunc(inRow, func(i int) bool { return !a.Field(i).Equal(b.Field(i)) })
}

// SessionKey names a session.
type SessionKey struct{ Namespace, ID string }

// Key is the session's own.
func (s *Session) Key() SessionKey { return SessionKey{s.Namespace, s.ID} }

// Held says whether somebody owns the session at now: owned means the lease has not ended, by the store's clock.
func (s *Session) Held(now time.Time) bool {
	return s.Status == protocol.SessionActive && s.Owner != "" && s.LeaseUntil.After(now)
}

// Shown is the session's status as readers see it: what was held once and is given up now is as free as what expired.
// One that waits for its first claim is active.
func (s *Session) Shown() protocol.SessionStatus {
	if s.Status == protocol.SessionActive && s.Owner == "" && s.Claimed {
		return protocol.SessionExpired
	}
	return s.Status
}

// HeldBy says whether this worker owns it.
func (s *Session) HeldBy(worker string, now time.Time) bool { return s.Held(now) && s.Owner == worker }

// most is how many activities may run in the session at once: its own number, else its holder's; 0 leaves it to the
// worker's slots.
func (s *Session) most() int {
	if s.MaxActivities > 0 {
		return s.MaxActivities
	}
	return s.Together
}

// Full says whether its activity cap leaves no room.
func (s *Session) Full() bool { return s.most() > 0 && s.running() >= s.most() }

// Unsettled says whether tasks are queued that may not run: the session has ended, or its policy wants them to be told
// of a drain.
func (s *Session) Unsettled() bool { return (s.Terminal || s.Drained) && s.Ready > 0 }

// lastActivity is when the holder last worked in the session, as far as is known. The row may lag behind by a tenth of
// the idle time.
func (s *Session) lastActivity() history.Time { return latest(s.LastActivity, s.Lately) }

// idle says whether the session has been idle for as long as it may be.
func (s *Session) idle(now time.Time) bool {
	return s.Idle > 0 && now.Sub(s.lastActivity().Time) >= time.Duration(s.Idle)*time.Microsecond
}

// Unsure says whether only tasks and their events tell if the session is idle by now: by its row it is, and the row may
// lag.
func (s *Session) Unsure(now time.Time) bool {
	lag, idle := now.Sub(s.LastActivity.Time), time.Duration(s.Idle)*time.Microsecond
	return idle > 0 && lag >= idle && lag < idle+idle/lagging
}

// DueAt is when the session needs the sweeper: its lease or its TTL, the end of being kept for somebody, or tasks that
// wait in vain.
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
	Together     int   `json:"together,omitempty"`
	AttemptLease int64 `json:"attempt_lease"` // microseconds
	// it named its incarnation itself: the channel or our link, not a client of the HTTP contract
	Explicit   bool     `json:"explicit,omitempty"`
	Superseded []string `json:"superseded,omitempty"` // older incarnations, newest last, at most 16
	// its registration was taken away then: it gets nothing more, and may end what it holds
	Left      history.Time    `json:"left_at,omitzero"`
	Contracts json.RawMessage `json:"contracts,omitempty"` // workflow type → {queries, signals, updates}
	// workflow type → what its code was, as the worker's SDK says it
	Fingerprints map[string]string `json:"fingerprints,omitempty"`
	Versions     map[string]string `json:"versions,omitempty"`     // activity type → what its code is
	Manifest     json.RawMessage   `json:"manifest,omitempty"`     //
	Isolation    json.RawMessage   `json:"isolation,omitempty"`    //
	Machine      json.RawMessage   `json:"machine,omitempty"`      //
	Slots        json.RawMessage   `json:"slots,omitempty"`        //
	Process      json.RawMessage   `json:"process,omitempty"`      //
	HeartbeatAt  history.Time      `json:"heartbeat_at,omitzero"`  //
	RegisteredAt history.Time      `json:"registered_at,omitzero"` //
	HeardBy      string            `json:"heard_by,omitempty"`     // the app that heard what HeartbeatAt says
	// it says by itself that it lives, so its silence means that it does not
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
