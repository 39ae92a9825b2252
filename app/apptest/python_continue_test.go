package apptest_test

import (
	"encoding/json"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// deposit is the result of a chain of runs.
type deposit struct {
	Balance  int   `json:"balance"`
	Runs     int   `json:"runs"`
	Deposits []int `json:"deposits"`
}

// lastOf waits for the end of a chain of runs and returns the result of the last one.
func lastOf(t *testing.T, a *apptest.App, workflowID string) (d deposit) {
	t.Helper()
	until(t, "workflow "+workflowID+" ends", func() bool {
		v, err := a.View().Describe(t.Context(), protocol.Target{WorkflowID: workflowID})
		return err == nil && v.Terminal && v.Status == "completed" && json.Unmarshal(v.Output, &d) == nil && d.Runs > 0
	})
	return d
}

// A condition that a signal fulfilled before the first workflow task adds no event. The run continues as new in its
// first task; the next run must not receive the signal again.
func TestASignalFromBeforeTheFirstWorkerIsHandledOnce(t *testing.T) {
	t.Parallel()
	python(t)
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		r := run(t, a, "account", 15)
		c.want(202, "POST", "/api/workflows/"+r.WorkflowID+"/signal/deposit", `{"input":[10]}`)
		w := work(t, a, "py-1", "50")
		until(t, "the next run waits", func() bool {
			v, err := a.View().Describe(t.Context(), protocol.Target{WorkflowID: r.WorkflowID})
			return err == nil && v.RunID != r.RunID && v.Status == "waiting"
		})
		c.want(202, "POST", "/api/workflows/"+r.WorkflowID+"/signal/deposit", `{"input":[5]}`)
		if d := lastOf(t, a, r.WorkflowID); d.Balance != 15 || d.Runs != 2 {
			t.Errorf("10 and 5 were paid in: %+v", d)
		}
		w.stop()
	})
}

// The code resumes at the end of its step and continues as new in the same task. It has handled a signal recorded
// before that end. The next run receives a signal recorded after it.
func TestASignalBehindTheLastStepGoesWithTheRun(t *testing.T) {
	t.Parallel()
	python(t)
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		c := caller{t, a, ""}
		h := register(c, "hand", "")
		w := work(t, a, "py-1", "50")
		r := run(t, a, "stepwise", handQueue)
		held := h.poll("activity")
		w.stop()
		h.want(200, "POST", stepPath(held, "complete"), h.stepBody(held, ""))
		c.want(202, "POST", "/api/workflows/"+r.WorkflowID+"/signal/deposit", `{"input":[10]}`)
		w = work(t, a, "py-1", "50")
		held = h.poll("activity")
		c.want(202, "POST", "/api/workflows/"+r.WorkflowID+"/signal/deposit", `{"input":[5]}`)
		h.want(200, "POST", stepPath(held, "complete"), h.stepBody(held, ""))
		if d := lastOf(t, a, r.WorkflowID); d.Runs != 2 || len(d.Deposits) != 2 || d.Deposits[0] != 10 || d.Deposits[1] != 5 {
			t.Errorf("10 and 5 were paid in: %+v", d)
		}
		w.stop()
	})
}

// Signal handler, condition, update and continue-as-new in one workflow: each payment is in the balance exactly once.
func TestSignalsMeetContinueAsNewInPython(t *testing.T) {
	t.Parallel()
	python(t)
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		w := work(t, a, "py-1", "50")
		cases(t, a, "a_deposit_is_made_once", "deposits_of_every_kind_are_made_once")
		w.stop()
	})
}
