package view

import (
	"context"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A registration is a row; the liveness of a worker is in the memory of apps. Views join the two. A worker that
// deregistered but still has leases is shown as draining, because its work has not ended.

var workerStatuses = []protocol.WorkerStatus{
	protocol.WorkerActive, protocol.WorkerDraining, protocol.WorkerMismatched, protocol.WorkerStale,
}

// Workers lists registrations by ID, each with its current status.
func (v *View) Workers(ctx context.Context, ns, queue, status string) ([]protocol.WorkerView, error) {
	if err := knownStatus(status, workerStatuses); err != nil {
		return nil, err
	}
	ns = transaction.NamespaceOrDefault(ns)
	now, err := v.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	views := []protocol.WorkerView{}
	err = v.store.View(ctx, func(r store.Reader) error {
		rows, err := r.Workers(ctx, store.WorkerQuery{Namespace: ns, Queue: queue, Limit: 10_000})
		if err != nil {
			return err
		}
		held, err := r.Holdings(ctx, ns)
		if err != nil {
			return err
		}
		known, err := v.workers.Roster(ctx, r, ns)
		if err != nil {
			return err
		}
		for i := range rows {
			h, ok := known[rows[i].Key()]
			if !ok { // this app has received no heartbeat of the worker and knows only its row
				h = membership.TrackRow(&rows[i])
			}
			if !rows[i].DeregisteredAt.IsZero() && held[rows[i].ID].Leases == 0 {
				continue // the worker has deregistered and holds nothing: its row will be deleted soon
			}
			shown := v.workerView(&rows[i], h, held[rows[i].ID], now)
			if !rows[i].DeregisteredAt.IsZero() { // the worker's tasks and sessions are ending
				shown.Status = protocol.WorkerDraining
			}
			views = append(views, shown)
		}
		return nil
	})
	differences(views) // before the filter: a worker may differ from one that the filter excludes
	return slices.DeleteFunc(views, func(w protocol.WorkerView) bool {
		return status != "" && string(w.Status) != status
	}), err
}

// Worker returns one registration.
func (v *View) Worker(ctx context.Context, ns, id string) (protocol.WorkerView, error) {
	all, err := v.Workers(ctx, ns, "", "")
	for _, w := range all {
		if w.WorkerID == id {
			return w, nil
		}
	}
	if err == nil {
		err = protocol.Refuse(protocol.ReasonWorkerNotFound, "worker %s not found", id)
	}
	return protocol.WorkerView{}, err
}

// resourceUse returns the resources of a worker with the amounts in use.
func resourceUse(w *engine.Worker, used engine.Amounts) map[string]protocol.ResourceUse {
	if len(w.Resources) == 0 {
		return nil
	}
	all := make(map[string]protocol.ResourceUse, len(w.Resources))
	for name, total := range w.Resources {
		all[name] = protocol.ResourceUse{Total: total, Used: total.OfThousandths(used[name])}
	}
	return all
}

func (v *View) workerView(
	w *engine.Worker, h membership.TrackedWorker, held store.Holding, now time.Time,
) protocol.WorkerView {
	out := protocol.WorkerView{
		WorkerID: w.ID, Namespace: w.Namespace, TaskQueue: w.Queues[0], TaskQueues: w.Queues, Runtime: w.Runtime,
		SDKVersion: w.SDKVersion,
		BuildID:    protocol.OrNil(w.BuildID), Release: w.Release, Incarnation: w.Incarnation,
		Status: v.workers.Status(h, now), Gate: h.Gate,
		Capabilities: protocol.OrEmpty(w.Capabilities), WorkflowTypes: protocol.OrEmpty(w.WorkflowTypes),
		ActivityTypes: protocol.OrEmpty(w.ActivityTypes),
		WorkflowSlots: w.WorkflowSlots, ActivitySlots: w.ActivitySlots, MaxSessions: w.MaxSessions,
		Resources: resourceUse(w, held.UsedAt(w)), SessionResources: w.SessionResources, MaxSetUps: w.MaxSetUps,
		Session: &protocol.SessionSettings{
			LeaseMS: w.SessionLease / 1000, BufferMS: w.SessionBuffer / 1000, IdleMS: w.SessionIdle / 1000,
			MaxActivities: w.DefaultMaxActivities, Resumes: w.ResumesSessions,
		},
		HeartbeatInterval: int64(v.opt.Heartbeat.Seconds()), LastHeartbeatAt: w.HeartbeatAt, RegisteredAt: w.RegisteredAt,
		UpdatedAt: w.UpdatedAt,
		Machine:   h.Machine, Isolation: w.Isolation, Slots: w.Slots, Process: w.Process, Leases: held.Leases,
		WorkflowTasks: held.WorkflowTasks,
		Activities:    held.Leases - held.WorkflowTasks, Sessions: held.Sessions, Group: w.Group,
		Settings: w.Settings, Versions: w.Versions,
	}
	if d := v.workers.DrainOf(w); d != nil {
		out.Drain = &protocol.WorkerDrain{
			FleetTarget: d.FleetTarget, Since: d.At, DeadlineAt: d.Deadline, Evict: d.Evict, By: d.By, Reason: d.Reason,
		}
	}
	if at := now.Add(-time.Since(h.At)); !h.At.IsZero() && at.After(w.HeartbeatAt.Time) {
		out.LastHeartbeatAt = history.At(at)
	}
	if len(h.Slots) > 0 {
		out.Slots = h.Slots
	}
	if len(h.Process) > 0 {
		out.Process = h.Process
	}
	return out
}
