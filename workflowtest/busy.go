package workflowtest

import (
	"fmt"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
)

// Virtual time does not advance while code runs, so the test's clock cannot show that workflow code loops. A goroutine
// outside the bubble detects loops in real time.

// busyLimit is the default of SetBusyLimit.
const busyLimit = 30 * time.Second

// checkInterval is how often the running workflow code is checked.
const checkInterval = 250 * time.Millisecond

// watch tracks the workflow code that is running. It is nil for tests in real time, where the worker detects loops.
type watch struct {
	mu        sync.Mutex // guards the fields below
	turns     map[*branchRun]struct{}
	limit     time.Duration // 0: no limit
	abandoned bool          // the test failed because its code loops, and the loop still runs
}

// branchRun is one execution of workflow code, until the code blocks.
type branchRun struct {
	run   replay.Run
	stack func() string
	seen  time.Duration // running time, counted in checks: no check happens while a debugger stops the process
}

func newWatch() *watch { return &watch{turns: map[*branchRun]struct{}{}, limit: busyLimit} }

// registerRun registers workflow code that starts to run. The caller calls done when the code blocks or ends.
func (w *watch) registerRun(run replay.Run, stack func() string) (done func()) {
	if w == nil {
		return func() {}
	}
	one := &branchRun{run: run, stack: stack}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turns[one] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.turns, one)
	}
}

// isAbandoned reports whether the test failed because its code loops.
func (w *watch) isAbandoned() bool {
	if w == nil {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.abandoned
}

// checkLoops checks the running code from outside the bubble until stop is called. It sends one report if code loops.
func (w *watch) checkLoops() (report <-chan string, stop func()) {
	found, ended := make(chan string, 1), make(chan struct{})
	go func() {
		tick := time.NewTicker(checkInterval)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
			}
			if one := w.overdue(); one != nil {
				found <- fmt.Sprintf(
					"workflow %s (id %s, run %s) has run for %s of real time without a call into package workflow: it loops\n%s",
					one.run.WorkflowType, one.run.WorkflowID, one.run.RunID, one.seen, one.stack(),
				)
				return
			}
		}
	}()
	return found, func() { close(ended) }
}

// overdue returns code that has run for longer than the limit, and marks the test as abandoned; nil if no code has.
func (w *watch) overdue() *branchRun {
	w.mu.Lock()
	defer w.mu.Unlock()
	for one := range w.turns {
		if one.seen += checkInterval; w.limit > 0 && one.seen > w.limit {
			w.abandoned = true
			return one
		}
	}
	return nil
}

// SetBusyLimit sets the maximum real time that workflow code may run without a call into package workflow. If code
// exceeds it, the test fails with the stack of that code. The default is 30 seconds; 0 means no limit.
func (e *Env) SetBusyLimit(d time.Duration) {
	if e.watch == nil {
		return
	}
	e.watch.mu.Lock()
	defer e.watch.mu.Unlock()
	e.watch.limit = d
}
