package view

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// People see one wait reason per run, although many things may be pending. The engine selects the reason; this file
// reads the rows that the selection needs.

// hasReadySessionActivity reports whether a ready activity of the run is in a session.
func hasReadySessionActivity(run *engine.Run) bool {
	for _, a := range run.Activities.All() {
		if a.State == engine.Ready && a.SessionID != "" {
			return true
		}
	}
	return false
}

// pending returns the open tasks and timers of a run with their wait reasons, and the wait reason of the run.
func (v *View) pending(
	ctx context.Context, r store.Reader, run *engine.Run, now time.Time,
) (*protocol.Pending, *protocol.Wait, error) {
	around, err := v.waitContext(ctx, r, run.Namespace, hasReadySessionActivity(run), now)
	if err != nil {
		return nil, nil, err
	}
	return pendingOf(ctx, r, around, run)
}

// setWait sets the wait of a run in its view: as a value for programs, and as text where the published API has one.
func setWait(v *protocol.RunView, w *protocol.Wait) {
	kind := string(w.Kind)
	v.Wait, v.WaitKind, v.WaitReason = w, &kind, &w.Message
}

// waiting sets the wait of each open run in a list.
func (v *View) waiting(ctx context.Context, r store.Reader, ns string, list []protocol.RunView, now time.Time) error {
	around, err := v.waitContext(ctx, r, ns, true, now)
	if err != nil {
		return err
	}
	var ids []string
	for i := range list {
		if !list[i].Terminal {
			ids = append(ids, list[i].RunID)
		}
	}
	open, err := r.OpenRuns(ctx, ids)
	if err != nil {
		return err
	}
	for i := range list {
		shown := &list[i]
		run := open[shown.RunID]
		if run == nil { // the run has closed since the page was read
			continue
		}
		_, wait, err := pendingOf(ctx, r, around, run)
		if err != nil {
			return err
		}
		setWait(shown, wait)
	}
	return nil
}

// sessionOf reads the session of a ready activity, which the wait reason may name.
func sessionOf(ctx context.Context, r store.Reader, around *engine.WaitContext, a engine.Activity) error {
	if a.State != engine.Ready || a.SessionID == "" || around.Sessions[a.SessionID] != nil {
		return nil
	}
	s, err := r.Session(ctx, engine.SessionKey{Namespace: a.Namespace, ID: a.SessionID})
	if err == nil {
		around.Sessions[a.SessionID] = &s
	} else if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// positionOf reads the position of a step that waits for a member of a pool, with those of all steps that wait for it.
func positionOf(ctx context.Context, r store.Reader, around *engine.WaitContext, a engine.Activity) error {
	id := engine.StepID(a.RunID, a.Seq)
	if a.Borrow == nil || a.State != engine.Ready || around.Positions[id] != 0 {
		return nil
	}
	waiters, err := r.PoolWaiters(ctx, engine.QueueKey{Namespace: a.Namespace, Name: a.Queue}, protocol.MaxPoolSize)
	if around.Positions == nil {
		around.Positions = map[string]int{}
	}
	for i, w := range waiters {
		around.Positions[engine.StepID(w.Run, w.Seq)] = i + 1
	}
	return err
}

// pendingOf returns the pending tasks and waits of a run; package engine explains them.
func pendingOf(
	ctx context.Context, r store.Reader, around *engine.WaitContext, run *engine.Run,
) (*protocol.Pending, *protocol.Wait, error) {
	p := &protocol.Pending{
		Activities: []protocol.PendingActivity{}, Timers: []protocol.PendingTimer{}, Waits: []protocol.PendingWait{},
		Updates:  []protocol.PendingUpdate{},
		Children: []protocol.PendingChild{},
		Sessions: []string{}, Cancellation: run.Cancellation(around),
	}
	if t := run.Task; t != nil {
		p.Task = &protocol.PendingTask{
			TaskID: engine.TaskID(run.ID, t.Number), State: string(t.State), Attempt: t.Delivery, Worker: t.Owner,
			LeaseUntil: t.Until, Why: t.Problem,
			LastFailure: t.Problem, Stack: t.Stack, Wait: run.TaskWait(around),
		}
		if t.State == engine.Ready || t.State == engine.Delayed {
			p.Task.Why = p.Task.Wait.Why(time.UTC)
		}
	}
	waits := []*protocol.Wait{}
	for seq, a := range run.Activities.All() {
		if err := sessionOf(ctx, r, around, a); err != nil {
			return nil, nil, err
		}
		if err := positionOf(ctx, r, around, a); err != nil {
			return nil, nil, err
		}
		v := protocol.PendingActivity{
			Sequence: seq, ExecutionID: engine.StepID(run.ID, seq), ActivityType: a.Type, TaskQueue: a.Queue,
			State:   string(a.State),
			Attempt: a.Attempt, Worker: a.Owner, SessionID: a.SessionID, Epoch: a.Epoch, ScheduledAt: a.ScheduledAt,
			StartedAt:  a.LeasedAt,
			LeaseUntil: a.Until, Heartbeat: a.HeartbeatAt, Progress: a.Progress, Rebuild: a.Rebuild, LastFailure: a.LastFailure,
			LastHeartbeat: a.LastHeartbeat,
			Stack:         a.LastStack, Lost: a.Lost,
			Wait: around.ActivityWait(a),
		}
		switch a.State {
		case engine.Delayed:
			v.NextAt = a.ReadyAt
		case engine.Pending:
			v.PendingSince, v.Token = a.Pending.Since, engine.AttemptID(a.RunID, seq, a.Delivery)
			v.Worker, v.Epoch = "", 0 // neither the worker nor the session has the attempt any more
		}
		if a.State != engine.LeasedState {
			v.Why = v.Wait.Why(time.UTC)
		}
		if a.SessionID != "" && !slices.Contains(p.Sessions, a.SessionID) {
			p.Sessions = append(p.Sessions, a.SessionID)
		}
		p.Activities, waits = append(p.Activities, v), append(waits, v.Wait)
	}
	for seq, t := range run.Timers.All() {
		p.Timers = append(
			p.Timers, protocol.PendingTimer{Sequence: seq, TimerID: engine.StepID(run.ID, seq), FireAt: t.FireAt},
		)
	}
	for seq, w := range run.Waits.All() {
		v := protocol.PendingWait{Sequence: seq, Kind: cmp.Or(w.Kind, "signal"), SignalName: w.Name, ConditionKey: w.Key}
		if w.Kind == engine.AwakeableWait {
			v.AwakeableID = run.AwakeableID(seq)
		}
		p.Waits = append(p.Waits, v)
	}
	var err error
	if around.Inherited, err = openChildren(ctx, r, run, p); err != nil {
		return nil, nil, err
	}
	for _, u := range run.Updates.All() {
		p.Updates = append(p.Updates, protocol.PendingUpdate{UpdateID: u.ID, UpdateName: u.Name, Applied: u.Taken})
	}
	return p, run.Wait(around, waits), nil
}

// openChildren lists the open children of a run and of the earlier runs of its workflow ID.
func openChildren(
	ctx context.Context, r store.Reader, run *engine.Run, p *protocol.Pending,
) ([]engine.InheritedChild, error) {
	attached := map[string][]int64{}
	for seq, a := range run.Attached.All() {
		attached[a.WorkflowID] = append(attached[a.WorkflowID], seq)
	}
	add := func(of string, seq int64, c *engine.Child) *protocol.PendingChild {
		p.Children = append(p.Children, protocol.PendingChild{
			Sequence: seq, CallID: engine.StepID(of, seq), WorkflowID: c.WorkflowID, RunID: c.RunID, Type: c.Type,
			ClosePolicy: c.ClosePolicy,
			Attempt:     c.Failures + 1, Attached: attached[c.WorkflowID],
		})
		return &p.Children[len(p.Children)-1]
	}
	for seq, c := range run.Children.All() {
		add(run.ID, seq, &c)
	}
	if run.Inherited.Open == 0 {
		return nil, nil
	}
	inherited, err := r.InheritedChildren(
		ctx, engine.WorkflowKey{Namespace: run.Namespace, ID: run.WorkflowID}, protocol.MaxPending,
	)
	for _, f := range inherited {
		add(f.From, f.Seq, &f.Child).FormerRun = f.From
	}
	return inherited, err
}
