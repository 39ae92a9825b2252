package view

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The reason why a task waits is not stored, since every registration or loss of a worker could change it. It is
// computed for a requested task, and for the few longest-waiting tasks of a queue.

// TaskWhy returns why an open workflow or activity task is in its state. A closed task is not found.
func (v *View) TaskWhy(ctx context.Context, ns, id string) (protocol.TaskWhy, error) {
	of, _, isFlow := engine.ParseTaskID(id)
	if !isFlow {
		var ok bool
		if of, _, ok = engine.ParseStepID(id); !ok {
			return protocol.TaskWhy{}, transaction.TaskNotFound(id)
		}
	}
	run, err := v.Describe(ctx, protocol.Target{Namespace: ns, RunID: of})
	switch {
	case protocol.ReasonOf(err) == protocol.ReasonRunNotFound:
		return protocol.TaskWhy{}, transaction.TaskNotFound(id)
	case err != nil:
		return protocol.TaskWhy{}, err
	}
	return taskWhy(&run, id, isFlow)
}

// taskWhy returns why an open task of a run is in its state.
func taskWhy(v *protocol.RunView, id string, isFlow bool) (protocol.TaskWhy, error) {
	if v.Pending == nil {
		return protocol.TaskWhy{}, transaction.TaskNotFound(id)
	}
	w := protocol.TaskWhy{TaskID: id, WorkflowID: v.WorkflowID, RunID: v.RunID}
	if t := v.Pending.Task; isFlow && t != nil && t.TaskID == id {
		w.Kind, w.State, w.TaskQueue, w.Type, w.Worker = protocol.KindWorkflow, t.State, v.TaskQueue, v.WorkflowType, t.Worker
		w.LeaseUntil, w.Wait, w.Why = t.LeaseUntil, t.Wait, t.Wait.Why(time.UTC)
		return w, nil
	}
	for _, a := range v.Pending.Activities {
		if isFlow || a.ExecutionID != id {
			continue
		}
		w.Kind, w.State, w.TaskQueue, w.Type, w.Worker = protocol.KindActivity, a.State, a.TaskQueue, a.ActivityType, a.Worker
		w.SessionID, w.LeaseUntil, w.NextAt, w.Why = a.SessionID, a.LeaseUntil, a.NextAt, a.Wait.Why(time.UTC)
		w.Wait = a.Wait
		return w, nil
	}
	return protocol.TaskWhy{}, transaction.TaskNotFound(id)
}

// waitingShown is the number of waiting tasks of each kind that a queue explains. Each costs a read of the task's run.
const waitingShown = 3

// QueueWaiting returns why the longest-waiting ready tasks of a queue, of each kind, are not leased. A task that was
// leased meanwhile is omitted.
func (v *View) QueueWaiting(ctx context.Context, ns, queue string) ([]protocol.TaskWhy, error) {
	k := engine.QueueKey{Namespace: transaction.NamespaceOrDefault(ns), Name: queue}
	var oldest []store.TaskRef
	err := v.store.View(ctx, func(r store.Reader) error {
		for _, kind := range []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity} {
			some, err := r.OldestReady(ctx, k, kind, waitingShown)
			if err != nil {
				return err
			}
			oldest = append(oldest, some...)
		}
		return nil
	})
	list := []protocol.TaskWhy{}
	// Each task is described as on its own page, from a separate read: they need not be from the same moment.
	for _, t := range oldest {
		run, err := v.Describe(ctx, protocol.Target{Namespace: k.Namespace, RunID: t.Run})
		if protocol.ReasonOf(err) == protocol.ReasonRunNotFound {
			continue
		}
		if err != nil {
			return list, err
		}
		id := engine.StepID(t.Run, t.Seq)
		if t.Kind == protocol.KindWorkflow && run.Pending != nil && run.Pending.Task != nil {
			id = run.Pending.Task.TaskID
		}
		if w, err := taskWhy(&run, id, t.Kind == protocol.KindWorkflow); err == nil && w.State == string(engine.Ready) {
			list = append(list, w)
		}
	}
	return list, err
}
