package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker may claim one task by its ID instead of polling a queue. The same rules apply as for a poll; otherwise a
// worker of a drained build, or one at its maximum of sessions, could lease tasks.

// LeaseTask leases the run's nth workflow task to a worker that claims it by its ID.
type LeaseTask struct {
	Number   int64
	Lessee   Lessee
	Settings *Queue // settings of the task's queue; nil: none
}

func (in LeaseTask) decide(st *step) error {
	if err := st.Claimable(in.Number, in.Lessee, in.Settings, st.now.Time); err != nil {
		return err
	}
	leased := st.Leased(in.Lessee, st.now.Time)
	st.Head = leased.Head
	st.d.Answer = Answer{Outcome: "claimed", Recorded: true}
	return nil
}

// LeaseActivityTask leases an open activity to a worker that claims it by its ID, together with the activity's session.
// Result receives the leased activity.
type LeaseActivityTask struct {
	Seq            int64
	Lessee         Lessee
	EpochWatermark EpochWatermark
	Result         *LeasedActivity

	Settings *Queue // settings of the task's queue; nil: none
}

// LeasedActivity is the result of a claim of an activity.
type LeasedActivity struct {
	Activity Activity
	Session  *Session // the session after the lease; nil: none
	Acquired bool     // the claim acquired the session
	IsNew    bool     // the first task of the session's epoch that its owner receives
}

func (in LeaseActivityTask) decide(st *step) error {
	a, sess, err := st.ClaimableActivity(in.Seq, in.Lessee, st.env.Session, in.Settings, st.now.Time)
	if err != nil {
		return err
	}
	if sess != nil {
		own := *sess
		sess = &own
	}
	a, timeline, claimed := LeaseActivity(a, sess, in.Lessee, in.EpochWatermark, st.now.Time)
	st.Activities.Put(in.Seq, a)
	*in.Result = LeasedActivity{Activity: a, Acquired: claimed}
	if sess != nil {
		in.Result.Session, in.Result.IsNew = sess, a.New
		st.storeSession(*sess, timeline...)
	}
	st.d.Answer = Answer{Outcome: "claimed", Recorded: true}
	return nil
}

// Claimable returns the reason why a worker may not lease the run's nth workflow task now, or nil. A lessee without a
// worker stands for any worker.
func (s *Run) Claimable(n int64, l Lessee, settings *Queue, now time.Time) error {
	id := TaskID(s.ID, n)
	switch t := s.Task; {
	case n > s.Tasks:
		return protocol.Refuse(protocol.ReasonTaskNotFound, "task %s does not exist", id)
	case !s.Status.Open():
		return runClosed(&s.Head)
	case t == nil || t.Number != n || t.State != Ready:
		return unclaimable(id, taskStatus(t, n), leaseOf(t, n))
	}
	if l.Worker != nil && s.Task.Suspect.Limited() {
		return unclaimableSuspect(id)
	}
	want := s.TaskRequirements()
	want.Queue = settings
	return checkAdmission(id, want, s.Queue, l, now)
}

// ClaimableActivity returns the reason why a worker may not lease an activity now, or nil if the worker may lease it.
// It also returns the activity and its session.
func (s *Run) ClaimableActivity(
	seq int64, l Lessee, session func(string) *Session, settings *Queue, now time.Time,
) (Activity, *Session, error) {
	id := StepID(s.ID, seq)
	if seq > s.CommandSeq {
		return Activity{}, nil, protocol.Refuse(protocol.ReasonTaskNotFound, "task %s does not exist", id)
	}
	a, ok := s.Activities.Get(seq)
	if !ok && !s.Status.Open() {
		return Activity{}, nil, runClosed(&s.Head)
	}
	if !ok {
		return Activity{}, nil, unclaimable(id, "completed", Lease{})
	}
	var sess *Session
	if a.SessionID != "" {
		sess = session(a.SessionID)
	}
	if a.State != Ready || a.SessionID != "" && sess == nil {
		return a, sess, unclaimable(id, string(a.State), a.Lease)
	}
	if l.Worker != nil && a.Suspect.Limited() {
		return a, sess, unclaimableSuspect(id)
	}
	want := TaskRequirements{
		Kind: protocol.KindActivity, Type: a.Type, Requirements: a.Requirements, Session: sess, Queue: settings,
	}
	return a, sess, checkAdmission(id, want, a.Queue, l, now)
}

func leaseOf(t *Task, n int64) Lease {
	if t == nil || t.Number != n {
		return Lease{}
	}
	return t.Lease
}

// unclaimable returns the refusal of a task that is not ready. It names the owner of the lease, so that a client can
// distinguish its own lease from another worker's.
func unclaimable(id, state string, l Lease) error {
	err := protocol.Refuse(protocol.ReasonNotClaimable, "task %s is %s", id, state).With("task_status", state)
	if l.Owner != "" {
		err.With("lease_owner", l.Owner).With("lease_expires_at", l.Until)
	}
	return err
}

// unclaimableSuspect returns the refusal of a task suspected of a worker loss: only a claim of a queue counts the tasks
// of the worker process.
func unclaimableSuspect(id string) error {
	return protocol.Refuse(
		protocol.ReasonNotClaimable, "task %s is a suspect of a lost worker process; poll its queue to receive it", id,
	).With("task_status", string(Ready))
}

// checkAdmission checks the queue and all routing rules for one worker.
func checkAdmission(id string, want TaskRequirements, queue string, l Lessee, now time.Time) error {
	if l.Worker == nil {
		return nil
	}
	if !l.Worker.Serves(queue) {
		return protocol.Refuse(
			protocol.ReasonQueueMismatch, "task %s waits in queue %s, which worker %s does not serve", id, queue, l.Worker.ID,
		).With("registered_task_queue", l.Worker.Queues[0]).With("requested_task_queue", queue).With(
			"task_status", string(Ready),
		)
	}
	v := Admit(want, l, now)
	if v.OK {
		return nil
	}
	// The task exists; the worker has only not registered its type.
	if v.Reason == protocol.ReasonNotFound {
		v.Reason = protocol.ReasonNotClaimable
	}
	return protocol.Refuse(v.Reason, "%s", v.Text()).With("task_status", string(Ready))
}
