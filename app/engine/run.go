// Package engine contains the rules of runs, sessions, schedules and workers as pure functions: aggregate, input and
// time in, decision out. It reads no clock, draws no random numbers and does no I/O.
//
// The same input on the same state always yields the same decision. A store may therefore repeat a decision when it
// retries a transaction, and scripted tests cover every rule without a database. Start reading here, with the state of
// a run. Then read evolve.go (how an event changes that state), step.go (how an input becomes events), and the one file
// for each kind of input.
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

// Run is the open part of a run: tasks, activities, timers, waits and children that have not ended. Payloads and past
// events are stored in the history only. Loading a run therefore reads a handful of rows, however long its history is.
// The embedded Head is one row; every table entry has its own row, which is written only when the entry changes.
type Run struct {
	Head
	Activities  Table[int64, Activity] // by command sequence
	Timers      Table[int64, Timer]    // by command sequence; a wait's own timer under the wait's key
	Waits       Table[int64, Wait]     // by command sequence
	Signals     Table[int64, Signal]   // by event sequence: received, and not yet seen by a completed workflow task
	Unread      Table[int64, Signal]   // by event sequence: seen, and not yet the answer to a wait; at most maxUnread
	Updates     Table[int64, Update]   // by event sequence: accepted, and not yet answered
	Children    Table[int64, Child]    // by command sequence
	Attached    Table[int64, Attached] // by command sequence: children for whose end the run waits
	Undelivered Table[int64, Message]  // by event sequence: to other runs, not yet delivered; a run that closed still owes

	inbox InboxSignals // of a fork: what the decision knows of the signals in Inbox
}

// Head is a run's row. Every step reads and writes it, so its size must not grow with the history.
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
	// LastSeq is the number of the last event, and the fence of every decision. A decision made on an older
	// number is not stored, so two deciders never both append to one history.
	LastSeq int64 `json:"-"`
	// Unserved is the stuck state that the store last recorded for a run whose ready task no live worker may lease. Only
	// readers of the store set it, and no decision uses it.
	Unserved *Stuck `json:"-"`

	Kind           string         `json:"kind,omitempty"` // history.KindActivity, or empty of a workflow
	Parent         *Parent        `json:"parent,omitempty"`
	Inherited      InheritedCount `json:"former,omitzero"` // open children that earlier runs of the workflow id started
	FairnessKey    string         `json:"fairness_key,omitempty"`
	FairnessWeight int            `json:"fairness_weight,omitempty"`
	// Inbox has the signals that the run inherits without a copy; nil: none. They are not in Signals and Unread.
	Inbox *Inbox `json:"inbox,omitempty"`

	BusinessKey string `json:"business_key,omitempty"`
	Priority    int    `json:"priority"`
	BuildID     string `json:"build_id,omitempty"`
	CommandSeq  int64  `json:"command_seq,omitempty"` // of its last command
	Tasks       int64  `json:"tasks,omitempty"`       // workflow tasks made so far
	Task        *Task  `json:"task,omitempty"`        // the open workflow task; at most one
	// Seen and Wake are how an event that arrives while a task is leased gets its own task: Seen is the last event that a
	// completed workflow task had been shown, Wake the last one that the code has to be asked about. When Wake is larger,
	// a follow-up task is made.
	Seen      int64 `json:"seen,omitempty"`       // last event a completed workflow task had been shown
	FirstSeen int64 `json:"first_seen,omitempty"` // last event its first workflow task had been shown
	Settled   int64 `json:"settled,omitempty"`    // last event that ended a step
	// last event that wants a workflow task; a task that was shown less owes another
	Wake       int64      `json:"wake,omitempty"`
	WakeFor    *Cause     `json:"wake_for,omitempty"` // cause of that event's workflow task
	Last       *Completed `json:"last,omitempty"`     // the last accepted completion of a workflow task
	LeasedEver bool       `json:"leased_ever,omitempty"`
	// Bytes is the size of the run's history in responses, SeenBytes the part of it that the worker has in memory after
	// the last completed workflow task. The store adds the events that it appends to Bytes. In a run that an earlier
	// build started Bytes lacks the earlier events, so its deliveries count as smaller than they are.
	Bytes     int64 `json:"bytes,omitempty"`
	SeenBytes int64 `json:"seen_bytes,omitempty"`
	// ArgumentBytes is the size of the run's arguments, which a workflow task contains in addition to the history.
	ArgumentBytes int64 `json:"argument_bytes,omitempty"`
	// Held is the quota of the namespace that holds back the first task of a child; empty: none.
	Held protocol.Quota `json:"held,omitempty"`

	Selected   []string     `json:"selected,omitempty"` // selections that have a winner and members that are open
	ProgressAt history.Time `json:"progress_at,omitzero"`

	RunTimeout        int64        `json:"run_timeout,omitempty"` // seconds
	ExecutionTimeout  int64        `json:"execution_timeout,omitempty"`
	RunDeadline       history.Time `json:"run_deadline,omitzero"`
	ExecutionDeadline history.Time `json:"execution_deadline,omitzero"`

	Memo             json.RawMessage `json:"memo,omitempty"`
	SearchAttributes json.RawMessage `json:"search_attributes,omitempty"`

	// Chain is the first run of the chain if the chain uses the workflow ID of an earlier chain again; empty: the first
	// chain of the ID.
	Chain string `json:"chain,omitempty"`
	// StartKey is the Idempotency-Key of the start of the chain; nil: the start had none.
	StartKey *StartKey `json:"start_key,omitempty"`

	ContinuedFrom   string `json:"continued_from,omitempty"`
	ContinuedTo     string `json:"continued_to,omitempty"`
	Failure         string `json:"failure,omitempty"` // message of the failure it closed with
	FailureType     string `json:"failure_type,omitempty"`
	CancelRequested bool   `json:"asked,omitempty"` // cancellation was requested
	// CancelRequestedSeq is the event of the first request, CancelRequestedAt its time; zero if an earlier build recorded
	// the request
	CancelRequestedSeq int64        `json:"asked_seq,omitempty"`
	CancelRequestedAt  history.Time `json:"asked_at,omitzero"`
	HasSessions        bool         `json:"has_sessions,omitempty"`
	// NeedsSessions: only a worker that declares CapSessions receives the run's workflow tasks. A worker with this
	// capability wrote session events into the history, which replayers of other SDKs may not know. The field stays
	// false in a fleet that uses sessions without the capability.
	NeedsSessions bool `json:"needs_sessions,omitempty"`
	// Buffers: the run's code buffers signals until it receives them (as our replayer does), so the
	// engine need not store them.
	Buffers bool `json:"buffers,omitempty"`
	// Waitless: the run has opened no wait for a signal so far. It is recorded as true at the start, so a run
	// that an earlier build started reads as false, which means "not known". See carry.go for what it decides.
	Waitless bool `json:"waitless,omitempty"`
	// Heeds: a condition held although the code, here or in a run that this one continues, opened no wait for a signal.
	// Then the conditions read the signals.
	Heeds bool `json:"heeds,omitempty"`
	// Heeded is the last event that a task had been shown when such a condition held most recently.
	Heeded int64 `json:"heeded,omitempty"`

	// NameRules is the version of the rules for names that apply to the run's commands; see protocol.NameRules
	NameRules int `json:"name_rules,omitempty"`

	ArchivedAt    history.Time `json:"archived_at,omitzero"` // a mark on a closed run, beside its history
	ArchiveReason string       `json:"archive_reason,omitempty"`
}

// Cause is the reason for a workflow task. Some replayers only learn from the cause which wait a signal resolved, so it
// is part of the contract.
type Cause struct {
	Kind     string `json:"kind"` // start, activity, timer, workflow_signal, cancellation, …
	Sequence int64  `json:"sequence,omitempty"`
	Event    int64  `json:"event,omitempty"` // sequence of the event
	Type     string `json:"type,omitempty"`  // its type
	// Name is the name of the signal, also of a signal wait that timed out, or the type of the activity.
	Name string `json:"name,omitempty"`
	ID   string `json:"id,omitempty"`   // signal id, attempt id
	Wait int64  `json:"wait,omitempty"` // command sequence of the condition wait it concerns
}

// TaskState is the state of a task.
type TaskState string

// The states of a task. Quarantined is a workflow task that was lost or failed too often and waits for a repair.
const (
	Ready       TaskState = "ready"
	Delayed     TaskState = "delayed"
	LeasedState TaskState = "leased"
	Quarantined TaskState = "quarantined"
)

// Lease names the worker that owns a task and the time at which its lease expires. The delivery number, which is stored
// next to the lease, is the fence: each lease increments it, no number is reused, and every attempt id contains it. A
// worker that reports late therefore names an ended delivery and cannot be mistaken for the current owner.
type Lease struct {
	Owner       string       `json:"owner,omitempty"`
	Incarnation string       `json:"incarnation,omitempty"`
	Release     string       `json:"release,omitempty"`
	BuildID     string       `json:"build,omitempty"`
	PollID      string       `json:"poll,omitempty"`
	LeasedAt    history.Time `json:"leased_at,omitzero"`
	Until       history.Time `json:"until,omitzero"`
	Length      int64        `json:"length,omitempty"`         // microseconds; length of one renewal
	Sessions    bool         `json:"knows_sessions,omitempty"` // of a workflow task: its worker declared CapSessions
	// redeliveries of this lease to its holder, by an app that does not know whether an earlier response arrived
	Redeliveries int64 `json:"again,omitempty"`
	// the app that granted the lease, for a worker that does not report its leases itself
	App string `json:"app,omitempty"`
	// Loss is the finding about the delivery if its process ended before this lease; see Lose.
	Loss *Finding `json:"loss,omitempty"`
}

// Task is the open workflow task of a run. There is at most one, since its commands use the next command sequences: two
// concurrent tasks would use the same sequences for different steps.
type Task struct {
	Number  int64        `json:"n"` // its number in the run, unchanged by retries
	State   TaskState    `json:"state"`
	ReadyAt history.Time `json:"ready_at,omitzero"`
	// DelayedAt is the beginning of the back-off that ends at ReadyAt; zero: ReadyAt ends no back-off
	DelayedAt history.Time   `json:"delayed_at,omitzero"`
	Delivery  int64          `json:"delivery,omitempty"`
	Attempt   int            `json:"attempt,omitempty"`
	Losses    int            `json:"losses,omitempty"`   // worker processes that ended with it
	Suspect   *Suspicion     `json:"suspect,omitempty"`  // nil: no loss since it was cleared
	Blamed    int            `json:"blamed,omitempty"`   // losses that the task was blamed for since its last outcome
	Rank      int64          `json:"rank,omitempty"`     // its place in the fair order of its queue
	Shown     int64          `json:"shown,omitempty"`    // last event the leaseholder has been shown
	Settled   int64          `json:"settled,omitempty"`  // among those, the last that ended a step
	Size      int64          `json:"size,omitempty"`     // Bytes of the history that the leaseholder has been shown
	Returned  int            `json:"returned,omitempty"` // how often in a row it was returned without having been started
	Recorded  *Recorded      `json:"recorded,omitempty"` // what its current delivery recorded last; nil: nothing
	Cause     Cause          `json:"cause,omitzero"`
	Problem   string         `json:"problem,omitempty"` // last failure of its code, or the reason of its quarantine
	StuckAt   history.Time   `json:"stuck_at,omitzero"` // when this task made the run stuck; zero: it did not
	Stack     string         `json:"stack,omitempty"`   // where its code failed last
	Lost      []history.Lost `json:"lost,omitempty"`
	Lease
}

// Recorded remembers the last commands that were recorded under a delivery of a workflow task which stays leased. A
// worker whose response was lost sends them again.
type Recorded struct {
	Delivery int64  `json:"d"`
	From     int64  `json:"from"` // sequence of the first command
	Hash     string `json:"hash"`
}

// Completed remembers the last accepted completion of a workflow task. A worker whose answer was lost sends its
// completion again, and must get the first answer and not a refusal.
type Completed struct {
	Number   int64    `json:"n"`
	Delivery int64    `json:"d"`
	Owner    string   `json:"owner"`
	Hash     string   `json:"hash"`
	Created  []string `json:"created,omitempty"`
	Steps    []Range  `json:"steps,omitempty"`   // the activities it scheduled
	Outcome  string   `json:"outcome,omitempty"` // failed, waiting_for_history; empty: completed
	Next     string   `json:"next,omitempty"`    // the task that is tried again
}

// Range is a row of command sequences, both ends in it. A completion may schedule a thousand activities; their
// ids follow from two numbers.
type Range [2]int64

// created lists the tasks a completion of run made: its activities, and the workflow task that followed at once.
func (c *Completed) created(run string) (ids []string) {
	for _, r := range c.Steps {
		for seq := r[0]; seq <= r[1]; seq++ {
			ids = append(ids, StepID(run, seq))
		}
	}
	return append(ids, c.Created...)
}

// Activity is an open activity: what it was scheduled with, and its live attempt. Its arguments are not here;
// they stay in the event that scheduled it, since only a delivery needs them.
type Activity struct {
	Seq       int64  `json:"-"` // its command sequence
	RunID     string `json:"-"`
	Namespace string `json:"-"`

	Type           string          `json:"type"`
	Queue          string          `json:"queue"`
	Event          int64           `json:"event"` // sequence of its ActivityScheduled, which holds the arguments
	Priority       int             `json:"priority,omitempty"`
	FairnessKey    string          `json:"fairness_key,omitempty"` // its own; empty: its run's
	FairnessWeight int             `json:"fairness_weight,omitempty"`
	Rank           int64           `json:"rank,omitempty"` // its place in the fair order of its queue
	Requirements   []string        `json:"requirements,omitempty"`
	SessionID      string          `json:"session,omitempty"`
	Options        json.RawMessage `json:"options,omitempty"` // the worker_session object of the command
	Retry          *retry.Policy   `json:"retry,omitempty"`   // nil: one attempt
	StartToClose   int64           `json:"stc,omitempty"`     // seconds, 0: none
	SchedToStart   int64           `json:"sts,omitempty"`
	SchedToClose   int64           `json:"sc,omitempty"`
	HeartbeatTO    int64           `json:"hb,omitempty"`
	ScheduledAt    history.Time    `json:"scheduled_at"`
	history.Parallel

	State   TaskState    `json:"state"`
	ReadyAt history.Time `json:"ready_at,omitzero"` // ready or delayed: since, or until, when; else zero
	// DelayedAt is the beginning of the back-off that ends at ReadyAt; zero: ReadyAt ends no back-off
	DelayedAt history.Time `json:"delayed_at,omitzero"`
	// FirstReady is when it became ready first, of a delivery under way or in doubt: a return without a start keeps it
	FirstReady history.Time `json:"first_ready,omitzero"`
	Returned   int          `json:"returned,omitempty"` // how often in a row it was returned without having been started
	Bytes      int64        `json:"bytes,omitempty"`    // of its arguments
	Delivery   int64        `json:"delivery,omitempty"`
	Attempt    int          `json:"attempt,omitempty"` // as shown to users
	Failures   int          `json:"failures,omitempty"`
	Losses     int          `json:"losses,omitempty"` // worker processes that ended with it
	// Suspect is the suspicion from these worker losses; nil: the task was never lost, or the suspicion was cleared.
	Suspect   *Suspicion `json:"suspect,omitempty"`
	Blamed    int        `json:"blamed,omitempty"`     // losses that the task was blamed for since its last outcome
	MaxBlamed int        `json:"max_blamed,omitempty"` // max_blamed_losses of its options; 0: the setting
	// Returns counts the deliveries that ended without an outcome while their worker lived: MaxDeliveries of them
	// are poison.
	Returns int `json:"returns,omitempty"`
	// UnstartedReturns counts the consecutive returns of the activity without a start. It determines the back-off and the
	// text of the wait.
	UnstartedReturns int             `json:"handed_back,omitempty"`
	Epoch            int64           `json:"epoch,omitempty"` // of the session, when leased
	HeartbeatAt      history.Time    `json:"heartbeat_at,omitzero"`
	Progress         json.RawMessage `json:"progress,omitempty"`
	// LastHeartbeat has the heartbeat details of the latest attempt that ended and reported any; nil: none did. It is
	// kept until the activity closes.
	LastHeartbeat *protocol.LastHeartbeat `json:"last_heartbeat,omitempty"`
	// last report of its worker about a rebuild in the running attempt
	Rebuild *protocol.Recovered `json:"rebuild,omitempty"`
	// SetUpAt is when the worker last reported the set-up of the session in the running attempt; zero: it reported none.
	SetUpAt history.Time `json:"set_up_at,omitzero"`
	// the delivery under way is the first its holder sees of the session's epoch
	New         bool           `json:"new,omitempty"`
	Policy      string         `json:"policy,omitempty"` // cancellation policy; empty: try_cancel
	Cancel      bool           `json:"cancel,omitempty"` // the holder was asked to stop
	LastFailure string         `json:"last_failure,omitempty"`
	LastStack   string         `json:"last_stack,omitempty"` // stack trace of the last failure, shortened
	CodeVersion string         `json:"-"`                    // reported with the outcome that is being recorded
	Lost        []history.Lost `json:"lost,omitempty"`       // at most 10
	Lease
}

// Timer is an open timer.
type Timer struct {
	FireAt history.Time `json:"fire_at"`
	Delay  int64        `json:"delay"`
	Kind   string       `json:"kind,omitempty"`
	history.Parallel
}

// Wait is an open wait for a signal or for a condition. Signal is the sequence of the event that resolved it: the
// signal, or an event that may have made the condition true; it is 0 before. A resolved wait stays open until the task
// that it triggered completes, since only the code decides how to use it.
type Wait struct {
	Name     string `json:"name,omitempty"` // of the signal
	Signal   int64  `json:"signal,omitempty"`
	SignalID string `json:"signal_id,omitempty"`
	Value    string `json:"value,omitempty"` // of the signal that answers it

	Kind        string `json:"kind,omitempty"` // condition; empty for a signal's
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

// Signal is one that was received and has not been used yet.
type Signal struct {
	Name  string `json:"name"`
	ID    string `json:"id,omitempty"`
	Value string `json:"value,omitempty"`
}

// Fork returns a run that starts as s and leaves s as it is. Every decision works on a fork, so one that is
// refused halfway leaves no trace.
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

// StepID returns the ID of an activity execution, timer, wait or session that the command with this sequence opened.
// IDs are derived and not random, so a repeated request finds its first result.
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

// DueAt returns the earliest time at which the sweeper must visit the run's row: the end of its task's lease or
// back-off, one of its deadlines, or a change of its task's suspicion. A closed run is never due. Neither is a ready
// task that is no suspect, since a poll leases it.
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
		due = earliest(due, t.Suspect.freesAt())
	}
	return due
}

// DueAt returns the earliest time at which the sweeper must handle the activity: backoff, lease expiry, the four
// timeouts, a change of its suspicion.
func (a *Activity) DueAt() history.Time {
	due, _ := a.due()
	return due
}

// due returns the next due time and its cause: a retry, a lease, or the kind of a timeout. If two causes are due at the
// same time, the first one considered wins; schedule_to_close, which allows no other attempt, is considered first.
func (a *Activity) due() (at history.Time, what string) {
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
		consider(a.Suspect.freesAt(), "freed")
	case Delayed:
		consider(a.ReadyAt, "retry")
	case LeasedState:
		// An attempt that is leased may end by its own limits before its lease does, so all three are compared.
		if a.settingUp() {
			// The worker times the set-up out. This ends an attempt whose worker does not, though it renews the lease.
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
		// An attempt that has never sent a heartbeat is judged from its lease on; otherwise code that hangs
		// before its first heartbeat would never be noticed.
		if a.HeartbeatTO > 0 {
			consider(plus(latest(a.codeSince(), a.HeartbeatAt), seconds(a.HeartbeatTO)), "heartbeat")
		}
		consider(a.Until, "lease")
		consider(a.Suspect.clearsAt(a.LeasedAt), "cleared")
	}
	return at, what
}

// delay starts a back-off of the workflow task.
func (t *Task) delay(since, until history.Time) {
	t.State, t.DelayedAt, t.ReadyAt = Delayed, since, until
}

// delay starts a back-off of the activity.
func (a *Activity) delay(since, until history.Time) {
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

// String names the run for errors and logs.
func (s *Run) String() string { return fmt.Sprintf("run %s (%s %s)", s.ID, s.Type, s.WorkflowID) }
