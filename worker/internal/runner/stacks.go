package runner

import "sync"

// mostStacks is the maximum number of runs whose last failure is remembered.
const mostStacks = 1000

// stacks remembers which failures of runs were logged with their stack. A failed task is retried and usually fails at
// the same place; its stack is then not logged again.
type stacks struct {
	mu          sync.Mutex        // guards the field below
	lastFailure map[string]string // last failure by run
}

// first records the last failure of a run. It returns false if the previous failure of the run was the same.
func (s *stacks) first(run, failure string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lastFailure[run] == failure {
		return false
	}
	if s.lastFailure == nil || len(s.lastFailure) >= mostStacks {
		s.lastFailure = map[string]string{}
	}
	s.lastFailure[run] = failure
	return true
}

// drop removes the entry of a closed run.
func (s *stacks) drop(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lastFailure, run)
}
