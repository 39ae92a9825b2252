package broker_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A caller that waits for a result gets the outcome of the last run of the chain in one request. If its wait is too
// short, it gets the open run.
func TestAResultIsTheOutcomeOfTheLastRun(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		first := a.start("one")
		open, err := a.Result(t.Context(), protocol.Target{WorkflowID: "one"}, time.Millisecond, false)
		if err != nil || open.Terminal || open.RunID != first.RunID {
			t.Fatalf("an open run: %+v, %v", open, err)
		}
		ended := make(chan protocol.RunView)
		for _, in := range []protocol.Target{{WorkflowID: "one"}, {WorkflowID: "one", RunID: first.RunID}} {
			go func() {
				v, err := a.Result(t.Context(), in, time.Minute, false)
				if err != nil {
					t.Error(err)
				}
				ended <- v
			}()
		}
		for _, c := range []protocol.Command{{Type: protocol.ContinueAsNew}, done()} {
			if got := a.decide(a.poll("w", protocol.KindWorkflow, 20), c); got.Err != nil {
				t.Fatal(got.Err)
			}
		}
		for range 2 {
			if v := <-ended; !v.Terminal || v.Status != "completed" || v.RunID == first.RunID || v.RunNumber != 2 {
				t.Errorf("the result: %+v", v)
			}
		}
		second, err := a.Result(t.Context(), protocol.Target{WorkflowID: "one", RunID: first.RunID}, time.Minute, false)
		if err != nil || second.RunNumber != 2 {
			t.Errorf("of a run that continued long ago: %+v, %v", second, err)
		}
		_, err = a.Result(t.Context(), protocol.Target{WorkflowID: "none"}, time.Minute, false)
		if protocol.ReasonOf(err) != protocol.ReasonInstanceNotFound {
			t.Errorf("of none: %v", err)
		}
	})
}
