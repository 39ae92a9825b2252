package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A stuck run is open, makes no progress, and needs an operator. There are two causes. The run's own workflow task
// fails: the task is part of the run's row, and each update of the run checks it. Or no live worker may lease a ready
// task: that is checked once per routing key (queue, type, build, requirements), not per run, and the store records the
// result in the rows of the affected runs.

const (
	// StuckFailures is the number of consecutive failures of a workflow task after which its run is stuck.
	StuckFailures = 3
	// StuckUnserved is how long a task may be ready without a live worker that may lease it before its run is stuck.
	StuckUnserved = time.Minute
	// StuckPlace is how long a task may wait for a worker that can hold one more session. Afterwards the run is stuck,
	// and the wait is logged, counted, and marked as needing attention.
	StuckPlace = 30 * time.Second
)

// Stuck describes why a run is stuck: since when, the wait reason, and its message.
type Stuck struct {
	Since   history.Time
	Reason  protocol.WaitReason
	Message string
}

// failing reports whether the task makes its run stuck.
func (t *Task) failing() bool {
	return t != nil && (t.State == Quarantined || t.failures() >= StuckFailures)
}

// recordStuck records the time at which the task made its run stuck.
func (t *Task) recordStuck(now history.Time) {
	switch {
	case t == nil:
	case !t.failing():
		t.StuckAt = history.Time{}
	case t.StuckAt.IsZero():
		t.StuckAt = now
	}
}

// Failing returns the state of a run that is stuck because its workflow task fails; nil for any other run.
func (h *Head) Failing() *Stuck {
	t := h.Task
	if !h.Status.Open() || !t.failing() {
		return nil
	}
	w := protocol.Wait{Kind: protocol.WaitForTask, Reason: protocol.WaitTaskFailed, Failures: t.failures()}
	if t.State == Quarantined {
		w.Kind, w.Reason, w.Workflow = protocol.WaitForRepair, protocol.WaitQuarantined, h.WorkflowID
	}
	w.Name, w.Queue, w.Detail = h.Type, h.Queue, t.Problem
	// Rows of earlier builds have no StuckAt; use the time of the last progress as an estimate.
	return &Stuck{orTime(t.StuckAt, orTime(h.ProgressAt, h.StartedAt)), w.Reason, w.Say(time.UTC)}
}

// Stuck returns the state of a run that is stuck because its workflow task fails or because no worker may run a task;
// nil for any other run.
func (h *Head) Stuck() *Stuck {
	if s := h.Failing(); s != nil || !h.Status.Open() {
		return s
	}
	return h.Unserved
}

// leasable reports whether a live worker may lease the task of this wait, so that the task only waits for a free slot.
func leasable(w protocol.Wait) bool {
	return w.Reason == protocol.WaitWorkerBusy || w.Reason == protocol.WaitWorkerFull
}

// Unserved returns why no live worker may lease the ready tasks of a routing key; nil if a worker may. inSession is
// true for activities in sessions: a session without an owner needs a worker that can hold one more session.
func (a *WaitContext) Unserved(queue string, want TaskRequirements, inSession bool) *protocol.Wait {
	if want.Type == protocol.BorrowActivity {
		return nil // the app completes it
	}
	want.Queue = a.Settings(queue)
	if inSession {
		want.Session = &Session{}
	}
	w := a.unleased(queue, want)
	if leasable(w) {
		return nil
	}
	w.Name = want.Type
	kind := protocol.WaitForTask
	if want.Kind == protocol.KindActivity {
		kind = protocol.WaitForActivity
	}
	return a.finish(kind, w)
}
