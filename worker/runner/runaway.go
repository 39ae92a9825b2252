package runner

import (
	"sync"

	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow code that loops, or blocks on something that is not package workflow's, never gives its goroutine back.
// The task fails and comes again, perhaps to this very worker; with each try one more core would be gone.

// runaways are the runs whose code did not come to rest and still runs here: Go cannot end a goroutine. Such a run gets
// no attempt next to the one that loops, or each would take a core for itself.
type runaways struct {
	mu   sync.Mutex // guards what follows
	runs map[string]runaway
}

type runaway struct {
	machine *workflow.Machine
	err     error // as its task was failed
}

// note keeps a machine whose code still runs.
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

// of is the reason why the run gets no attempt: its code still runs here. It is nil otherwise.
func (r *runaways) of(run string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.runs[run]
	// It came to rest after all, so nothing speaks against another try.
	if ok && !one.machine.Runaway() {
		delete(r.runs, run)
		return nil
	}
	return one.err
}

// some is a run whose code still runs, and how many there are.
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
