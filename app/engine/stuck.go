package engine

import (
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A stuck run is open, makes no progress, and needs a person. The cause is either its own workflow task, which is in
// its row and is judged by each step of the run, or the fleet: no live worker may lease a ready task. The fleet is
// judged once per lane (queue, type, build, requirements) and never per run; the store then records the result in the
// rows of the runs concerned.

const (
	// StuckFailures is the number of failed workflow tasks in a row after which a run is stuck.
	StuckFailures = 3
	// StuckUnserved is how long a task is ready without a live worker that may lease it until its run is stuck.
	StuckUnserved = time.Minute
	// StuckPlace is how long a task waits for a worker with room for its session until its run is stuck and its wait
	// needs attention, is logged and counted.
	StuckPlace = 30 * time.Second
)

// Stuck says since when and why a run is stuck. Reason is a wait reason, Message the sentence of that wait.
type Stuck struct {
	Since   history.Time
	Reason  protocol.WaitReason
	Message string
}

// failing says whether the task makes its run stuck.
func (t *Task) failing() bool {
	return t != nil && (t.State == Quarantined || t.failures() >= StuckFailures)
}

// noteStuck keeps the time at which the task made its run stuck.
func (t *Task) noteStuck(now history.Time) {
	switch {
	case t == nil:
	case !t.failing():
		t.StuckAt = history.Time{}
	case t.StuckAt.IsZero():
		t.StuckAt = now
	}
}

// Failing returns the state of a run that is stuck by its own workflow task; nil for any other run.
func (h *Head) Failing() *Stuck {
	t := h.Task
	if !h.Status.Open() || !t.failing() {
		return nil
	}
	w := protocol.Wait{Kind: protocol.WaitForTask, Reason: protocol.WaitTaskFailed, Failures: t.failures()}
	if t.State == Quarantined {
		w.Kind, w.Reason = protocol.WaitForRepair, protocol.WaitQuarantined
	}
	w.Name, w.Queue, w.Detail = h.Type, h.Queue, t.Problem
	// The rows of earlier builds have no StuckAt: the last progress is the nearest time that is known.
	return &Stuck{orTime(t.StuckAt, orTime(h.ProgressAt, h.StartedAt)), w.Reason, w.Say(time.UTC)}
}

// Stuck returns the state of a run that is stuck by its own workflow task or for want of a worker; nil for any other.
func (h *Head) Stuck() *Stuck {
	if s := h.Failing(); s != nil || !h.Status.Open() {
		return s
	}
	return h.Unserved
}

// leasable says whether some live worker may lease the task of this wait, so that the task only waits for its turn.
func leasable(w protocol.Wait) bool {
	return w.Reason == protocol.WaitWorkerBusy || w.Reason == protocol.WaitWorkerFull
}

// UnservedLane is why no live worker may lease the ready tasks of a lane; nil if one may. inSession is true for a lane
// of activities in sessions: those that no worker holds need one with room for a session.
func (a *Surroundings) UnservedLane(queue string, want Wanted, inSession bool) *protocol.Wait {
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
