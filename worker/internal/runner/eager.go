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

// An eager workflow task is sent with the activity result that causes it, which saves a round trip per step (see
// package engine). Until the app responds, the replay machine of the run is ahead of the stored history. If the app
// rejects the task, this code discards the machine.

// eagerTask is an eager workflow task: the commands that a workflow issues after an activity's result, sent together
// with that result. Until the app accepts them, the run's replay machine is ahead of the stored history. If the app
// rejects them or does not respond, the machine is discarded, since history does not contain its events.
type eagerTask struct {
	r       *Runner
	run     string
	machine replay.Machine
	slot    bool // the slot of the activity stays reserved for the next activity until the app responds
}

// rejections counts how often the app rejected the eager workflow tasks of a run, and how many steps the run makes
// without eager tasks after that. If a count is lost, the worker only sends one more task that is rejected.
type rejections struct {
	mu   sync.Mutex // guards runs
	runs map[string]*eagerBackoff
}

// eagerBackoff is the exponential backoff of a run, counted in steps without eager workflow tasks.
type eagerBackoff struct {
	next      int // steps to skip after the next rejection
	remaining int // steps that are still skipped after the last rejection
}

// maxRejectedRuns is the maximum number of runs in rejections.
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

// skipEager counts a step and reports whether it must not use an eager task.
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

// runEager applies the result of an activity to the run's replay machine and returns the resulting commands as an eager
// workflow task. It does so only if the machine is cached and no other event can cause commands. The code runs on the
// attempt's slot, which stays reserved if a next activity can run on it. The worker's view of the run may be outdated:
// the app checks it, and accepts the activity result in any case.
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
	// Without new events, the replay machine would return all of its issued commands again.
	if behind := nextEvents(k.machine.Seen(), k.tail, a.task.Unseen); len(behind) > 0 {
		commands, err = k.machine.Apply(of, behind)
	}
	// Other events may also cause commands: the replay machine has unsent commands, the worker does not know all
	// events, or other steps are open whose results may be stored before this one. The run then needs a workflow task,
	// which contains the events in order. Ends of sessions that were never started do not prevent an eager task: Apply
	// returns them with its commands.
	if err == nil && (k.machine.Seen() < a.task.LastSequence || !k.machine.Lone(seq)) {
		t.returnMachine() // the machine has applied only stored events, so it stays valid
		return nil
	}
	seen := k.machine.Seen()
	if err == nil {
		commands, err = k.machine.Apply(of, []history.Event{{Seq: seen + 1, At: at, Data: &history.ActivityCompleted{
			Sequence: seq, ExecutionID: a.task.ExecutionID, ActivityType: a.task.ActivityType, Result: item.Result.Blob,
		}}})
	}
	if err != nil || k.machine.AtLocalStep() || slices.ContainsFunc(commands, needsOwnTask) {
		r.deadlocks.record(run, k.machine, err) // the workflow task that follows reports the error
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

// nextEvents returns the events after the last one seen, up to the first gap. The lists may overlap.
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

// applyResponse applies the app's response to a completion with an eager workflow task: whether the app accepted the
// task, and the events and the activity that the task created. nil means that no response arrived: the app may have
// accepted the result, with or without the eager task.
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
		t.slot = false // the next activity uses the slot
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

// reject closes the replay machine, because it has applied events that the app did not accept. The next workflow task
// replays the run. Since replays are expensive, the run uses no eager workflow tasks for some steps.
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
