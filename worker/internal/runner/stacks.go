package runner

import "sync"

// mostStacks is the maximum number of remembered stacks.
const mostStacks = 1000

// stacks knows of which failures of runs the stack was logged: a task that fails is tried again and again, and fails at
// the same place.
type stacks struct {
	mu          sync.Mutex        // guards what follows
	lastFailure map[string]string // the last failure, by run
}

// first reports whether the last failure of a run was a different one.
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

// drop forgets a run that has ended.
func (s *stacks) drop(run string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lastFailure, run)
}
