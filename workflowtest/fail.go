package workflowtest

import (
	"fmt"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// taskFailed fails the test because a workflow task failed, and ends all calls that wait for a result.
func (e *Env) taskFailed(t *protocol.WorkflowTask, f *protocol.Failure) {
	if e.ctx.Err() != nil || e.watch.isAbandoned() {
		return // report only the first failure: later ones are retries or consequences
	}
	stack := ""
	if f.StackTrace != "" {
		stack = "\n" + strings.TrimSpace(f.StackTrace)
	}
	e.t.Errorf(
		"workflow %s (id %s, run %s) fails: %s: %s%s%s", t.WorkflowType, t.WorkflowID, t.RunID, f.Type, f.Message, e.waits(),
		stack,
	)
	e.fail()
}

// check ends the calling goroutine if the test has failed.
func (e *Env) check() {
	e.t.Helper()
	if e.watch.isAbandoned() {
		select {} // the test has already failed and ended: calls on its t would panic
	}
	if e.ctx.Err() != nil {
		e.t.FailNow()
	}
}

// stillness stores since when no open run has made progress.
type stillness struct {
	mark  string
	since time.Time
}

// failIfIdle fails the test if no open run has made progress for e.patience and none can make progress without a
// signal, update or other call of the test. what names the result that the test waits for.
func (e *Env) failIfIdle(s *stillness, what string) {
	e.t.Helper()
	if e.late.Load() {
		e.t.Fatalf("the test timed out (go test -timeout) while it waited for %s%s", what, e.waits())
	}
	mark, still := e.still()
	// check twice, since the last run may be closing during the first check
	if !still || mark != s.mark || s.since.IsZero() {
		s.mark, s.since = mark, time.Now()
		return
	}
	e.mu.Lock()
	patience := e.patience
	e.mu.Unlock()
	if time.Since(s.since) >= patience {
		e.t.Fatalf(
			"the test waits for %s; deadlock: nothing left can wake these workflows%s", what, e.waits(),
		)
	}
}

// openRuns returns the open runs.
func (e *Env) openRuns() (views []protocol.RunView) {
	for _, v := range e.runs(protocol.ListRequest{Status: "running"}) {
		if v, err := e.server.View().Describe(e.t.Context(), protocol.Target{RunID: v.RunID}); err == nil && !v.Terminal {
			views = append(views, v)
		}
	}
	return views
}

// runs returns the runs of a list request. It returns an incomplete list on an error, which occurs only if the test has
// failed or ended.
func (e *Env) runs(in protocol.ListRequest) (views []protocol.RunView) {
	for in.PageSize = 200; ; {
		page, err := e.server.View().List(e.t.Context(), in)
		if err != nil {
			return views
		}
		views = append(views, page.Workflows...)
		if page.NextPageToken == nil {
			return views
		}
		in.PageToken = *page.NextPageToken
	}
}

// still reports whether no open run can continue without a call of the test. mark identifies the progress of the open
// runs.
func (e *Env) still() (mark string, still bool) {
	for _, v := range e.openRuns() {
		if moves(v) {
			return "", false
		}
		mark += fmt.Sprintf("%s %d ", v.RunID, v.HistoryLength)
	}
	return mark, true
}

// moves reports whether a timer, a timeout or the worker can make a run continue.
func moves(v protocol.RunView) bool {
	p := v.Pending
	if p == nil || len(p.Timers) > 0 || !v.ExecutionDeadline.IsZero() || !v.RunDeadline.IsZero() {
		return true
	}
	if p.Task != nil && !forEver(p.Task.Wait) {
		return true
	}
	for _, a := range p.Activities {
		if !forEver(a.Wait) {
			return true
		}
	}
	return false
}

// forEver reports whether a wait ends only after an operator's action, which never happens in a test.
func forEver(w *protocol.Wait) bool {
	return w != nil && w.Reason.Rule().Patience == protocol.PatienceNone
}

// waits returns the reason why each open run waits, one per line.
func (e *Env) waits() string {
	var b strings.Builder
	for _, v := range e.openRuns() {
		why := "nothing"
		if v.Wait != nil {
			why = v.Wait.Message
		}
		fmt.Fprintf(&b, "\n  open: workflow %s (id %s, run %s): %s", v.WorkflowType, v.WorkflowID, v.RunID, why)
	}
	return b.String()
}
