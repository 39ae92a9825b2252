package view

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A user who investigates a blocked run needs one page that shows what to do first. A debug view decides and stores
// nothing: it combines other views and lists findings that need action first.

// deadlineNear is the remaining time below which a debug view reports a run's deadline.
const deadlineNear = time.Minute

// Debug returns why a run is in its state, and the findings that an operator needs first.
func (v *View) Debug(ctx context.Context, t protocol.Target) (protocol.DebugView, error) {
	run, err := v.Describe(ctx, t)
	if err != nil {
		return protocol.DebugView{}, err
	}
	now, err := v.store.Now(ctx)
	if err != nil {
		return protocol.DebugView{}, err
	}
	d := protocol.DebugView{
		WorkflowID: run.WorkflowID, RunID: run.RunID, WorkflowType: run.WorkflowType, Status: run.Status,
		StatusBucket: run.StatusBucket, Terminal: run.Terminal,
		TaskQueue: run.TaskQueue, Diagnosis: diagnosis(&run), WaitKind: run.WaitKind, WaitReason: run.WaitReason,
		Wait:     run.Wait,
		Findings: append(findings(&run, now), v.clockFinding(&run, now)...), Pending: run.Pending,
		HistorySize: run.HistoryLength, LastProgress: run.LastProgressAt, RunDeadline: run.RunDeadline,
		ExecDeadline: run.ExecutionDeadline,
		Actions:      run.Actions,
	}
	err = v.store.View(ctx, func(r store.Reader) error {
		e, err := r.LastEvent(ctx, run.RunID)
		if err == nil {
			d.LastEvent = protocol.DebugEvent{Sequence: e.Seq, Type: e.Type(), At: e.At}
			err = addRecentFindings(ctx, r, &run, &d)
		}
		if err != nil {
			return err
		}
		around, err := v.waitContext(ctx, r, run.Namespace, false, now)
		if err == nil {
			d.Queues = debugQueues(&run, around)
		}
		return err
	})
	return d, err
}

// jumpShown is the time for which debug views show a jump of the clock.
const jumpShown = 24 * time.Hour

// ClockJumped records a jump of the store's clock, for overviews and the debug views of open runs.
func (v *View) ClockJumped(j store.ClockJump) { v.jump.Store(&j) }

// clockJump returns the last jump of the store's clock since the start of the app; nil: none.
func (v *View) clockJump() *protocol.ClockJump {
	j := v.jump.Load()
	if j == nil {
		return nil
	}
	way, by := j.Direction()
	out := &protocol.ClockJump{Direction: way, By: by.Seconds(), At: history.At(j.At), Rows: j.Moved}
	if j.Err != nil {
		out.Error = j.Err.Error()
	}
	return out
}

// clockFinding reports a jump of the clock while the run was open. After a jump back the run's start may be ahead of
// the clock.
func (v *View) clockFinding(run *protocol.RunView, now time.Time) []protocol.Finding {
	j := v.jump.Load()
	if j == nil || run.Terminal || now.Sub(j.At).Abs() > jumpShown || j.By > 0 && run.StartedAt.After(j.At) ||
		j.By < 0 && run.StartedAt.After(j.At) && run.StartedAt.Before(now) {
		return nil
	}
	return []protocol.Finding{{
		Severity: "warning", Code: "clock_jumped", Subject: run.RunID, Message: v.clockJump().String(),
	}}
}

// searchedEvents is the number of last events that are searched.
const searchedEvents = 200

// addRecentFindings adds findings from the last events: the last failure of the run's code, unless its open workflow
// task reports it, and received signals for which the run does not wait, if it waits for another signal.
func addRecentFindings(ctx context.Context, r store.Reader, v *protocol.RunView, d *protocol.DebugView) error {
	came, asked := map[string]history.Time{}, map[string]bool{}
	for after := max(0, v.HistoryLength-searchedEvents); after < v.HistoryLength; {
		events, err := r.Events(ctx, v.RunID, after, v.HistoryLength, searchedEvents, transaction.MaxPageSize)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			break
		}
		for _, e := range events {
			after = e.Seq
			s := protocol.DebugStack{At: e.At, Of: v.WorkflowType}
			switch is := e.Data.(type) {
			case *history.ActivityFailed:
				s.Of, s.Trace = is.ActivityType, is.Stack
			case *history.ActivityRetryScheduled:
				s.Of, s.Trace = is.ActivityType, is.Stack
			case *history.WorkflowFailed:
				s.Trace = is.Stack
			case *history.SignalReceived:
				came[is.SignalName] = e.At
			case *history.SignalWaitOpened:
				asked[is.SignalName] = true
			case *history.SignalApplied:
				asked[is.SignalName] = true
			}
			if s.Trace != "" {
				d.Stack = &s
			}
		}
	}
	if v.Pending == nil {
		return nil
	}
	if t := v.Pending.Task; t != nil && t.Stack != "" {
		d.Stack = &protocol.DebugStack{Of: v.WorkflowType, Trace: t.Stack}
	}
	i := slices.IndexFunc(v.Pending.Waits, func(w protocol.PendingWait) bool { return w.Kind == "signal" })
	if i < 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(came)) {
		if !asked[name] {
			d.Findings = append(d.Findings, protocol.Finding{
				Severity: "info", Code: "signal_not_waited_for", Subject: v.RunID, Message: fmt.Sprintf(
					"signal %s arrived at %s, but the run waits for signal %s", name, clock(came[name].Time),
					v.Pending.Waits[i].SignalName,
				),
			})
		}
	}
	return nil
}

// diagnosis summarizes the state of a run in one word. Running tasks take precedence over waiting tasks: a run of ten
// activities on two slots is fine although eight wait. Quarantine takes precedence over everything, since an operator
// must act.
func diagnosis(v *protocol.RunView) string {
	if v.Pending == nil {
		return "closed"
	}
	t := v.Pending.Task
	in := func(state engine.TaskState) bool {
		return t != nil && t.State == string(state) ||
			slices.ContainsFunc(v.Pending.Activities, func(a protocol.PendingActivity) bool { return a.State == string(state) })
	}
	switch {
	case in(engine.Quarantined):
		return "quarantined"
	case in(engine.LeasedState):
		return "running"
	case in(engine.Ready):
		return "waiting_for_worker"
	}
	return "waiting"
}

// severities lists the severities of findings, the worst first.
var severities = []string{"error", "warning", "info"}

func findings(v *protocol.RunView, now time.Time) []protocol.Finding {
	list := []protocol.Finding{}
	say := func(severity, code, subject, format string, args ...any) {
		list = append(
			list, protocol.Finding{Severity: severity, Code: code, Subject: subject, Message: fmt.Sprintf(format, args...)},
		)
	}
	if f := v.Failed().Text(); f != "" {
		say("error", "failed", v.RunID, "the run ended: %s", f)
	}
	if v.Pending == nil {
		return list
	}
	if t := v.Pending.Task; t != nil {
		switch t.State {
		case string(engine.Quarantined):
			say("error", "quarantined", t.TaskID, "quarantined until repaired: %s", t.Why)
		case string(engine.Ready):
			say("warning", "waiting_for_worker", t.TaskID, "the next decision waits: %s", t.Why)
		case string(engine.Delayed):
			say("warning", "failing", t.TaskID, "the workflow task failed and is retried: %s", t.LastFailure)
		}
		if t.State == string(engine.LeasedState) && t.LeaseUntil.Before(now) {
			say("warning", "lease_over", t.TaskID, "worker %s let its lease run out at %s", t.Worker, clock(t.LeaseUntil.Time))
		}
	}
	for _, a := range v.Pending.Activities {
		if a.State == string(engine.Ready) {
			say("warning", "waiting_for_worker", a.ExecutionID, "activity %s waits: %s", a.ActivityType, a.Why)
		}
		if a.State == string(engine.LeasedState) && a.LeaseUntil.Before(now) {
			say(
				"warning", "lease_over", a.ExecutionID, "worker %s let its lease of activity %s run out at %s", a.Worker,
				a.ActivityType, clock(a.LeaseUntil.Time),
			)
		}
		if a.LastFailure != "" {
			say(
				"warning", "failing", a.ExecutionID, "attempt %d of activity %s failed: %s", a.Attempt, a.ActivityType,
				a.LastFailure,
			)
		}
	}
	for what, at := range map[string]time.Time{"run": v.RunDeadline.Time, "execution": v.ExecutionDeadline.Time} {
		if !at.IsZero() && at.Sub(now) < deadlineNear {
			say("info", "deadline_near", v.RunID, "its %s timeout ends it at %s", what, clock(at))
		}
	}
	// Sort by severity and then by text, so that repeated requests have the same order.
	slices.SortStableFunc(list, func(x, y protocol.Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(severities, x.Severity), slices.Index(severities, y.Severity)),
			cmp.Compare(x.Message, y.Message),
		)
	})
	return list
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// debugQueues returns the queues in which tasks of the run wait, and the queue of the run.
func debugQueues(v *protocol.RunView, around *engine.WaitContext) []protocol.DebugQueue {
	names := []string{v.TaskQueue}
	if v.Pending != nil {
		for _, a := range v.Pending.Activities {
			names = append(names, a.TaskQueue)
		}
	}
	slices.Sort(names)
	list := []protocol.DebugQueue{}
	for _, name := range slices.Compact(names) {
		q := protocol.DebugQueue{Name: name}
		for _, w := range around.Workers {
			if w.Alive && w.Worker.Serves(name) {
				q.Workers++
			}
		}
		list = append(list, q)
	}
	return list
}
