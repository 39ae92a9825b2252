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

// coroutine is one branch of the workflow's code: a goroutine that runs only while the machine has resumed it.
type coroutine struct {
	m      *machine
	resume chan struct{} // the machine sends to resume the branch; capacity 1
	yield  chan struct{} // the branch sends when it blocks or ends; capacity 1, so that the send never blocks
	queued bool
	done   bool
	wait   *waiter // what the branch waits for; nil: nothing

	goroutine uintptr // address of the goroutine that runs the branch; set before the branch first runs

	onlyEvaluated bool        // the branch only evaluated its condition since it was resumed
	ended         atomic.Bool // the goroutine has ended; also read while no branch runs
}

// spawn starts a branch, which runs after the branches that are queued now.
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
			_ = recover() // recover from a panic in a deferred function of code that is being abandoned
		}
		co.done = true
		co.ended.Store(true)
		select {
		case co.yield <- struct{}{}:
		default: // the machine no longer waits for a branch that ran too long
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

// ready queues a branch behind the branches that are queued now.
func (m *machine) ready(co *coroutine) {
	if !co.queued && !co.done {
		co.queued = true
		m.runnable = append(m.runnable, co)
	}
}

// park returns control to the machine, and returns when the machine resumes the branch.
func (co *coroutine) park() {
	co.yield <- struct{}{}
	<-co.resume
	if co.m.closing.Load() {
		runtime.Goexit()
	}
}

// stop stops the machine with an error. It never returns, because no branch runs again.
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

// runBranch runs a branch, including the local steps that it requests, until it waits or ends. It returns false if the
// branch did neither in time, or if a local step has no outcome.
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

// resumeBranch runs a branch until it waits, ends, or requests a local step or omitted signals. It returns false if the
// branch did none of these in time.
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

// abandonBranch gives up a branch that blocks outside the machine. Go cannot end its goroutine; the goroutine ends at
// its next call of this package.
func (m *machine) abandonBranch(co *coroutine) {
	m.fault = &DeadlockError{After: m.patience, Stack: stackOf(co)}
	m.checkForeignCall() // the branch may be waiting for a foreign goroutine whose call was refused
	m.deadlocked = co
	m.closing.Store(true)
}

// Deadlocked reports that a branch ran too long without blocking in this package, and still runs: it loops, or blocks
// outside the machine. It cannot be stopped before its next call of this package.
func (m *machine) Deadlocked() bool { return m.deadlocked != nil && !m.deadlocked.ended.Load() }

// Close ends the machine and all branches of its code. Deferred functions of the code run, but cannot wait. Close must
// be called for each machine, since its branches are goroutines. Further calls have no effect.
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
		case <-watch.C: // a deferred function blocks: abandon its goroutine
			watch.Reset(m.patience)
		}
	}
}

var errClosed = errors.New("the workflow machine is closed")

// stackOf returns the stack of a branch, for error messages. It finds the branch among all goroutines by the address of
// its coroutine, and returns "" if it does not find it.
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
