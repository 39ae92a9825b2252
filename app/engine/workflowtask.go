package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A workflow task asks the workflow code for the next commands of a run. Workers die, hang, and send duplicate or late
// reports, so every report is checked against the delivery that it names. A task that fails repeatedly is quarantined
// instead of being delivered forever.

// MaxDeliveries is the maximum number of deliveries of a task without an outcome while the worker is alive. Deliveries
// that end with their worker process are judged separately; see Lose.
const MaxDeliveries = 10

// Holder is the owner of a task according to a report about it.
type Holder struct {
	Owner       string
	Incarnation string // empty: the client did not send it
	Delivery    int64
}

// TaskRequirements returns the requirements of the run's workflow task.
func (h *Head) TaskRequirements() TaskRequirements {
	w := TaskRequirements{Kind: protocol.KindWorkflow, Type: h.Type, BuildID: h.BuildID}
	switch {
	case h.NeedsSessions && h.NeedsAwakeables:
		w.Requirements = needsBoth
	case h.NeedsSessions:
		w.Requirements = needsSessions
	case h.NeedsAwakeables:
		w.Requirements = needsAwakeables
	}
	return w
}

var (
	needsSessions   = []string{CapSessions}
	needsAwakeables = []string{protocol.CapAwakeables}
	needsBoth       = []string{CapSessions, protocol.CapAwakeables}
)

// CompleteTask is the outcome of a workflow task. Hash is the hash of the commands, by which a repeated report is
// recognized. Types are the search attributes that the namespace has registered.
type CompleteTask struct {
	Number int64
	Holder
	Commands []protocol.Command
	Hash     string
	// RecordFrom is the number of the first command if the task stays leased after the commands are recorded; 0: the
	// commands complete the task.
	RecordFrom int64
	// PreviousHash returns the hash that an earlier release computed for the same commands; nil: unknown. Without it, a
	// report that is repeated after an upgrade of the app would be refused.
	PreviousHash func() string
	Types        map[string]string
	// signals that the last command lists in Unreceived and that the run did not inherit
	Carry   []Signal
	Inbox   InboxSignals       // inherited signals and their sizes, as far as the caller has loaded them
	Code    Code               // the worker's code, if the run continues as new
	Ends    map[string]Message // by workflow ID: how children ended to which commands attach
	Streams protocol.StreamWaits
	// Workers are the live workers of the namespace, sorted by ID, if a command needs resources of workers; otherwise nil.
	Workers []*Worker
	// Malformed is the error of decoding the commands. Commands that this engine does not support take precedence over
	// it, since that refusal is more helpful.
	Malformed error
}

// decide applies all commands or none: all checks come before the first event, and if a command fails later, the whole
// fork is discarded.
func (in CompleteTask) decide(st *step) error {
	hash := in.Hash
	if in.RecordFrom > 0 {
		hash = "" // a repetition is recognized below, by the task that is still open
	}
	if err := st.holdsTask(in.Number, in.Holder, hash, in.PreviousHash); err != nil {
		return err
	}
	if in.RecordFrom > 0 {
		if recorded, err := in.wasRecorded(st); recorded || err != nil {
			return err
		}
	}
	// An unsupported command cannot be ignored, since the code assumes that it was accepted. After a refusal alone, the
	// next worker would send it again; so the run is also quarantined.
	if err := in.Unsupported(); err != nil {
		st.quarantine(err)
		return nil
	}
	if in.Malformed != nil {
		return in.Malformed
	}
	if err := Validate(st.Run, in.Commands); err != nil {
		return err
	}
	if err := st.checkNames(in.Commands); err != nil {
		return err
	}
	if err := checkUpserts(in.Commands, in.Types); err != nil {
		return err
	}
	if err := st.checkUpdates(in.Commands, in.RecordFrom > 0); err != nil {
		return err
	}
	st.task, st.workers = TaskID(st.ID, in.Number), in.Workers
	// A task that only completes its update did not advance the workflow: a later task must contain the events that
	// arrived during it.
	update := st.Task.Cause.Kind == UpdateTask && !slices.ContainsFunc(in.Commands, func(c protocol.Command) bool {
		return !endsUpdate(c)
	})
	shown := st.Task.Shown
	if err := checkCarried(in.Commands, st.Inbox, in.Carry, shown); err != nil {
		return err
	}
	st.inbox = in.Inbox
	if st.needsInbox(in.Commands) {
		return ErrInboxUnread
	}
	st.carry, st.ends = in.Carry, in.Ends
	st.knowsSessions = st.Task.Sessions
	// From here on the task has ended for the step. The commands may create a new task, and a run must not have two.
	task := st.Task
	st.holder = task.Lease
	if in.RecordFrom == 0 {
		st.Task = nil
	}
	// Repeated members of a group use no number, so remove them before numbering.
	commands := slices.DeleteFunc(slices.Clone(in.Commands), st.isRepeatedMember)
	if !update {
		st.seen, st.SeenBytes = shown, task.Size
		// This is the last signal that this task was the first to contain; a condition that opens now may already be
		// true because of it.
		if st.unseenInherited() > 0 {
			st.fresh = st.Inbox.Last()
		}
		for k := range st.Signals.All() {
			if k <= shown {
				st.fresh = k
			}
		}
		// This must run before the commands change the open steps: which signals the code has handled follows from the
		// steps that were open.
		st.recordShown(task, in)
		st.markSeen(shown)
		// End the waits before applying the commands, so that history contains the result of a wait before the code's
		// reaction.
		commands = st.settleWaits(in.Commands, commands)
	}
	if err := st.applyCommands(commands); err != nil {
		return err
	}
	if in.RecordFrom > 0 {
		task.Recorded = &Recorded{Delivery: in.Delivery, From: in.RecordFrom, Hash: in.Hash}
		task.Loss = nil // the process is alive
		st.d.Answer.Created = (&Completed{Steps: st.scheduled()}).created(st.ID)
		st.d.Answer.Outcome, st.d.Answer.Recorded = OutcomeRecorded, true
		return nil
	}
	// stored for a worker that repeats the completion
	st.Last = &Completed{Number: in.Number, Delivery: in.Delivery, Owner: in.Owner, Hash: in.Hash}
	st.overdue()
	st.wakeUp()
	st.Last.Created, st.Last.Steps = st.d.Answer.Created, st.scheduled()
	st.d.Answer.Created = st.Last.created(st.ID)
	st.d.Answer.Outcome, st.d.Answer.Recorded = "completed", true
	return nil
}

// scheduled returns the activities that this step scheduled and that are still open, for the response and its
// repetition. An activity that failed in the same step (its session had ended) has no task.
func (st *step) scheduled() (rows []Range) {
	for _, e := range st.d.Events {
		d, ok := e.Data.(*history.ActivityScheduled)
		if !ok {
			continue
		}
		if _, open := st.Activities.Get(d.Sequence); !open {
			continue
		}
		if n := len(rows); n > 0 && rows[n-1][1] == d.Sequence-1 {
			rows[n-1][1]++
		} else {
			rows = append(rows, Range{d.Sequence, d.Sequence})
		}
	}
	return rows
}

// FailTask is a workflow task that ended without commands. Waiting is not a failure: the task contained no new event
// for the workflow, which some SDKs report as a failure of a special type.
type FailTask struct {
	Number int64
	Holder
	Failure protocol.Failure
	Hash    string
}

// decide retries a failed task: immediately after the first failure, then with exponential backoff. Failures of
// workflow code are usually fixed by a deployment, so the number of retries is not limited.
func (in FailTask) decide(st *step) error {
	if err := st.holdsTask(in.Number, in.Holder, in.Hash, nil); err != nil {
		return err
	}
	t := st.Task
	if waiting(in.Failure) {
		st.Task = nil
		// The worker was asked to run an update, and its code has no handler of this name. The update fails; otherwise
		// it would be dispatched again and again.
		if u, ok := st.update(t.Cause.ID); ok && t.Cause.Kind == UpdateTask {
			st.updateFailed(u, 0, history.Failure{
				Category: "update", ExceptionType: "UnknownUpdate", NonRetryable: true,
				Message: "the workflow has no handler for update " + u.Name,
			})
		} else {
			st.markSeen(t.Shown)
			st.SeenBytes = t.Size
		}
		st.Last = &Completed{
			Number: in.Number, Delivery: in.Delivery, Owner: in.Owner, Hash: in.Hash, Outcome: "waiting_for_history",
		}
		st.overdue()
		st.d.Answer = Answer{Outcome: "waiting_for_history", Recorded: true}
		return nil
	}
	t.Lease, t.Stack, t.Suspect, t.Blamed = Lease{}, stackOf(in.Failure), nil, 0
	st.d.Answer = Answer{Outcome: "failed", Recorded: true, NextTask: TaskID(st.ID, t.Number)}
	st.Last = &Completed{
		Number: in.Number, Delivery: in.Delivery, Owner: in.Owner, Hash: in.Hash, Outcome: "failed",
		Next: st.d.Answer.NextTask,
	}
	// No worker of this build could succeed, and retries would hide the fault. An operator must repair the run.
	if isHistoryMismatch(in.Failure) {
		t.State, t.Problem = Quarantined, taskFailureText(in.Failure)
		st.d.Answer.NextTask, st.Last.Next = "", ""
		return nil
	}
	t.Problem, t.Returned = taskFailureText(in.Failure), 0
	t.State, t.ReadyAt = Ready, st.now
	// The attempts before this one failed as well: wait 1, 2, 4, … seconds, at most a minute.
	if t.Attempt > 1 {
		t.startBackoff(st.now, plus(st.now, min(time.Minute, time.Second<<min(t.Attempt-2, 6))))
	}
	return nil
}

// taskFailureText returns the failure of a workflow task as users see it: its message, and the command at which the
// code failed if the worker reported that.
func taskFailureText(f protocol.Failure) string {
	if f.Sequence <= 0 {
		return f.Message
	}
	return fmt.Sprintf("at command %d: %s", f.Sequence, f.Message)
}

// waiting recognizes the report by which published SDKs say that a task had no new events: by its type, or by the
// beginning of its message in older SDKs.
func waiting(f protocol.Failure) bool {
	return strings.EqualFold(strings.TrimSpace(f.Type), protocol.FailureWaiting) ||
		strings.HasPrefix(strings.ToLower(f.Message), "workflow task waiting for scheduled history:")
}

// isHistoryMismatch reports whether retries cannot help, because the code does not match the history; an operator must
// repair the run. It compares failure messages, because the published SDKs report such faults as ordinary failures.
func isHistoryMismatch(f protocol.Failure) bool {
	text := strings.ToLower(f.Type + " " + f.Message)
	for _, s := range []string{
		"nondeterminis", "non-determinis", "replay failed", "cannot decode start input", "unsupported codec",
		"no workflow registered",
		"workflow task completion failed after commands were produced",
	} {
		if strings.Contains(text, s) {
			return true
		}
	}
	return false
}

// HeartbeatTask extends the lease of a workflow task whose code takes long to replay.
type HeartbeatTask struct {
	Number int64
	Holder
}

func (in HeartbeatTask) decide(st *step) error {
	if err := st.holdsTask(in.Number, in.Holder, "", nil); err != nil {
		return err
	}
	st.Task.Until = plus(st.now, time.Duration(st.Task.Length)*time.Microsecond)
	st.Task.Loss = nil // the process is alive
	st.d.Answer = Answer{Outcome: "renewed", Recorded: true}
	return nil
}

// LeaseExpired is the reason of a delivery that was neither completed nor renewed in time.
const LeaseExpired = "lease_expired"

// ReleaseTask ends a delivery of a workflow task without an outcome while its worker is alive. Undone: the delivery
// never reached the worker and does not count. Counts: the worker had begun the task. Otherwise the worker returned it.
type ReleaseTask struct {
	Number       int64
	Delivery     int64
	Owner        string // the worker that returns the task, which must own it; "": the app releases it
	Why          string
	Undone       bool
	Redeliveries int64 // with Undone: the number of redeliveries that the app knew of
	Counts       bool
}

// decide requires the current delivery: a late release must not end the lease of the next worker.
func (in ReleaseTask) decide(st *step) error {
	t := st.Task
	if t == nil || t.Number != in.Number || t.State != LeasedState || t.Delivery != in.Delivery {
		return protocol.Refuse(
			protocol.ReasonTaskNotLeased, "delivery %d of task %s has ended", in.Delivery, TaskID(st.ID, in.Number),
		)
	}
	if in.Undone && in.Redeliveries != t.Redeliveries {
		return errRedelivered
	}
	if in.Owner != "" && in.Owner != t.Owner {
		return protocol.Refuse(
			protocol.ReasonLeaseOwnerMismatch, "task %s is leased to %s", TaskID(st.ID, in.Number), t.Owner,
		).With("lease_owner", t.Owner)
	}
	since, returned := t.ReadyAt, t.Returned
	t.Returned = 0
	t.release(st.now, in.Why, in.Undone, in.Counts)
	// The worker did not start the task, or its attempt had no result, so the task keeps the time at which it first
	// became ready.
	if in.Undone || in.Owner != "" && !in.Counts {
		t.ReadyAt, t.Returned = orTime(since, t.ReadyAt), returned+1
	}
	st.d.Answer.Returned = t.Returned
	return nil
}

// release requeues the workflow task of a live worker, or quarantines it. A return alone never quarantines a task,
// since a drain says nothing about the task.
func (t *Task) release(now history.Time, why string, undone, counts bool) {
	if undone {
		t.Attempt--
	} else {
		t.Lost = appendLost(t.Lost, history.Lost{
			Delivery: t.Delivery, Worker: t.Owner, At: now, Why: why, StartedAt: t.LeasedAt,
		})
	}
	t.Lease = Lease{}
	t.State, t.ReadyAt = Ready, now
	if t.Attempt-t.Losses >= MaxDeliveries && (counts || why == LeaseExpired) {
		t.State, t.Problem = Quarantined, "it was delivered too often without an outcome: "+why
	}
}

// appendLost appends a lost delivery. It keeps the last MaxDeliveries of them, and the heartbeat details of the last
// one only, because the list is part of the run's row. It copies the list, because readers may share the row.
func appendLost(l []history.Lost, one history.Lost) []history.Lost {
	l = append(l[:len(l):len(l)], one)
	if last := len(l) - 2; last >= 0 {
		l[last].HeartbeatDetails = nil
	}
	return l[max(0, len(l)-MaxDeliveries):]
}

// Due applies the passed deadlines of a run, of the lease of its workflow task, and of its task's backoff. It compares
// them with the clock again, because the sweeper's information may be outdated.
type Due struct{ Liveness Liveness }

// Liveness reports whether the worker of an expired lease is alive, as far as this app knows; nil means that no worker
// counts as alive. If a live worker's lease expires, this is not a worker loss: it counts as a delivery without an
// outcome. An error ends the decision, because other apps must be asked first.
type Liveness func(namespace string, l Lease) (lives bool, err error)

// died reports whether the worker of an expired lease counts as dead. If alive is nil, it does.
func (alive Liveness) died(namespace string, l Lease) (bool, error) {
	if alive == nil {
		return true, nil
	}
	lives, err := alive(namespace, l)
	return !lives, err
}

// finding returns the verdict on a lease that ended with its process. If there is none yet, it returns an error that
// requests a judgement of all tasks of the process together. If alive is nil, the task is not suspected.
func (alive Liveness) finding(namespace string, l Lease) (Finding, error) {
	switch {
	case l.Loss != nil:
		return *l.Loss, nil
	case alive == nil:
		return Finding{Process: l.ProcessID()}, nil
	}
	return Finding{}, &ProcessEnded{Namespace: namespace, Worker: l.Owner, Incarnation: l.Incarnation}
}

// decide checks deadlines first: a run that has timed out has no task to dispatch.
func (in Due) decide(st *step) error {
	if err := st.mustBeOpen(); err != nil {
		return err
	}
	for _, l := range []struct {
		at   history.Time
		kind string
	}{{st.ExecutionDeadline, "execution_timeout"}, {st.RunDeadline, "run_timeout"}} {
		if !l.at.IsZero() && !l.at.After(st.now.Time) {
			st.timeOut(l.kind)
			return nil
		}
	}
	t := st.Task
	switch {
	case t != nil && t.State == LeasedState && !t.Until.After(st.now.Time):
		died, err := in.Liveness.died(st.Namespace, t.Lease)
		if err != nil {
			return err
		}
		t.Returned = 0
		if !died {
			t.release(st.now, LeaseExpired, false, true)
			return nil
		}
		f, err := in.Liveness.finding(st.Namespace, t.Lease)
		if err != nil {
			return err
		}
		t.lose(st.now, LeaseExpired, f)
	case t != nil && t.State == LeasedState && isDue(t.Suspect.clearsAt(t.LeasedAt), st.now):
		t.Suspect = nil
	case t != nil && t.State == Ready && isDue(t.Suspect.restrictionsEndAt(), st.now):
		t.Suspect = t.Suspect.free()
	case t != nil && t.State == Delayed && st.Held == "" && !t.ReadyAt.After(st.now.Time):
		t.State, t.ReadyAt, t.DelayedAt, t.Suspect = Ready, st.now, history.Time{}, t.Suspect.ready(st.now)
	default:
		return errNotDue
	}
	return nil
}

// isDue reports whether a time is set and has passed.
func isDue(at, now history.Time) bool { return !at.IsZero() && !at.After(now.Time) }

// errNotDue is the refusal if nothing is due, because another app or request was first; nothing is written.
var errNotDue = protocol.Refuse(protocol.ReasonTaskNotLeased, "no deadline has been reached")

// IsNotDue reports whether a decision found nothing due, because another sweeper or a report was first. It compares
// pointers, because errors.Is would also match other refusals with the same reason.
func IsNotDue(err error) bool { return err == error(errNotDue) } //nolint:errorlint // see above

// Repair ends the quarantine of a run. It resets the counts; otherwise the first failure after the repair would
// quarantine the run again.
type Repair struct{ Identity string }

func (in Repair) decide(st *step) error {
	if err := st.notActive(); err != nil {
		return err
	}
	t := st.Task
	if t == nil || t.State != Quarantined {
		st.d.Answer.Outcome = "repair_not_needed"
		return nil
	}
	st.emit(&history.RepairRequested{Identity: in.Identity, Was: t.Problem})
	t.State, t.ReadyAt, t.Losses, t.Attempt, t.Problem, t.Stack = Ready, st.now, 0, 0, "", ""
	t.Suspect, t.Blamed = nil, 0
	st.d.Answer.Outcome = "repair_dispatched"
	return nil
}

// holdsTask checks a report about workflow task n. The order of the checks matters, since callers react to the reason:
// first whether the task exists, then whether the same report was accepted before (also if it closed the run), then the
// run, the lease, its owner, its delivery and its expiry. See the refusals in protocol.
func (st *step) holdsTask(n int64, h Holder, hash string, previousHash func() string) error {
	id := func() string { return TaskID(st.ID, n) } // computed only for refusals, which are rare
	if n > st.Tasks {
		return protocol.Refuse(protocol.ReasonTaskNotFound, "task %s does not exist", id())
	}
	if l := st.Last; hash != "" && l != nil && l.Number == n && l.Delivery == h.Delivery && l.Owner == h.Owner {
		if l.Hash == hash || previousHash != nil && l.Hash == previousHash() {
			status, _, _ := protocol.PublicRun(st.Status, true, st.Task != nil)
			return protocol.Refuse(protocol.ReasonAlreadyCompleted, "task %s was already completed by the same request", id()).
				With("created_task_ids", l.created(st.ID)).With("run_id", st.ID).With(
				"outcome", cmp.Or(l.Outcome, "completed"),
			).With("next_task_id", l.Next).
				With("run_status", status)
		}
		return protocol.Refuse(protocol.ReasonConflictingCompletion, "task %s was completed with other commands", id())
	}
	if err := st.mustBeOpen(); err != nil {
		return err
	}
	t := st.Task
	if t == nil || t.Number != n || t.State != LeasedState {
		return protocol.Refuse(protocol.ReasonTaskNotLeased, "task %s is not leased", id()).
			With("task_status", taskStatus(t, n))
	}
	if t.Owner != h.Owner || h.Incarnation != "" && h.Incarnation != t.Incarnation {
		return protocol.Refuse(protocol.ReasonLeaseOwnerMismatch, "task %s is leased to %s", id(), t.Owner).
			With("lease_owner", t.Owner)
	}
	if t.Delivery != h.Delivery {
		return protocol.Refuse(protocol.ReasonAttemptMismatch, "task %s is at attempt %d", id(), t.Delivery).
			With("current_attempt", t.Delivery)
	}
	if !t.Until.After(st.now.Time) {
		return protocol.Refuse(
			protocol.ReasonLeaseExpired, "the lease of task %s ended at %s", id(), t.Until.Format(time.RFC3339),
		).With("task_status", "leased").With("lease_owner", t.Owner).With("lease_expires_at", t.Until)
	}
	return nil
}

// taskStatus returns the state of workflow task n for refusals. Every task except the open one has ended.
func taskStatus(t *Task, n int64) string {
	if t == nil || t.Number != n {
		return "completed"
	}
	return string(t.State)
}
