package broker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// pending shows what is open in a run, and of each ready task why nobody has it yet.
func (b *Broker) pending(ctx context.Context, r store.Reader, run *engine.Run, now time.Time) *protocol.Pending {
	p := &protocol.Pending{
		Activities: []protocol.PendingActivity{}, Timers: []protocol.PendingTimer{}, Waits: []protocol.PendingWait{}, Updates: []protocol.PendingUpdate{},
		Children: []protocol.PendingChild{},
		Sessions: []string{},
	}
	if t := run.Task; t != nil {
		p.Task = &protocol.PendingTask{
			TaskID: engine.TaskID(run.ID, t.Number), State: string(t.State), Attempt: t.Delivery, Worker: t.Owner, LeaseUntil: t.Until, Why: t.Problem,
		}
		if t.State == engine.Ready {
			p.Task.Why = b.why(run.Namespace, run.Queue, engine.Wanted{Kind: protocol.KindWorkflow, Type: run.Type, BuildID: run.BuildID}, now)
		}
	}
	for seq, a := range run.Activities.All() {
		v := protocol.PendingActivity{
			Sequence: seq, ExecutionID: engine.StepID(run.ID, seq), ActivityType: a.Type, TaskQueue: a.Queue, State: string(a.State),
			Attempt: a.Attempt, Worker: a.Owner, SessionID: a.SessionID, Epoch: a.Epoch, ScheduledAt: a.ScheduledAt, StartedAt: a.LeasedAt,
			LeaseUntil: a.Until, Heartbeat: a.HeartbeatAt, Progress: a.Progress, LastFailure: a.LastFailure,
		}
		if a.State == engine.Delayed {
			v.NextAt, v.Why = a.ReadyAt, "waits for its back-off until "+clock(a.ReadyAt.Time)
		}
		if a.State == engine.Ready {
			v.Why = b.activityWhy(ctx, r, run.Namespace, a, now)
		}
		if a.SessionID != "" && !slices.Contains(p.Sessions, a.SessionID) {
			p.Sessions = append(p.Sessions, a.SessionID)
		}
		p.Activities = append(p.Activities, v)
	}
	for seq, t := range run.Timers.All() {
		p.Timers = append(p.Timers, protocol.PendingTimer{Sequence: seq, TimerID: engine.StepID(run.ID, seq), FireAt: t.FireAt})
	}
	for seq, w := range run.Waits.All() {
		p.Waits = append(p.Waits, protocol.PendingWait{Sequence: seq, Kind: cmp.Or(w.Kind, "signal"), SignalName: w.Name, ConditionKey: w.Key})
	}
	for seq, c := range run.Children.All() {
		p.Children = append(p.Children, protocol.PendingChild{
			Sequence: seq, CallID: c.WorkflowID, WorkflowID: c.WorkflowID, RunID: c.RunID, Type: c.Type, ClosePolicy: c.ClosePolicy, Attempt: c.Failures + 1,
		})
	}
	for _, u := range run.Updates.All() {
		p.Updates = append(p.Updates, protocol.PendingUpdate{UpdateID: u.ID, UpdateName: u.Name})
	}
	return p
}

func (b *Broker) activityWhy(ctx context.Context, r store.Reader, ns string, a engine.Activity, now time.Time) string {
	want := engine.Wanted{Kind: protocol.KindActivity, Type: a.Type, Requirements: a.Requirements}
	if a.SessionID != "" {
		s, err := r.Session(ctx, engine.SessionKey{Namespace: ns, ID: a.SessionID})
		if err == nil {
			want.Session = &s
		}
	}
	return b.why(ns, a.Queue, want, now)
}

// why puts in words what keeps a ready task from a worker: the session's holder, else what the registered workers of the queue lack.
func (b *Broker) why(ns, queue string, want engine.Wanted, now time.Time) string {
	if s := want.Session; s != nil && s.Held(now) {
		if s.Full() {
			return fmt.Sprintf("session %s runs %d activities at once, its most", s.ID, s.Active)
		}
		for k, h := range b.workers.all(ns) {
			if k.ID == s.Owner && b.alive(h, now) {
				return fmt.Sprintf("for worker %s, which holds session %s and is busy", s.Owner, s.ID)
			}
		}
		return fmt.Sprintf("session %s is held by worker %s until %s", s.ID, s.Owner, clock(s.LeaseUntil.Time))
	}
	served, reason := 0, ""
	for _, h := range b.workers.all(ns) {
		if !slices.Contains(h.worker.Queues, queue) || !b.alive(h, now) {
			continue
		}
		served++
		if h.gate != "" {
			reason = h.gate
			continue
		}
		v := engine.Admit(want, engine.Lessee{Worker: h.worker, Counted: true}, now)
		if v.OK {
			return fmt.Sprintf("ready for worker %s, which is busy", h.worker.ID)
		}
		reason = v.Text
	}
	switch {
	case served == 0:
		return fmt.Sprintf("no live worker serves queue %s", queue)
	case served == 1:
		return reason
	}
	return fmt.Sprintf("none of %d workers of queue %s may take it; the last: %s", served, queue, reason)
}

// waitsFor sums up, for one line, what a run waits for.
func waitsFor(p *protocol.Pending, now time.Time) (kind, text *string) {
	say := func(k, format string, args ...any) (*string, *string) {
		t := fmt.Sprintf(format, args...)
		return &k, &t
	}
	switch {
	case p.Task != nil && p.Task.State == string(engine.Quarantined):
		return say("quarantined", "quarantined until repaired: %s", p.Task.Why)
	case p.Task != nil && p.Task.Worker != "":
		return say("workflow_task", "worker %s decides what comes next", p.Task.Worker)
	case p.Task != nil:
		return say("workflow_task", "its next decision waits: %s", p.Task.Why)
	case len(p.Activities) > 0:
		a := p.Activities[0]
		more := ""
		if n := len(p.Activities) - 1; n > 0 {
			more = fmt.Sprintf(" (and %d more)", n)
		}
		if a.Worker != "" {
			return say("activity", "activity %s runs on worker %s%s", a.ActivityType, a.Worker, more)
		}
		return say("activity", "activity %s%s: %s", a.ActivityType, more, a.Why)
	case len(p.Waits) > 0:
		return say("signal", "waits for signal %s", p.Waits[0].SignalName)
	case len(p.Timers) > 0:
		t := p.Timers[0]
		for _, o := range p.Timers[1:] {
			if o.FireAt.Before(t.FireAt.Time) {
				t = o
			}
		}
		return say("timer", "a timer fires at %s, in %s", clock(t.FireAt.Time), t.FireAt.Sub(now).Round(time.Second))
	}
	return nil, nil
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }
