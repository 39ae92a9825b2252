package runner

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An eager workflow task is sent with the activity result that causes it, which saves a round trip for each step (see
// package engine). Until the app responds, the replay machine of the run is ahead of the stored history. The code here
// discards the machine if the app rejects the task.

// eagerTask is an eager workflow task: the commands of a workflow after its activity's result, sent with that result.
// Until the app accepts it, the run's replay machine is ahead of the stored history. If the app rejects it or does not
// respond, the machine is discarded, since its events do not exist.
type eagerTask struct {
	r       *Runner
	run     string
	machine replay.Machine
	slot    bool // the slot of the activity is held until the app responds, for the next activity
}

// rejections counts how often the app rejected the eager workflow tasks of runs, and the steps that each run makes
// without eager tasks after that. Losing a count costs one more rejection.
type rejections struct {
	mu   sync.Mutex // guards runs
	runs map[string]*eagerBackoff
}

// eagerBackoff counts the steps of a run without eager workflow tasks.
type eagerBackoff struct {
	next      int // steps to skip after the next rejection
	remaining int // steps that are still skipped after the last rejection
}

// maxRejectedRuns is the maximum number of remembered runs.
const maxRejectedRuns = 10_000

// add records a rejection: the next 1, 2, 4, … steps of the run use no eager task.
func (f *rejections) add(run string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.runs == nil || len(f.runs) >= maxRejectedRuns {
		f.runs = map[string]*eagerBackoff{}
	}
	one := f.runs[run]
	if one == nil {
		one = &eagerBackoff{next: 1}
		f.runs[run] = one
	}
	one.remaining, one.next = one.next, min(2*one.next, 1<<30)
}

// skipEager reports whether the run must not use an eager task in this step, and counts the step.
func (f *rejections) skipEager(run string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.runs[run]
	if one == nil || one.remaining == 0 {
		return false
	}
	one.remaining--
	return true
}

func (f *rejections) forget(run string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.runs, run)
}

// runEager lets the run's replay machine decide the commands after a result, if the machine is cached and no other
// event can cause commands. The code runs on the attempt's slot, which stays reserved if a next activity can run on it.
// The worker's view of the run may be outdated: the app checks it, and accepts the result in any case.
func (r *Runner) runEager(a *attempt, item *protocol.CompleteItem) *eagerTask {
	run, seq := splitTaskID(item.TaskID)
	at := r.leases.storeTime()
	if item.Failure != nil || item.Returned != "" || a.task.LastSequence == 0 || at.IsZero() || r.stopped.Load() ||
		r.rejections.skipEager(run) {
		return nil
	}
	k := r.cache.removeForEager(run)
	if k == nil {
		return nil
	}
	t := &eagerTask{r: r, run: run, machine: k.machine}
	of := &protocol.WorkflowTask{RunID: run}
	var commands []protocol.Command
	var err error
	// If there were no new events, the replay machine would return all of its issued commands again.
	if behind := nextEvents(k.machine.Seen(), k.tail, a.task.Unseen); len(behind) > 0 {
		commands, err = k.machine.Apply(of, behind)
	}
	// Other events may also cause commands: the replay machine has unsent commands, the worker does not know all events,
	// or other steps are open whose results may be stored before this one. The run then needs a workflow task, which
	// contains the events in order. Ends of sessions that were never started are no reason: Apply returns them with the
	// commands of this eager task.
	if err == nil && (k.machine.Seen() < a.task.LastSequence || !k.machine.Lone(seq)) {
		t.returnMachine() // it has seen nothing that did not happen
		return nil
	}
	seen := k.machine.Seen()
	if err == nil {
		commands, err = k.machine.Apply(of, []history.Event{{Seq: seen + 1, At: at, Data: &history.ActivityCompleted{
			Sequence: seq, ExecutionID: a.task.ExecutionID, ActivityType: a.task.ActivityType, Result: item.Result.Blob,
		}}})
	}
	if err != nil || k.machine.AtLocalStep() || slices.ContainsFunc(commands, needsOwnTask) {
		r.deadlocks.record(run, k.machine, err) // the task that follows will say what is wrong
		t.reject()
		return nil
	}
	item.Eager = &protocol.EagerTask{SeenThrough: seen, At: at, Commands: commands}
	if slices.ContainsFunc(commands, func(c protocol.Command) bool { return c.Type == protocol.ScheduleActivity }) {
		item.Eager.Slot, t.slot = true, true
	}
	return t
}

// needsOwnTask reports whether a command needs a separate workflow task.
func needsOwnTask(c protocol.Command) bool {
	switch c.Type {
	case protocol.ContinueAsNew, protocol.ApplyUpdate, protocol.CompleteUpdate, protocol.FailUpdate:
		return true
	}
	return false
}

// splitTaskID splits RUN-SEQ.
func splitTaskID(task string) (run string, seq int64) {
	run, n, _ := strings.Cut(task, "-")
	seq, _ = strconv.ParseInt(n, 10, 64)
	return run, seq
}

// nextEvents are events behind the last one seen, without a gap, of two lists that may overlap.
func nextEvents(seen int64, lists ...[]history.Event) (all []history.Event) {
	for _, list := range lists {
		for i := range list {
			if list[i].Seq == seen+1 {
				all = append(all, list[i])
				seen++
			}
		}
	}
	return all
}

// holdsSlot reports whether the next activity uses the slot of this attempt.
func (t *eagerTask) holdsSlot() bool { return t != nil && t.slot }

// applyResponse applies the response to a completion with an eager workflow task: whether the app accepted the task,
// and the events and the activity that it produced. nil means that no response arrived; the app may have accepted the
// result with or without the eager task.
func (t *eagerTask) applyResponse(a *protocol.CompleteResponse, sent time.Time) {
	if t == nil {
		return
	}
	if a == nil || a.Eager == nil {
		t.reject()
		return
	}
	received := t.r.leases.arrived(sent, a.Eager.StoreTime)
	next := a.Eager.Next
	if next != nil {
		if !t.slot {
			t.r.slots.borrow(protocol.KindActivity, 1)
		}
		t.slot = false // it runs on that
	}
	if t.machine.Finished() {
		t.machine.Close()
		t.r.rejections.forget(t.run)
	} else {
		t.r.cache.add(t.run, t.machine, a.Eager.Events...)
	}
	t.finish()
	if next != nil {
		t.r.spawn(protocol.Task{Kind: protocol.KindActivity, Activity: next}, received)
	}
}

// reject closes the replay machine, because it has applied events that the app did not accept; the next workflow task
// replays the run. As replays are expensive, the run gets no eager workflow tasks for a while.
func (t *eagerTask) reject() {
	t.machine.Close()
	t.r.rejections.add(t.run)
	t.finish()
}

// returnMachine returns the unchanged replay machine to the cache.
func (t *eagerTask) returnMachine() {
	t.r.cache.add(t.run, t.machine)
	t.finish()
}

func (t *eagerTask) finish() {
	t.r.cache.finishEager(t.run)
	if t.slot {
		t.r.slots.release(protocol.KindActivity, 1)
	}
}
