package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// pending shows what is open in a run, and of each ready task why nobody has it yet.
func (b *Broker) pending(ctx context.Context, r store.Reader, run *engine.Run, now time.Time) (*protocol.Pending, error) {
	fleet, err := b.fleet(ctx, r, run.Namespace)
	if err != nil {
		return nil, err
	}
	return b.pendingOf(ctx, r, fleet, run, now)
}

// waiting says of each open run in a list what it waits for.
func (b *Broker) waiting(ctx context.Context, r store.Reader, ns string, list []protocol.RunView, now time.Time) error {
	fleet, err := b.fleet(ctx, r, ns)
	if err != nil {
		return err
	}
	for i := range list {
		v := &list[i]
		if v.Terminal {
			continue
		}
		run, err := r.Run(ctx, v.RunID)
		if errors.Is(err, store.ErrNotFound) || err == nil && !run.Status.Open() { // it has ended since
			continue
		}
		if err != nil {
			return err
		}
		open, err := b.pendingOf(ctx, r, fleet, run, now)
		if err != nil {
			return err
		}
		v.WaitKind, v.WaitReason = waitsFor(open, now)
	}
	return nil
}

func (b *Broker) pendingOf(ctx context.Context, r store.Reader, fleet fleet, run *engine.Run, now time.Time) (*protocol.Pending, error) {
	var err error
	p := &protocol.Pending{
		Activities: []protocol.PendingActivity{}, Timers: []protocol.PendingTimer{}, Waits: []protocol.PendingWait{}, Updates: []protocol.PendingUpdate{},
		Children: []protocol.PendingChild{},
		Sessions: []string{},
	}
	budgets := &throttles{b: b, ns: run.Namespace, now: now}
	if t := run.Task; t != nil {
		p.Task = &protocol.PendingTask{
			TaskID: engine.TaskID(run.ID, t.Number), State: string(t.State), Attempt: t.Delivery, Worker: t.Owner, LeaseUntil: t.Until, Why: t.Problem,
		}
		if t.State == engine.Ready {
			want := run.Wanted()
			want.Queue = b.store.Queue(engine.QueueKey{Namespace: run.Namespace, Name: run.Queue})
			p.Task.Why = cmp.Or(budgets.why(ctx, r, run.Queue, protocol.KindWorkflow), b.why(fleet, run.Queue, want, now))
		}
	}
	for seq, a := range run.Activities.All() {
		v := protocol.PendingActivity{
			Sequence: seq, ExecutionID: engine.StepID(run.ID, seq), ActivityType: a.Type, TaskQueue: a.Queue, State: string(a.State),
			Attempt: a.Attempt, Worker: a.Owner, SessionID: a.SessionID, Epoch: a.Epoch, ScheduledAt: a.ScheduledAt, StartedAt: a.LeasedAt,
			LeaseUntil: a.Until, Heartbeat: a.HeartbeatAt, Progress: a.Progress, Rebuild: a.Rebuild, LastFailure: a.LastFailure,
		}
		if a.State == engine.Delayed {
			v.NextAt, v.Why = a.ReadyAt, "waits for its back-off until "+clock(a.ReadyAt.Time)
		}
		if a.State == engine.Ready {
			if v.Why = budgets.why(ctx, r, a.Queue, protocol.KindActivity); v.Why == "" {
				if v.Why, err = b.activityWhy(ctx, r, fleet, a, now); err != nil {
					return nil, err
				}
			}
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
		p.Updates = append(p.Updates, protocol.PendingUpdate{UpdateID: u.ID, UpdateName: u.Name, Applied: u.Taken})
	}
	return p, nil
}

func (b *Broker) activityWhy(ctx context.Context, r store.Reader, fleet fleet, a engine.Activity, now time.Time) (string, error) {
	want := engine.Wanted{
		Kind: protocol.KindActivity, Type: a.Type, Requirements: a.Requirements, Queue: b.store.Queue(engine.QueueKey{Namespace: a.Namespace, Name: a.Queue}),
	}
	if a.SessionID != "" {
		s, err := r.Session(ctx, engine.SessionKey{Namespace: a.Namespace, ID: a.SessionID})
		if err == nil {
			want.Session = &s
		} else if !errors.Is(err, store.ErrNotFound) {
			return "", err
		}
	}
	return b.why(fleet, a.Queue, want, now), nil
}

// why puts in words what keeps a ready task from a worker: the session's holder, else what the registered workers of the queue lack. Of several it
// names the worker that comes nearest to having the task.
func (b *Broker) why(fleet fleet, queue string, want engine.Wanted, now time.Time) string {
	if s := want.Session; s != nil && s.Held(now) {
		return b.heldWhy(fleet, want, now)
	}
	served, nearest, reason := 0, -1, ""
	for _, k := range slices.SortedFunc(maps.Keys(fleet), func(x, y engine.WorkerKey) int { return cmp.Compare(x.ID, y.ID) }) {
		h := fleet[k]
		if !slices.Contains(h.worker.Queues, queue) || !b.alive(h, now) {
			continue
		}
		served++
		v := engine.Admit(want, engine.Lessee{Worker: h.worker, Counted: true}, now)
		text, kept := v.Text, h.kept()
		if v.OK && kept == "" {
			return fmt.Sprintf("ready for worker %s, which is busy or does not poll", k.ID)
		}
		if v.OK {
			text = fmt.Sprintf("worker %s: %s", k.ID, kept)
		}
		if n := nearness(v); n > nearest {
			nearest, reason = n, text
		}
	}
	switch {
	case served == 0:
		return fmt.Sprintf("no live worker serves queue %s", queue)
	case served == 1:
		return reason
	}
	return fmt.Sprintf("none of %d workers of queue %s may take it; the nearest: %s", served, queue, reason)
}

// nearness orders verdicts by how much of what a task asks for the worker has.
func nearness(v engine.Verdict) int {
	switch {
	case v.OK:
		return 4
	case v.Reason == protocol.ReasonNotFound:
		return 0
	case v.Reason == protocol.ReasonVersionMismatch, v.Reason == protocol.ReasonWorkerDraining:
		return 1
	case v.Reason == protocol.ReasonSessionRequirements:
		return 2
	}
	return 3
}

// heldWhy is why a task of a held session waits: for its holder, who may not be able to take it either.
func (b *Broker) heldWhy(fleet fleet, want engine.Wanted, now time.Time) string {
	s := want.Session
	h, ok := fleet[engine.WorkerKey{Namespace: s.Namespace, ID: s.Owner}]
	if !ok || !b.alive(h, now) {
		return fmt.Sprintf("session %s is held by worker %s until %s%s", s.ID, s.Owner, clock(s.LeaseUntil.Time), s.Fallbacks())
	}
	if kept := h.kept(); kept != "" {
		return fmt.Sprintf("session %s is held by worker %s: %s%s", s.ID, s.Owner, kept, s.Fallbacks())
	}
	if v := engine.Admit(want, engine.Lessee{Worker: h.worker, Counted: true}, now); !v.OK {
		return v.Text + s.Fallbacks()
	}
	return fmt.Sprintf("for worker %s, which holds session %s and is busy or does not poll%s", s.Owner, s.ID, s.Fallbacks())
}

// kept is why a worker is given nothing at all, if so.
func (h *heard) kept() string {
	switch {
	case h.gate != "":
		return h.gate
	case h.draining || h.worker.Status == protocol.WorkerDraining:
		return "it drains"
	}
	return ""
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
	case len(p.Children) > 0:
		c := p.Children[0]
		more := ""
		if n := len(p.Children) - 1; n > 0 {
			more = fmt.Sprintf(" (and %d more)", n)
		}
		return say("child", "child workflow %s of type %s is open%s", c.WorkflowID, c.Type, more)
	case len(p.Waits) > 0 && p.Waits[0].Kind == engine.ConditionWait:
		if p.Waits[0].ConditionKey == "" {
			return say("condition", "waits for a condition that signals and updates may make true")
		}
		return say("condition", "waits for condition %s, which signals and updates may make true", p.Waits[0].ConditionKey)
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
	return say("update", "its code waits for an update: nothing else is open")
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") + " UTC" }
