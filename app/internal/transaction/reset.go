package transaction

import (
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// Reset returns the writes of a reset of the run: the end of the run, the new run, and the row of the workflow ID.
func Reset(
	rows store.Rows, flow *engine.Workflow, run *engine.Run, r *engine.Reset, identity string, now time.Time,
) (store.Writes, error) {
	was, next, err := r.Decide(run, environment(rows, run), identity, now)
	if err != nil {
		return store.Writes{}, err
	}
	w := store.Writes{Runs: []engine.Decision{was, next}}
	startChildren(rows, next.Spawn, now, &w)
	current := *flow
	current.RunID, current.Runs = next.Next.ID, flow.Runs+1
	w.Workflows = append(w.Workflows, current)
	return w, nil
}
