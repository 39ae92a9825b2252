package workflow

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// pending counts, by kind, the open activities, timers, children and awakeables in the history. The app refuses a
// completion that would open more than protocol.MaxPending of a kind, but code may start more: the machine delays the
// excess commands, in order, until others end. The count depends only on history, not on what the code still waits for,
// so that a cached machine and a new machine delay the same commands.
type pending [branchStep]int

// takeEvent updates the counts with one event.
func (p *pending) takeEvent(d history.Data) {
	switch d := d.(type) {
	case *history.ActivityScheduled:
		p[activityStep]++
	case *history.ActivityCompleted, *history.ActivityFailed, *history.ActivityTimedOut, *history.ActivityCancelled:
		p[activityStep]--
	case *history.TimerScheduled:
		if d.Kind == "" {
			p[timerStep]++
		}
	case *history.TimerFired:
		if d.Kind == "" {
			p[timerStep]--
		}
	case *history.TimerCancelled:
		if d.Kind == "" {
			p[timerStep]--
		}
	case *history.ChildWorkflowScheduled, *history.AttachedToChild:
		p[childStep]++
	case *history.ChildRunCompleted, *history.ChildRunFailed, *history.ChildRunCancelled, *history.ChildRunTerminated,
		*history.AttachedChildEnded:
		p[childStep]--
	case *history.AwakeableOpened:
		p[awakeableStep]++
	case *history.AwakeableCompleted, *history.AwakeableFailed, *history.AwakeableTimedOut, *history.AwakeableClosed:
		p[awakeableStep]--
	}
}

// opens returns the kind of the step that a command opens; false if it opens none.
func opens(t protocol.CommandType) (kind, bool) {
	switch t {
	case protocol.ScheduleActivity:
		return activityStep, true
	case protocol.StartTimer:
		return timerStep, true
	case protocol.StartChildWorkflow, protocol.AttachChildWorkflow:
		return childStep, true
	case protocol.OpenAwakeable:
		return awakeableStep, true
	}
	return 0, false
}

// withinPendingLimit returns the leading commands with which the run stays within protocol.MaxPending. If nothing is
// open that could wake the run, delayed commands would never be sent; in this case it returns all commands, and the app
// refuses them with a reason.
func (m *machine) withinPendingLimit(open []issued) []issued {
	after := m.pending
	for i, p := range open {
		k, ok := opens(p.command.Type)
		if !ok {
			continue
		}
		if after[k]++; after[k] <= protocol.MaxPending {
			continue
		}
		for seq := range m.steps {
			if seq < p.seq {
				return open[:i]
			}
		}
		return open
	}
	return open
}
