package broker_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker that keeps a run in memory is not shown again what it has; one that does not is shown everything.
func TestWhoKeepsARunIsShownWhatIsNew(t *testing.T) {
	for _, kept := range []bool{true, false} {
		a := newApp(t)
		a.register("w")
		a.start("one")
		first := a.poll("w", protocol.KindWorkflow, 5).Workflow
		item := protocol.CompleteItem{
			Kind: protocol.KindWorkflow, TaskID: first.TaskID, Owner: "w", Attempt: first.Attempt, Commands: []protocol.Command{greet()},
		}
		if kept {
			item.Kept = first.LastSequence
		}
		a.complete(item)
		a.result(a.poll("w", protocol.KindActivity, 5), "hello Ada")
		next := a.poll("w", protocol.KindWorkflow, 5).Workflow
		events, from := 3, int64(1)
		if kept {
			events, from = 2, 2
		}
		if len(next.Events) != events || next.Events[0].Seq != from || next.Arguments.IsZero() != kept {
			t.Errorf("kept %v: got %d events and arguments %v", kept, len(next.Events), !next.Arguments.IsZero())
		}
	}
}
