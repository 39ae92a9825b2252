package workflow

import (
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// pending counts, by kind, what the history so far has opened and not ended. The app refuses a completion that would
// open more than protocol.MaxPending of a kind, and code may start more than that: the machine holds back what does
// not fit, in the order of the code, and sends it as the others end. It is a function of history alone, not of what the
// code still waits for, so that a kept machine and a new one hold back the same.
type pending [branchStep]int

// takeEvent counts one event.
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
	}
}

// opens is the kind of which a command opens one more.
func opens(t protocol.CommandType) (kind, bool) {
	switch t {
	case protocol.ScheduleActivity:
		return activityStep, true
	case protocol.StartTimer:
		return timerStep, true
	case protocol.StartChildWorkflow, protocol.AttachChildWorkflow:
		return childStep, true
	}
	return 0, false
}

// fitting is what of the open commands, from the first on, leaves the run within protocol.MaxPending. Something must
// be left that wakes the run, or what is held back would never leave: without it all of them go, and the app says what
// is wrong.
func (m *Machine) fitting(open []issued) []issued {
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
