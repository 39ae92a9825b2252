package runner

import (
	"context"
	"errors"
	"sync"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker polls only for tasks that it can run immediately: a task that waited for a slot would be leased to this
// worker, and no other worker could run it.

// errClosed reports that no more slots are available because the runner stops.
var errClosed = errors.New("runner is stopping")

type slotCounts map[protocol.TaskKind]int

func (s slotCounts) total() int {
	n := 0
	for _, more := range s {
		n += more
	}
	return n
}

// slots counts the free slots for tasks. A poll reserves slots and returns those for which it received no task, so that
// concurrent polls never return more tasks than there are slots.
type slots struct {
	pollers slotCounts // loops per kind

	mu      sync.Mutex // guards what follows
	free    slotCounts
	size    slotCounts
	polling slotCounts    // open polls of the loops, by task kind
	changed chan struct{} // closed and replaced when a slot becomes free
	stop    chan struct{} // closed when no slots are available any more
	closed  bool
}

func newSlots(size slotCounts, pollers slotCounts) *slots {
	s := &slots{
		pollers: pollers, size: size, free: slotCounts{}, polling: slotCounts{}, changed: make(chan struct{}),
		stop: make(chan struct{}),
	}
	for k, n := range size {
		s.free[k] = n
	}
	return s
}

// acquire waits until slots of these kinds are free and reserves a fair share of them for one poll.
func (s *slots) acquire(ctx context.Context, kinds []protocol.TaskKind) (slotCounts, error) {
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return nil, errClosed
		}
		got := slotCounts{}
		for _, k := range kinds {
			// this loop and the loops without an open poll share the free slots
			others := max(1, s.pollers[k]-s.polling[k])
			if n := (max(0, s.free[k]) + others - 1) / others; n > 0 {
				got[k] = n
			}
		}
		if len(got) > 0 {
			for _, k := range kinds {
				s.free[k] -= got[k]
				s.polling[k]++
			}
			s.mu.Unlock()
			return got, nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-changed:
		case <-s.stop:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// anyFree reports whether a slot for tasks is free. The caller must hold mu.
func (s *slots) anyFree() bool {
	return s.free[protocol.KindWorkflow] > 0 || s.free[protocol.KindActivity] > 0
}

// tryAcquire reserves at most n free slots of each kind for a poll that is sent with outcomes; nil: no slot is free.
func (s *slots) tryAcquire(n int) slotCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.anyFree() {
		return nil
	}
	got := slotCounts{}
	for _, k := range []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity} {
		got[k] = min(max(0, s.free[k]), n)
		s.free[k] -= got[k]
	}
	return got
}

// endPoll ends a poll for these kinds and releases the slots for which it received no task. It first decrements the
// number of open polls, so that a loop that is woken by the released slots does not count this poll.
func (s *slots) endPoll(kinds []protocol.TaskKind, unused slotCounts) {
	s.mu.Lock()
	for _, k := range kinds {
		s.polling[k]--
	}
	s.mu.Unlock()
	s.returnSlots(unused)
}

// returnSlots releases slots and wakes the loops that wait for one.
func (s *slots) returnSlots(unused slotCounts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, n := range unused {
		s.free[k] += n
	}
	if s.anyFree() || s.free[protocol.KindQuery] > 0 || s.free[protocol.KindValidation] > 0 {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

func (s *slots) release(k protocol.TaskKind, n int) { s.returnSlots(slotCounts{k: n}) }

// resize changes the number of slots of a kind. Running tasks above a smaller number finish.
func (s *slots) resize(k protocol.TaskKind, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The result is negative while more tasks run than there are slots. Then no task starts until enough tasks have
	// ended.
	s.free[k] += n - s.size[k]
	s.size[k] = n
	close(s.changed)
	s.changed = make(chan struct{})
}

// close ends the allocation of slots: acquire returns errClosed.
func (s *slots) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed = true
		close(s.stop)
	}
}

// busy returns the numbers of used slots, including slots that are reserved for polls in progress.
func (s *slots) busy() (workflows, activities int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.size[protocol.KindWorkflow] - s.free[protocol.KindWorkflow],
		s.size[protocol.KindActivity] - s.free[protocol.KindActivity]
}

// borrow takes slots that are not free yet. The next slots that become free repay them.
func (s *slots) borrow(k protocol.TaskKind, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free[k] -= n
}
