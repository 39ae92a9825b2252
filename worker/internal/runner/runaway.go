package runner

import (
	"sync"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// runaways are runs with a deadlocked workflow: its code loops, or blocks outside package workflow, and still runs in
// this process, since Go cannot stop a goroutine. The app retries the failed workflow task, perhaps on this worker. The
// worker starts no further attempt of such a run, because each attempt could occupy one more core.
type runaways struct {
	mu   sync.Mutex // guards what follows
	runs map[string]runaway
}

type runaway struct {
	machine *workflow.Machine
	err     error // as its task was failed
}

// note records the machine if its code is deadlocked.
func (r *runaways) note(run string, m *workflow.Machine, err error) {
	if !m.Runaway() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs == nil {
		r.runs = map[string]runaway{}
	}
	r.runs[run] = runaway{m, err}
}

// of returns the error of the deadlocked attempt while its code still runs in this process, otherwise nil.
func (r *runaways) of(run string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.runs[run]
	// The code has returned or blocked in package workflow, so the run may be tried again.
	if ok && !one.machine.Runaway() {
		delete(r.runs, run)
		return nil
	}
	return one.err
}

// some returns one run whose code is deadlocked, and the number of such runs.
func (r *runaways) some() (run string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, one := range r.runs {
		if !one.machine.Runaway() {
			delete(r.runs, id)
			continue
		}
		if run == "" || id < run {
			run = id
		}
		n++
	}
	return run, n
}
