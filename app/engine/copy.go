package engine

import (
	"strings"

	"github.com/sojourn-run/sojourn/shared/history"
)

// copyEvent returns an event of the run from for the history of the run to. The IDs of activities, timers and waits
// name the new run, because an event that ends one of them names the new run, and replayers compare the two. The IDs of
// sessions, children and attempts stay: they name what exists.
func copyEvent(data history.Data, from, to string) history.Data {
	own := func(id string) string {
		if rest, ok := strings.CutPrefix(id, from+"-"); ok {
			return to + "-" + rest
		}
		return id
	}
	switch d := data.(type) {
	case *history.ActivityScheduled:
		c := *d
		c.ExecutionID = own(d.ExecutionID)
		return &c
	case *history.ActivityRetryScheduled:
		c := *d
		c.ExecutionID = own(d.ExecutionID)
		return &c
	case *history.ActivityCompleted:
		c := *d
		c.ExecutionID = own(d.ExecutionID)
		if c.ReusedFrom == "" {
			c.ReusedFrom, c.ReusedExecution = from, d.ExecutionID
		}
		return &c
	case *history.ActivityFailed:
		c := *d
		c.ExecutionID = own(d.ExecutionID)
		return &c
	case *history.ActivityTimedOut:
		c := *d
		c.ExecutionID = own(d.ExecutionID)
		return &c
	case *history.ActivityCancelled:
		c := *d
		c.ExecutionID = own(d.ExecutionID)
		return &c
	case *history.TimerScheduled:
		c := *d
		c.TimerID, c.ConditionWaitID, c.SignalWaitID = own(d.TimerID), own(d.ConditionWaitID), own(d.SignalWaitID)
		c.Occurrence = own(d.Occurrence)
		return &c
	case *history.TimerFired:
		c := *d
		c.TimerID = own(d.TimerID)
		return &c
	case *history.TimerCancelled:
		c := *d
		c.TimerID = own(d.TimerID)
		return &c
	case *history.SignalWaitOpened:
		c := *d
		c.SignalWaitID = own(d.SignalWaitID)
		return &c
	case *history.SignalApplied:
		c := *d
		c.SignalWaitID = own(d.SignalWaitID)
		return &c
	case *history.ConditionWaitOpened:
		c := *d
		c.ConditionWaitID, c.Occurrence = own(d.ConditionWaitID), own(d.Occurrence)
		return &c
	case *history.ConditionWaitSatisfied:
		c := *d
		c.ConditionWaitID, c.Occurrence = own(d.ConditionWaitID), own(d.Occurrence)
		return &c
	case *history.ConditionWaitTimedOut:
		c := *d
		c.ConditionWaitID, c.Occurrence = own(d.ConditionWaitID), own(d.Occurrence)
		return &c
	case *history.SelectionResolved:
		c := *d
		c.Identity = own(d.Identity)
		return &c
	case *history.SelectionOperationCancelled:
		c := *d
		c.Identity = own(d.Identity)
		return &c
	}
	return data
}
