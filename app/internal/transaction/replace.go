package transaction

import (
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// Replace terminates the open run of a workflow ID, which a new start by identity replaces, and records the termination
// in the audit log.
func Replace(rows store.Rows, run *engine.Run, identity string, now time.Time) (store.Writes, error) {
	end, audit := replacement(run, identity, now)
	w, _, err := Decide(rows, run, end, now)
	if err != nil {
		return store.Writes{}, err
	}
	w.Audit = append(w.Audit, audit)
	return w, nil
}

// replacement returns the termination of a run that a new start by identity replaces, with its audit entry.
func replacement(run *engine.Run, identity string, now time.Time) (engine.EndRun, store.Audit) {
	return engine.EndRun{Terminate: true, Reason: engine.ReasonReplaced, Identity: identity}, store.Audit{
		At: history.At(now), Identity: identity, Action: "workflow.terminate", Namespace: run.Namespace,
		Target: run.WorkflowID, Detail: run.ID + ": " + engine.ReasonReplaced,
	}
}
