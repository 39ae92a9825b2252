package sandbox

import (
	"time"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// An executor of a session runs several calls at once. When it ends, usually one of them has ended it: that call fails
// with the reason, and the others are repeated. If that call is not known, the rule is that of worker processes: the
// only suspect is blamed; otherwise all calls become suspects and are repeated one by one.

// Verdict is the judgement on a call whose executor ended.
type Verdict string

// These are the verdicts. A call without a verdict ran next to the call that ended the executor.
const (
	VerdictSuspect Verdict = "suspect" // this or another call ended it
	VerdictBlamed  Verdict = "blamed"  // this call ended it
)

// ExecutorEnded is the error of a call whose executor ended while it ran. It unwraps to the [*Error].
type ExecutorEnded struct {
	Executor string // SandboxID of the executor
	Calls    int    // number of calls that ran in it
	Verdict  Verdict
	Cause    Cause // why the state of its session is lost
	Err      *Error
}

func (e *ExecutorEnded) Error() string { return e.Err.Error() }

func (e *ExecutorEnded) Unwrap() error { return e.Err }

// loss reports whether a call may have caused the ending. If the pool or the worker requested it, its kind is
// Unavailable or Cancelled.
func (e *ending) loss() bool { return e.kind != Unavailable && e.kind != Cancelled }

// judge returns the error of each call that was in flight when the executor ended.
func (ex *executor) judge(why ending, calls map[string]*call) map[*call]error {
	errs := make(map[*call]error, len(calls))
	blamed, suspects := why.by, 0
	for _, c := range calls {
		if c.suspect {
			suspects++
		}
	}
	for _, c := range calls {
		if blamed == nil && (len(calls) == 1 || suspects == 1 && c.suspect) {
			blamed = c
		}
	}
	for _, c := range calls {
		if !why.loss() {
			errs[c] = why.err()
			continue
		}
		e := &ExecutorEnded{Executor: ex.id, Calls: len(calls), Cause: why.cause, Err: why.err()}
		switch {
		case blamed == nil:
			e.Verdict = VerdictSuspect
		case blamed == c:
			e.Verdict = VerdictBlamed
		}
		errs[c] = e
	}
	return errs
}

// These are the times of the check of an executor with several calls before the deadline of one of them.
const (
	checkFraction = 5               // the check starts a fifth of the call's time before the deadline,
	maxCheckLead  = 2 * time.Second // but at most this long before it
)

// checkAt returns when to check whether the executor still answers, for a call that begins now; zero for never.
func checkAt(deadline time.Time) time.Time {
	if deadline.IsZero() {
		return time.Time{}
	}
	return deadline.Add(-min(maxCheckLead, time.Until(deadline)/checkFraction))
}

// shared reports whether several calls run in the executor.
func (ex *executor) shared() bool {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	return len(ex.calls) > 1
}

// check ends an executor that does not respond to a ping within half of the time until the deadline, if several calls
// run in it. One of the calls blocks the executor, and which one is not known: the deadline of any of them may pass
// first, and the app would fail that attempt. If the executor answers, the call ends at its own deadline. If the
// deadline has passed, for example because the worker was stopped, there is no time for an answer, and the executor is
// not checked.
func (ex *executor) check(c *call, deadline time.Time) {
	left := time.Until(deadline)
	if left <= 0 || !ex.shared() {
		return
	}
	answered := make(chan struct{})
	ex.mu.Lock()
	ex.pongs = append(ex.pongs, answered)
	ex.mu.Unlock()
	ex.sendAsync(func() { _ = ex.send(frame.Frame{Header: frame.Header{T: frame.Ping}}) })
	patience := time.NewTimer(left / 2)
	defer patience.Stop()
	select {
	case <-answered:
	case <-c.done:
	case <-patience.C:
		if ex.shared() {
			ex.kill(ending{
				cause: CauseDeadline, kind: DeadlineExceeded,
				message: "a call blocked the executor until the deadline of one of its calls",
			})
			<-c.done
		}
	}
}

// pong wakes all checks that wait for a response of the executor.
func (ex *executor) pong() {
	ex.mu.Lock()
	defer ex.mu.Unlock()
	for _, answered := range ex.pongs {
		close(answered)
	}
	ex.pongs = nil
}
