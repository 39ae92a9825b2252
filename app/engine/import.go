package engine

import (
	"fmt"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An imported history was recorded by another system. It must obey all rules of a history, otherwise listings and
// replays of the run would fail.

// ImportRun creates a closed run from its whole history. Nothing in the run is open, so no step runs again and no
// message is sent. It refuses an open run, since that run's activities may still be running in the exporting system.
func ImportRun(namespace string, events []history.Event) (Decision, error) {
	broken := func(format string, args ...any) (Decision, error) {
		return Decision{}, protocol.Refuse(protocol.ReasonInvalidBundle, format, args...)
	}
	if len(events) == 0 {
		return broken("the bundle has no events")
	}
	first, ok := events[0].Data.(*history.WorkflowStarted)
	if !ok || len(first.RunID) != 26 || first.WorkflowID == "" || first.RunNumber < 1 {
		return broken("event 1 is %s, which does not say what run this is", events[0].Type())
	}
	run := &Run{Head: Head{Namespace: namespace}}
	for i, e := range events {
		switch {
		case e.Seq != int64(i)+1:
			return broken("event %d stands where %d is due", e.Seq, i+1)
		case e.At.IsZero() || i > 0 && e.At.Before(events[i-1].At.Time):
			return broken("event %d is from before the one in front of it", e.Seq)
		case i > 0 && !run.Status.Open():
			return broken("event %d follows the end of the run", e.Seq)
		}
		if _, repeated := e.Data.(*history.WorkflowStarted); repeated && i > 0 {
			return broken("event %d starts the run again", e.Seq)
		}
		run.Evolve(e)
	}
	if run.Status.Open() {
		return Decision{}, protocol.Refuse(
			protocol.ReasonHistoryIncomplete, "run %s had not closed when it was exported", run.ID,
		).With("remediation", fmt.Sprintf("export it again when it has: its history ends at event %d", run.LastSeq))
	}
	for seq := range run.Activities.All() {
		run.Activities.Delete(seq) // the remaining activities are abandoned ones
	}
	return Decision{Next: run, Events: events}, nil
}
