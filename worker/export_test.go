package worker

import "github.com/sojourn-run/sojourn/sandbox"

// Sandbox returns the isolation of the worker's executors; false without executors.
func (w *Worker) Sandbox() (sandbox.Report, bool) {
	if w.pool == nil {
		return sandbox.Report{}, false
	}
	return w.pool.Report(), true
}
