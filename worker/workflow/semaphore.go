package workflow

import "fmt"

// Semaphore limits how many branches of one run do something at the same time. Branches acquire it in the order in
// which they ask for it: a branch that needs many units is not overtaken by branches that need few. It is not recorded
// in history.
type Semaphore struct {
	m         *machine
	size      int64
	free      int64
	acquiring []*acquiring
}

// acquiring is a branch that waits for units of a Semaphore.
type acquiring struct {
	units    int64
	acquired bool
	waiter   *waiter
}

// NewSemaphore returns a semaphore with a number of units. A negative number panics.
func NewSemaphore(ctx Context, units int64) *Semaphore {
	if units < 0 {
		panic(fmt.Sprintf("workflow: NewSemaphore with %d units", units))
	}
	m := ctx.inner().m
	m.currentBranch()
	return &Semaphore{m: m, size: units, free: units}
}

// Acquire waits for a number of units. It returns ErrCancelled if ctx is cancelled first, and ErrInvalidOptions if the
// number is negative or greater than that of the semaphore; it then has acquired none.
func (s *Semaphore) Acquire(ctx Context, units int64) error {
	s.m.currentBranch()
	if units < 0 || units > s.size {
		return fmt.Errorf("%w: a semaphore of %d units cannot grant %d", ErrInvalidOptions, s.size, units)
	}
	if s.TryAcquire(units) {
		return nil
	}
	a := &acquiring{units: units, waiter: &waiter{need: 1}}
	s.acquiring = append(s.acquiring, a)
	err := wait(ctx, a.waiter, func() bool { return a.acquired })
	if a.acquired { // also if ctx was cancelled at the same time
		return nil
	}
	s.acquiring = without(s.acquiring, a)
	s.grant() // a smaller request may have waited behind this one
	return err
}

// TryAcquire acquires a number of units without waiting. It returns false if they are not free or other branches wait.
func (s *Semaphore) TryAcquire(units int64) bool {
	s.m.currentBranch()
	if units < 0 || units > s.free || len(s.acquiring) > 0 {
		return false
	}
	s.free -= units
	return true
}

// Release returns a number of units. It panics if the number is negative or more than are acquired.
func (s *Semaphore) Release(units int64) {
	s.m.currentBranch()
	if units < 0 || units > s.size-s.free {
		panic(fmt.Sprintf("workflow: Release of %d units of a semaphore of which %d are acquired", units, s.size-s.free))
	}
	s.free += units
	s.grant()
}

// grant gives free units to the branches that wait, in their order.
func (s *Semaphore) grant() {
	for len(s.acquiring) > 0 && s.acquiring[0].units <= s.free {
		a := s.acquiring[0]
		s.acquiring = s.acquiring[1:]
		s.free -= a.units
		a.acquired = true
		a.waiter.notify()
	}
}

// Mutex is a mutual exclusion lock between the branches of one run. Branches lock it in the order in which they ask for
// it.
type Mutex struct{ s *Semaphore }

// NewMutex returns an unlocked mutex.
func NewMutex(ctx Context) *Mutex { return &Mutex{NewSemaphore(ctx, 1)} }

// Lock waits for the lock. It returns ErrCancelled if ctx is cancelled first; the caller then does not have the lock.
func (m *Mutex) Lock(ctx Context) error { return m.s.Acquire(ctx, 1) }

// TryLock locks the mutex without waiting. It returns false if it is locked.
func (m *Mutex) TryLock() bool { return m.s.TryAcquire(1) }

// Unlock unlocks the mutex. It panics if the mutex is not locked.
func (m *Mutex) Unlock() { m.s.Release(1) }

// WaitGroup waits for a number of branches of one run to finish.
type WaitGroup struct {
	m       *machine
	count   int
	waiting []*waiter
}

// NewWaitGroup returns a wait group with the count 0.
func NewWaitGroup(ctx Context) *WaitGroup {
	m := ctx.inner().m
	m.currentBranch()
	return &WaitGroup{m: m}
}

// Add adds delta, which may be negative, to the count. When the count is 0, Wait returns. A negative count panics.
func (g *WaitGroup) Add(delta int) {
	g.m.currentBranch()
	if g.count += delta; g.count < 0 {
		panic("workflow: negative count of a WaitGroup")
	}
	if g.count == 0 {
		for _, w := range g.waiting {
			w.notify()
		}
	}
}

// Done subtracts 1 from the count.
func (g *WaitGroup) Done() { g.Add(-1) }

// Go adds 1 to the count and starts a branch. The count decreases when fn returns.
func (g *WaitGroup) Go(ctx Context, fn func(ctx Context)) {
	g.Add(1)
	Go(ctx, func(ctx Context) {
		defer g.Done()
		fn(ctx)
	})
}

// Wait waits until the count is 0. It returns ErrCancelled if ctx is cancelled first.
func (g *WaitGroup) Wait(ctx Context) error {
	g.m.currentBranch()
	if g.count == 0 {
		return nil
	}
	w := &waiter{need: 1}
	g.waiting = append(g.waiting, w)
	err := wait(ctx, w, func() bool { return g.count == 0 })
	g.waiting = without(g.waiting, w)
	return err
}
