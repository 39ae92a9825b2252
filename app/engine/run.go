// Package engine contains the rules of runs, sessions, schedules and workers as pure functions: aggregate, input and
// time in, decision out. It reads no clock, draws no random numbers and does no I/O.
//
// The same input on the same state always yields the same decision. A store may therefore repeat a decision when it
// retries a transaction, and scripted tests cover every rule without a database. Start reading here, with the state of
// a run. Then read evolve.go (how an event changes that state), step.go (how an input becomes events), and the file of
// each kind of input.
package engine

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Run is the open part of a run: tasks, activities, timers, waits and children that have not ended. Only the history
// contains payloads and past events, so loading a run reads a handful of rows, however long its history is. The
// embedded Head is one row; every table entry has its own row, which is written only when the entry changes.
type Run struct {
	Head
	Activities Table[int64, Activity] // by command number
	Timers     Table[int64, Timer]    // by command number; the timer of a wait has the number of the wait
	Waits      Table[int64, Wait]     // by command number
	Signals    Table[int64, Signal]   // by event number; received, but not yet seen by a completed workflow task
	Unread     Table[int64, Signal]   // by event number; seen, but not yet used to resolve a wait; at most maxUnread
	Updates    Table[int64, Update]   // by event number; accepted, but not yet completed
	Children   Table[int64, Child]    // by command number
	Attached   Table[int64, Attached] // by command number; children to which the run attached
	// by event number; messages to other runs that are not delivered yet, also of a closed run
	Undelivered Table[int64, Message]

	inbox InboxSignals // in a fork: what the caller loaded about the signals in Inbox
}

// Head is a run's row. Every step reads and writes it, so its size must not depend on the length of the history.
type Head struct {
	ID         string             `json:"-"`
	Namespace  string             `json:"-"`
	WorkflowID string             `json:"-"`
	Type       string             `json:"-"`
	Number     int64              `json:"-"`
	Status     protocol.RunStatus `json:"-"`
	Queue      string             `json:"-"`
	StartedAt  history.Time       `json:"-"`
	ClosedAt   history.Time       `json:"-"`
	// LastSeq is the number of the last event, and the fence of every decision: the store rejects a decision that is
	// based on an older number, so two apps never append to the same history concurrently.
	LastSeq int64 `json:"-"`
	// Unserved is the stuck state that the store last recorded for a run with a ready task that no live worker may
	// lease. Only readers of the store set it; decisions do not use it.
	Unserved *Stuck `json:"-"`

	Kind           string         `json:"kind,omitempty"` // history.KindActivity, or empty for a workflow
	Parent         *Parent        `json:"parent,omitempty"`
	Inherited      InheritedCount `json:"former,omitzero"` // open children that earlier runs of the workflow ID started
	FairnessKey    string         `json:"fairness_key,omitempty"`
	FairnessWeight int            `json:"fairness_weight,omitempty"`
	// Inbox describes the signals that the run inherits without copies; nil: none. They are not in Signals and Unread.
	Inbox *Inbox `json:"inbox,omitempty"`

	BusinessKey string `json:"business_key,omitempty"`
	Priority    int    `json:"priority"`
	BuildID     string `json:"build_id,omitempty"`
	CommandSeq  int64  `json:"command_seq,omitempty"` // number of its last command
	Tasks       int64  `json:"tasks,omitempty"`       // number of workflow tasks created so far
	Task        *Task  `json:"task,omitempty"`        // the open workflow task; nil: none
	// Seen and Wake ensure that an event which arrives while a task is leased gets its own task. Seen is the last event
	// that a completed workflow task contained, Wake the last event to which the code must react. If Wake is larger
	// after a completion, a new task is created.
	Seen      int64 `json:"seen,omitempty"`       // last event that a completed workflow task contained
	FirstSeen int64 `json:"first_seen,omitempty"` // last event that the first workflow task contained
	Settled   int64 `json:"settled,omitempty"`    // last event that ended a step
	// last event that requires a workflow task; after a task without it, another task is created
	Wake       int64      `json:"wake,omitempty"`
	WakeFor    *Cause     `json:"wake_for,omitempty"` // why that event requires a workflow task
	Last       *Completed `json:"last,omitempty"`     // the last accepted completion of a workflow task; nil: none
	LeasedEver bool       `json:"leased_ever,omitempty"`
	// Bytes is the size of the run's history in responses. SeenBytes is the part that the worker has in memory after
	// the last completed workflow task. The store adds the size of appended events to Bytes. In a run that an earlier
	// build started, Bytes lacks the earlier events, so the run's deliveries count as smaller than they are.
	Bytes     int64 `json:"bytes,omitempty"`
	SeenBytes int64 `json:"seen_bytes,omitempty"`
	// ArgumentBytes is the size of the run's arguments, which a workflow task contains in addition to the history.
	ArgumentBytes int64 `json:"argument_bytes,omitempty"`
	// Held is the quota of the namespace that delays the first task of a child; empty: none.
	Held protocol.Quota `json:"held,omitempty"`

	// selections that have a winner while other members are still open
	Selected   []string     `json:"selected,omitempty"`
	ProgressAt history.Time `json:"progress_at,omitzero"`

	RunTimeout        int64        `json:"run_timeout,omitempty"` // in seconds
	ExecutionTimeout  int64        `json:"execution_timeout,omitempty"`
	RunDeadline       history.Time `json:"run_deadline,omitzero"`
	ExecutionDeadline history.Time `json:"execution_deadline,omitzero"`

	Memo             json.RawMessage `json:"memo,omitempty"`
	SearchAttributes json.RawMessage `json:"search_attributes,omitempty"`
	// Trace is the trace context of the run's start, which its tasks contain.
	Trace history.TraceContext `json:"trace,omitzero"`

	// Chain is the first run of the chain, if an earlier chain used the same workflow ID; empty for the first chain of
	// the ID.
	Chain string `json:"chain,omitempty"`
	// StartKey is the Idempotency-Key of the start of the chain; nil: the start had none.
	StartKey *StartKey `json:"start_key,omitempty"`

	ContinuedFrom string `json:"continued_from,omitempty"`
	ContinuedTo   string `json:"continued_to,omitempty"`
	// ResetTo is the run that began by a reset of this run; empty: none. It receives what is sent to steps of this run
	// that it has copied: ends of children and outcomes of awakeables. If the reset ended this run, ContinuedTo is equal;
	// if this run had closed before, ResetTo is not part of its history.
	ResetTo         string `json:"reset_to,omitempty"`
	Failure         string `json:"failure,omitempty"` // message of the failure with which the run closed
	FailureType     string `json:"failure_type,omitempty"`
	CancelRequested bool   `json:"asked,omitempty"` // cancellation was requested
	// CancelRequestedSeq is the event number of the first cancellation request, CancelRequestedAt its time. Both are
	// zero if an earlier build recorded the request.
	CancelRequestedSeq int64        `json:"asked_seq,omitempty"`
	CancelRequestedAt  history.Time `json:"asked_at,omitzero"`
	HasSessions        bool         `json:"has_sessions,omitempty"`
	// NeedsSessions means that only a worker that declares CapSessions receives the run's workflow tasks: history
	// contains session events from such a worker, which the replayers of other SDKs may not know. It stays false in a
	// fleet whose workers use sessions without the capability.
	NeedsSessions bool `json:"needs_sessions,omitempty"`
	// NeedsAwakeables means that only a worker that declares protocol.CapAwakeables receives the run's workflow tasks:
	// history contains events of awakeables, which other replayers do not know.
	NeedsAwakeables bool `json:"needs_awakeables,omitempty"`
	// Buffers means that the run's code buffers signals until it receives them (as our replayer does), so the engine
	// need not store them.
	Buffers bool `json:"buffers,omitempty"`
	// Waitless means that the run has opened no wait for a signal so far. It is set at the start; false in a run that
	// an earlier build started means "not known". See carry.go for its use.
	Waitless bool `json:"waitless,omitempty"`
	// Heeds means that a condition became true although the code opened no wait for a signal, in this run or in a run
	// that it continues. Then the conditions depend on signals.
	Heeds bool `json:"heeds,omitempty"`
	// Heeded is the last event that a task contained when such a condition last became true.
	Heeded int64 `json:"heeded,omitempty"`

	// NameRules is the version of the naming rules for the run's commands; see protocol.NameRules.
	NameRules int `json:"name_rules,omitempty"`

	// when the closed run was archived; not part of its history
	ArchivedAt    history.Time `json:"archived_at,omitzero"`
	ArchiveReason string       `json:"archive_reason,omitempty"`
}

// Superseded reports whether another run has taken over the steps of the run, so that reports of children go to that
// run: the run continued as new or was reset.
func (h *Head) Superseded() bool { return h.Status == protocol.RunContinued || h.ResetTo != "" }

// Cause is the reason for a workflow task. It is part of the wire protocol, because some replayers learn only from it
// which wait a signal resolved.
type Cause struct {
	Kind     string `json:"kind"` // start, activity, timer, workflow_signal, cancellation, …
	Sequence int64  `json:"sequence,omitempty"`
	Event    int64  `json:"event,omitempty"` // event number
	Type     string `json:"type,omitempty"`  // type of the event
	// Name is the name of the signal (also for the timeout of a signal wait) or the type of the activity.
	Name string `json:"name,omitempty"`
	ID   string `json:"id,omitempty"`   // signal ID or attempt ID
	Wait int64  `json:"wait,omitempty"` // command number of the condition wait that it concerns
}

// TaskState is the state of a task.
type TaskState string

// These are the states of a task. Quarantined is a workflow task that was lost or failed too often and waits for an
// operator to repair the run. Pending is an activity whose worker has returned and whose outcome a caller of the API
// reports; see pending.go.
const (
	Ready       TaskState = "ready"
	Delayed     TaskState = "delayed"
	LeasedState TaskState = "leased"
	Pending     TaskState = "pending"
	Quarantined TaskState = "quarantined"
)

// Lease is the lease of a task: its owner and its expiry. The delivery number, stored next to the lease, is the fence:
// each lease increments it, no number is reused, and every attempt ID contains it. A late report of a worker therefore
// names an ended delivery and cannot be mistaken for a report of the current owner.
type Lease struct {
	Owner       string       `json:"owner,omitempty"`
	Incarnation string       `json:"incarnation,omitempty"`
	Release     string       `json:"release,omitempty"`
	BuildID     string       `json:"build,omitempty"`
	PollID      string       `json:"poll,omitempty"`
	LeasedAt    history.Time `json:"leased_at,omitzero"`
	Until       history.Time `json:"until,omitzero"`
	Length      int64        `json:"length,omitempty"`         // length of one renewal, in microseconds
	Sessions    bool         `json:"knows_sessions,omitempty"` // for a workflow task: the worker declared CapSessions
	// number of redeliveries of this lease, by apps that do not know whether an earlier response arrived
	Redeliveries int64 `json:"again,omitempty"`
	// the app that granted the lease, if the worker does not report its leases in heartbeats
	App string `json:"app,omitempty"`
	// Loss is the verdict on the delivery if its process was lost before the lease expired; see Lose.
	Loss *Finding `json:"loss,omitempty"`
}

// Task is the open workflow task of a run. There is at most one, since its commands use the next command numbers: two
// concurrent tasks would use the same numbers for different steps.
type Task struct {
	Number  int64        `json:"n"` // number of the task in the run; retries keep it
	State   TaskState    `json:"state"`
	ReadyAt history.Time `json:"ready_at,omitzero"`
	// DelayedAt is the beginning of the backoff that ends at ReadyAt; zero: there is no backoff.
	DelayedAt history.Time `json:"delayed_at,omitzero"`
	Delivery  int64        `json:"delivery,omitempty"`
	Attempt   int          `json:"attempt,omitempty"`
	// number of worker processes that ended while they had the task
	Losses int `json:"losses,omitempty"`
	// suspicion because of worker losses; nil: none since it was cleared
	Suspect *Suspicion `json:"suspect,omitempty"`
	// number of losses for which the task was blamed since its last outcome
	Blamed  int   `json:"blamed,omitempty"`
	Rank    int64 `json:"rank,omitempty"`    // position in the fair order of its queue
	Shown   int64 `json:"shown,omitempty"`   // last event that the task contains for its owner
	Settled int64 `json:"settled,omitempty"` // the last of these events that ended a step
	Size    int64 `json:"size,omitempty"`    // size of the history that the owner has received
	// how many times in a row it was returned without having been started
	Returned int            `json:"returned,omitempty"`
	Recorded *Recorded      `json:"recorded,omitempty"` // what its current delivery recorded last; nil: nothing
	Cause    Cause          `json:"cause,omitzero"`
	Problem  string         `json:"problem,omitempty"` // last failure of the code, or the reason of the quarantine
	StuckAt  history.Time   `json:"stuck_at,omitzero"` // since when this task makes the run stuck; zero: it does not
	Stack    string         `json:"stack,omitempty"`   // stack of the last failure of the code
	Lost     []history.Lost `json:"lost,omitempty"`
	Lease
}

// Recorded contains the last commands that were recorded under a delivery of a workflow task that stays leased. If the
// worker did not receive the response, it sends them again.
type Recorded struct {
	Delivery int64  `json:"d"`
	From     int64  `json:"from"` // number of the first command
	Hash     string `json:"hash"`
}

// Completed contains the last accepted completion of a workflow task. If the worker did not receive the response, it
// sends the completion again and must get the same response, not a refusal.
type Completed struct {
	Number   int64    `json:"n"`
	Delivery int64    `json:"d"`
	Owner    string   `json:"owner"`
	Hash     string   `json:"hash"`
	Created  []string `json:"created,omitempty"`
	Steps    []Range  `json:"steps,omitempty"`   // command numbers of the activities that it scheduled
	Outcome  string   `json:"outcome,omitempty"` // failed, waiting_for_history; empty: completed
	Next     string   `json:"next,omitempty"`    // ID of the task that will be retried
}

// Range is a range of numbers, both ends included. A completion may schedule a thousand activities; two numbers
// identify all of them.
type Range [2]int64

// created returns the IDs of the tasks that a completion created: its activities, and the workflow task that followed
// immediately.
func (c *Completed) created(run string) (ids []string) {
	for _, r := range c.Steps {
		for seq := r[0]; seq <= r[1]; seq++ {
			ids = append(ids, StepID(run, seq))
		}
	}
	return append(ids, c.Created...)
}

// Activity is an open activity: its options, and its current attempt. It does not contain the arguments: they stay in
// the event that scheduled the activity, since only a delivery needs them.
type Activity struct {
	Seq       int64  `json:"-"` // its command number
	RunID     string `json:"-"`
	Namespace string `json:"-"`

	Type           string          `json:"type"`
	Queue          string          `json:"queue"`
	Event          int64           `json:"event"` // number of its ActivityScheduled event, which contains the arguments
	Priority       int             `json:"priority,omitempty"`
	FairnessKey    string          `json:"fairness_key,omitempty"` // the activity's own key; empty: that of the run
	FairnessWeight int             `json:"fairness_weight,omitempty"`
	Rank           int64           `json:"rank,omitempty"` // position in the fair order of its queue
	Requirements   []string        `json:"requirements,omitempty"`
	SessionID      string          `json:"session,omitempty"`
	Borrow         *history.Borrow `json:"borrow,omitempty"`  // the app completes it with a member of a pool
	Options        json.RawMessage `json:"options,omitempty"` // worker_session object of the command
	Retry          *retry.Policy   `json:"retry,omitempty"`   // retry policy; nil: one attempt
	StartToClose   int64           `json:"stc,omitempty"`     // in seconds; 0: none
	SchedToStart   int64           `json:"sts,omitempty"`
	SchedToClose   int64           `json:"sc,omitempty"`
	HeartbeatTO    int64           `json:"hb,omitempty"`
	ScheduledAt    history.Time    `json:"scheduled_at"`
	history.Parallel

	State   TaskState    `json:"state"`
	ReadyAt history.Time `json:"ready_at,omitzero"` // ready: since when; delayed: until when; otherwise zero
	// DelayedAt is the beginning of the backoff that ends at ReadyAt; zero: there is no backoff.
	DelayedAt history.Time `json:"delayed_at,omitzero"`
	// FirstReady is when the current delivery first became ready. A return without a start keeps it.
	FirstReady history.Time `json:"first_ready,omitzero"`
	// how many times in a row it was returned without having been started
	Returned int   `json:"returned,omitempty"`
	Bytes    int64 `json:"bytes,omitempty"` // size of its arguments, headers and trace context
	Delivery int64 `json:"delivery,omitempty"`
	Attempt  int   `json:"attempt,omitempty"` // number of the attempt as users see it
	Failures int   `json:"failures,omitempty"`
	// number of worker processes that ended while they had the activity
	Losses int `json:"losses,omitempty"`
	// Suspect is the suspicion because of these losses; nil: there was no loss, or the suspicion was cleared.
	Suspect *Suspicion `json:"suspect,omitempty"`
	// number of losses for which the activity was blamed since its last outcome
	Blamed    int `json:"blamed,omitempty"`
	MaxBlamed int `json:"max_blamed,omitempty"` // max_blamed_losses of its options; 0: the setting of the app
	// Returns counts the deliveries that ended without an outcome while their worker was alive. After MaxDeliveries of
	// them, the activity fails as poison.
	Returns int `json:"returns,omitempty"`
	// UnstartedReturns counts consecutive returns of the activity without a start. It determines the backoff and the
	// text of the wait reason.
	UnstartedReturns int             `json:"handed_back,omitempty"`
	Epoch            int64           `json:"epoch,omitempty"` // epoch of the session under which it is leased
	HeartbeatAt      history.Time    `json:"heartbeat_at,omitzero"`
	Progress         json.RawMessage `json:"progress,omitempty"`
	// LastHeartbeat contains the heartbeat details of the latest ended attempt that reported any; nil: none did. It is
	// kept until the activity closes.
	LastHeartbeat *protocol.LastHeartbeat `json:"last_heartbeat,omitempty"`
	// Rebuild is the worker's last report about a rebuild in the running attempt; nil: none.
	Rebuild *protocol.Recovered `json:"rebuild,omitempty"`
	// SetUpAt is when the worker last reported a set-up of the session in the running attempt; zero: never.
	SetUpAt history.Time `json:"set_up_at,omitzero"`
	// New is true if the current delivery is the first one of the session's epoch.
	New     bool            `json:"new,omitempty"`
	Headers history.Headers `json:"headers,omitempty"`
	Policy  string          `json:"policy,omitempty"` // cancellation policy; empty: try_cancel
	Cancel  bool            `json:"cancel,omitempty"` // the worker was asked to stop the attempt
	// Pending describes the attempt while its outcome is pending outside of a worker; nil in other states.
	Pending     *PendingAttempt `json:"pending,omitempty"`
	LastFailure string          `json:"last_failure,omitempty"`
	LastStack   string          `json:"last_stack,omitempty"` // shortened stack trace of the last failure
	// version of the code, from the outcome that is being recorded
	CodeVersion string         `json:"-"`
	Lost        []history.Lost `json:"lost,omitempty"` // lost deliveries, at most 10
	Lease
}

// Timer is an open timer.
type Timer struct {
	FireAt history.Time `json:"fire_at"`
	Delay  int64        `json:"delay"`
	Kind   string       `json:"kind,omitempty"`
	history.Parallel
}

// Wait is an open wait for a signal, a condition or an awakeable. Signal is the number of the event that resolved it:
// the signal, or an event that may have made the condition true; 0: not resolved. A resolved wait for a signal or a
// condition stays open until the task that it triggered completes, since only the code decides what follows.
type Wait struct {
	Name     string `json:"name,omitempty"` // name of the signal
	Signal   int64  `json:"signal,omitempty"`
	SignalID string `json:"signal_id,omitempty"`
	Value    string `json:"value,omitempty"` // value of the signal that resolved it

	Kind        string `json:"kind,omitempty"` // ConditionWait, AwakeableWait; empty for a signal wait
	ID          string `json:"id,omitempty"`   // ID of an awakeable that an earlier run opened; otherwise empty
	Opened      int64  `json:"opened,omitempty"`
	Key         string `json:"key,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Occurrence  string `json:"occurrence,omitempty"`
	history.Parallel
}

// answered resolves a wait with a signal.
func (w *Wait) answered(seq int64, sig Signal) {
	w.Signal, w.SignalID, w.Value = seq, sig.ID, sig.Value
}

// Signal is a signal that was received and not handled yet.
type Signal struct {
	Name    string               `json:"name"`
	ID      string               `json:"id,omitempty"`
	Value   string               `json:"value,omitempty"`
	Headers history.Headers      `json:"headers,omitempty"`
	Trace   history.TraceContext `json:"trace,omitzero"`
}

// SignalOf returns the signal of an event.
func SignalOf(d *history.SignalReceived) Signal {
	return Signal{Name: d.SignalName, ID: d.SignalID, Value: d.Value, Headers: d.Headers, Trace: d.Trace}
}

// Fork returns a copy of s that can be changed without changing s. Every decision works on a fork, so a decision that
// is refused halfway has no effect.
func (s *Run) Fork() *Run {
	f := &Run{Head: s.Head}
	if s.Task != nil {
		t := *s.Task
		f.Task = &t
	}
	f.Activities, f.Timers = s.Activities.Fork(), s.Timers.Fork()
	f.Waits, f.Signals, f.Updates = s.Waits.Fork(), s.Signals.Fork(), s.Updates.Fork()
	f.Children, f.Undelivered, f.Unread = s.Children.Fork(), s.Undelivered.Fork(), s.Unread.Fork()
	f.Attached = s.Attached.Fork()
	return f
}

// Merge applies the changes of a fork of s, so that the next decision in the same batch sees them.
func (s *Run) Merge(f *Run) {
	s.Head = f.Head
	s.Activities.Merge(&f.Activities)
	s.Timers.Merge(&f.Timers)
	s.Waits.Merge(&f.Waits)
	s.Signals.Merge(&f.Signals)
	s.Unread.Merge(&f.Unread)
	s.Updates.Merge(&f.Updates)
	s.Children.Merge(&f.Children)
	s.Attached.Merge(&f.Attached)
	s.Undelivered.Merge(&f.Undelivered)
}

// TaskID returns the ID of the run's nth workflow task.
func TaskID(run string, n int64) string { return run + "-" + strconv.FormatInt(n, 10) + "-workflow" }

// StepID returns the ID of the activity, timer, wait or session that the command with this number opened. IDs are
// derived and not random, so that a repeated request finds what the first one created.
func StepID(run string, seq int64) string { return run + "-" + strconv.FormatInt(seq, 10) }

// AttemptID returns the ID of one delivery of an activity.
func AttemptID(run string, seq, delivery int64) string {
	return StepID(run, seq) + "-" + strconv.FormatInt(delivery, 10)
}

// ParseStepID splits RUN-seq; ok is false for any other form. A run ID is a ULID of 26 characters, so the dash must
// follow them.
func ParseStepID(id string) (run string, seq int64, ok bool) {
	i := strings.LastIndexByte(id, '-')
	if i != 26 {
		return "", 0, false
	}
	seq, err := strconv.ParseInt(id[i+1:], 10, 64)
	return id[:i], seq, err == nil && seq > 0
}

// ParseAttemptID parses an attempt ID of the form RUN-seq-delivery; ok is false for other texts.
func ParseAttemptID(id string) (run string, seq, delivery int64, ok bool) {
	i := strings.LastIndexByte(id, '-')
	if run, seq, ok = ParseStepID(id[:max(0, i)]); !ok {
		return "", 0, 0, false
	}
	delivery, err := strconv.ParseInt(id[i+1:], 10, 64)
	return run, seq, delivery, err == nil && delivery > 0
}

// ParseTaskID parses a workflow task ID of the form RUN-n-workflow; ok is false for other texts.
func ParseTaskID(id string) (run string, n int64, ok bool) {
	rest, found := strings.CutSuffix(id, "-workflow")
	if !found {
		return "", 0, false
	}
	return ParseStepID(rest)
}

// DueAt returns the earliest time at which the sweeper must visit the run's row: the expiry of its task's lease, the
// end of a backoff, one of its deadlines, or a change of its task's suspicion. It returns zero for a closed run. A
// ready task is due only if it is a suspect, since otherwise a poll leases it.
func (h *Head) DueAt() history.Time {
	if !h.Status.Open() {
		return history.Time{}
	}
	due := earliest(h.RunDeadline, h.ExecutionDeadline)
	switch t := h.Task; {
	case t == nil:
	case t.State == LeasedState:
		due = earliest(earliest(due, t.Until), t.Suspect.clearsAt(t.LeasedAt))
	case t.State == Delayed:
		due = earliest(due, t.ReadyAt)
	case t.State == Ready:
		due = earliest(due, t.Suspect.restrictionsEndAt())
	}
	return due
}

// DueAt returns the earliest time at which the sweeper must visit the activity: the end of a backoff, the expiry of its
// lease, one of the four timeouts, or a change of its suspicion.
func (a *Activity) DueAt() history.Time {
	due, _ := a.earliestDue()
	return due
}

// earliestDue returns the earliest due time and its cause: a retry, a lease, or the kind of a timeout. If two causes
// have the same time, the first one checked wins; schedule_to_close, which allows no other attempt, is checked first.
func (a *Activity) earliestDue() (at history.Time, what string) {
	consider := func(t history.Time, name string) {
		if !t.IsZero() && (at.IsZero() || t.Before(at.Time)) {
			at, what = t, name
		}
	}
	if a.SchedToClose > 0 {
		consider(plus(a.ScheduledAt, seconds(a.SchedToClose)), "schedule_to_close")
	}
	switch a.State {
	case Ready:
		if a.SchedToStart > 0 {
			consider(plus(a.ReadyAt, seconds(a.SchedToStart)), "schedule_to_start")
		}
		consider(a.Suspect.restrictionsEndAt(), "freed")
	case Delayed:
		consider(a.ReadyAt, "retry")
	case LeasedState:
		// A timeout may end a leased attempt before its lease expires, so all three times are compared.
		if a.settingUp() {
			// The worker enforces the timeout of the set-up. This one ends an attempt whose worker renews the lease but
			// does not enforce the timeout.
			if most := a.Rebuild.SetUp.Timeout; most > 0 {
				consider(plus(a.SetUpAt, seconds(most+SetUpMargin)), "start_to_close")
			}
			consider(a.Until, "lease")
			consider(a.Suspect.clearsAt(a.LeasedAt), "cleared")
			return at, what
		}
		if a.StartToClose > 0 {
			consider(plus(a.codeSince(), seconds(a.StartToClose)), "start_to_close")
		}
		// Before its first heartbeat, an attempt's heartbeat timeout counts from the lease; otherwise code that hangs
		// before its first heartbeat would never time out.
		if a.HeartbeatTO > 0 {
			consider(plus(latest(a.codeSince(), a.HeartbeatAt), seconds(a.HeartbeatTO)), "heartbeat")
		}
		consider(a.Until, "lease")
		consider(a.Suspect.clearsAt(a.LeasedAt), "cleared")
	case Pending:
		if most := a.StartToClose; most > 0 {
			consider(plus(a.codeSince(), seconds(most)), "start_to_close")
		}
		if a.HeartbeatTO > 0 {
			consider(plus(latest(a.Pending.Since, a.HeartbeatAt), seconds(a.HeartbeatTO)), "heartbeat")
		}
	}
	return at, what
}

// startBackoff starts a back-off of the workflow task.
func (t *Task) startBackoff(since, until history.Time) {
	t.State, t.DelayedAt, t.ReadyAt = Delayed, since, until
}

// startBackoff starts a back-off of the activity.
func (a *Activity) startBackoff(since, until history.Time) {
	a.State, a.DelayedAt, a.ReadyAt = Delayed, since, until
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

func plus(t history.Time, d time.Duration) history.Time { return history.At(t.Add(d)) }

func earliest(a, b history.Time) history.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a.Time)) {
		return b
	}
	return a
}

func latest(a, b history.Time) history.Time {
	if b.After(a.Time) {
		return b
	}
	return a
}

// String returns the run's ID, type and workflow ID for errors and logs.
func (s *Run) String() string { return fmt.Sprintf("run %s (%s %s)", s.ID, s.Type, s.WorkflowID) }
