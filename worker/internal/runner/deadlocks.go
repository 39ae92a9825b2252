package runner

import (
	"sync"

	"github.com/sojourn-run/sojourn/internal/replay"
)

// deadlocks tracks runs whose workflow code is deadlocked: the code loops, or blocks outside package workflow, and
// still runs in this process, since Go cannot stop a goroutine. The app retries the failed workflow task, perhaps on
// this worker. The worker starts no further attempt of such a run, because each attempt could occupy one more core.
type deadlocks struct {
	mu   sync.Mutex // guards the field below
	runs map[string]deadlock
}

type deadlock struct {
	machine replay.Machine
	err     error // error with which the workflow task failed
}

// record records a replay machine whose code is deadlocked.
func (r *deadlocks) record(run string, m replay.Machine, err error) {
	if !m.Deadlocked() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.runs == nil {
		r.runs = map[string]deadlock{}
	}
	r.runs[run] = deadlock{m, err}
}

// errorOf returns the error of a run's deadlocked attempt while its code still runs in this process, otherwise nil.
func (r *deadlocks) errorOf(run string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	one, ok := r.runs[run]
	// The code has ended or blocks in package workflow, so the run may be tried again.
	if ok && !one.machine.Deadlocked() {
		delete(r.runs, run)
		return nil
	}
	return one.err
}

// firstOf returns one run whose code is deadlocked, and the number of these runs.
func (r *deadlocks) firstOf() (run string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, one := range r.runs {
		if !one.machine.Deadlocked() {
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
