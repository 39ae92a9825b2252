package workflow

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/internal/stack"
)

// coroutine is one branch of the workflow's code: a goroutine that runs only during its turn.
type coroutine struct {
	m      *machine
	resume chan struct{} // the turn; holds one
	yield  chan struct{} // the turn given back; holds one, so that giving it back never blocks
	queued bool
	done   bool
	wait   *waiter // what it waits for, while it does

	goroutine uintptr // it runs on; written before its first turn

	onlyEvaluated bool        // it only looked at its condition in this turn
	ended         atomic.Bool // its goroutine has ended; also read outside of turns
}

// spawn starts a branch, which runs after the branches that are ready now.
func (m *machine) spawn(fn func()) {
	m.ready(m.branch(fn))
}

// branch creates a coroutine for fn that has not been scheduled yet.
func (m *machine) branch(fn func()) *coroutine {
	co := &coroutine{m: m, resume: make(chan struct{}, 1), yield: make(chan struct{}, 1)}
	m.live = append(m.live, co)
	go co.run(fn)
	return co
}

func (co *coroutine) run(fn func()) {
	co.goroutine = goroutine()
	returned := false
	defer func() {
		if !co.m.closing.Load() {
			if r := recover(); r != nil {
				co.m.fault = panicked(r)
			} else if !returned {
				co.m.fault = &PanicError{
					Value: errors.New("the code ended its goroutine with runtime.Goexit"), Stack: string(debug.Stack()),
				}
			}
		} else {
			_ = recover() // a deferred function of code that is being given up
		}
		co.done = true
		co.ended.Store(true)
		select {
		case co.yield <- struct{}{}:
		default: // the machine no longer waits for a branch that exceeded its turn
		}
	}()
	<-co.resume
	if !co.m.closing.Load() {
		fn()
	}
	returned = true
}

func panicked(r any) error {
	if err, ok := r.(error); ok {
		if fault, ok := errors.AsType[*NonDeterminismError](err); ok {
			return fault
		}
	}
	return &PanicError{Value: r, Stack: stack.OfPanic()}
}

// ready queues the branch behind the branches that are ready now.
func (m *machine) ready(co *coroutine) {
	if !co.queued && !co.done {
		co.queued = true
		m.runnable = append(m.runnable, co)
	}
}

// park ends the turn and returns at the start of the next one.
func (co *coroutine) park() {
	co.yield <- struct{}{}
	<-co.resume
	if co.m.closing.Load() {
		runtime.Goexit()
	}
}

// stop stops the machine with a fault. It never returns, because no branch runs again.
func (co *coroutine) stop(fault error) {
	co.m.fault = fault
	co.halt()
}

// halt blocks the branch and never returns.
func (co *coroutine) halt() {
	for {
		co.park()
	}
}

// runBranches runs the queued branches, one at a time, until none can continue.
func (m *machine) runBranches() {
	if len(m.runnable)+len(m.conditions) == 0 {
		return
	}
	m.watch.Reset(m.patience)
	for i := 0; (i < len(m.runnable) || m.wakeConditions()) && m.fault == nil && !m.finished; i++ {
		if !m.runBranch(m.runnable[i]) {
			return
		}
	}
	for i, co := range m.runnable {
		co.queued, m.runnable[i] = false, nil
	}
	m.runnable = m.runnable[:0]
	if m.endedCount > len(m.live)/2 {
		running := m.live[:0]
		for _, co := range m.live {
			if !co.done {
				running = append(running, co)
			}
		}
		clear(m.live[len(running):])
		m.live, m.endedCount = running, 0
	}
}

// runBranch runs a branch until it waits or ends, with the local steps that it asks for; false: it did neither in time,
// or a step has no outcome.
func (m *machine) runBranch(co *coroutine) bool {
	co.queued = false
	for {
		if !m.resumeBranch(co) {
			return false
		}
		switch {
		case m.fetching:
			m.fetchSignals()
		case m.localCall != nil:
			m.runLocalCall()
		default:
			return true
		}
		if m.fault != nil {
			return false
		}
	}
}

// resumeBranch runs a branch until it waits, ends, or asks for a local step or for signals; false: it did none of these
// in time.
func (m *machine) resumeBranch(co *coroutine) bool {
	m.current = co
	if m.onBranchRun != nil {
		run := replay.Run{WorkflowType: m.info.WorkflowType, WorkflowID: m.info.WorkflowID, RunID: m.info.RunID}
		defer m.onBranchRun(run, func() string { return stackOf(co) })()
	}
	co.resume <- struct{}{}
	select {
	case <-co.yield:
	case <-m.watch.C:
		m.abandonBranch(co)
		return false
	}
	m.current = nil
	m.checkForeignCall()
	if co.done {
		m.endedCount++
	}
	m.changed = m.changed || !co.onlyEvaluated
	co.onlyEvaluated = false
	return true
}

// abandonBranch abandons a branch that blocks outside the machine. Go cannot end its goroutine; it ends at its next
// call of this package.
func (m *machine) abandonBranch(co *coroutine) {
	m.fault = &DeadlockError{After: m.patience, Stack: stackOf(co)}
	m.checkForeignCall() // a branch that waits for a foreign goroutine whose call was refused
	m.deadlocked = co
	m.closing.Store(true)
}

// Deadlocked reports that a branch exceeded its time and still runs: it loops, or blocks outside the machine. It cannot
// be stopped before its next call into this package.
func (m *machine) Deadlocked() bool { return m.deadlocked != nil && !m.deadlocked.ended.Load() }

// Close ends the machine and every branch of its code. Deferred functions of the code run, but cannot wait. Close must
// be called for each machine, since its branches are goroutines. It may be called twice.
func (m *machine) Close() {
	if m.closed {
		return
	}
	m.closed = true
	m.closing.Store(true)
	if m.fault == nil {
		m.fault = errClosed
	}
	if m.deadlocked != nil {
		close(m.deadlocked.resume)
	}
	var watch *time.Timer
	for _, co := range m.live {
		if co == m.deadlocked || co.done {
			continue
		}
		if watch == nil {
			watch = time.NewTimer(m.patience)
			defer watch.Stop()
		}
		co.resume <- struct{}{}
		select {
		case <-co.yield:
		case <-watch.C: // a deferred function blocks: it is left to itself
			watch.Reset(m.patience)
		}
	}
}

var errClosed = errors.New("the workflow machine is closed")

// stackOf finds the stack of a branch among all goroutines, by the address of its coroutine. It is for people, and ""
// when not found.
func stackOf(co *coroutine) string {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	mark := fmt.Sprintf("(*coroutine).run(%p", co)
	for _, one := range bytes.Split(buf, []byte("\n\n")) {
		if bytes.Contains(one, []byte(mark)) {
			return strings.TrimSpace(string(one))
		}
	}
	return ""
}
