package workflowtest

import "github.com/sojourn-run/sojourn/shared/history"

// Recorded returns the recorded history of the run, for tests of Replay.
func (w *Workflow) Recorded() []history.Event { return w.env.events(w.RunID) }
