package view

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The list of queues, a single queue, the deployments and the metrics need the same data: waiting tasks, their workers,
// and operators' settings. They all use one snapshot, so that their counts agree.

// queueCounts is the task statistics of a namespace and the time of the count.
type queueCounts struct {
	now   time.Time // time of the store's clock
	stats []store.QueueStats
}

// queueCounts counts the tasks of a namespace, or of all namespaces for "", with one read for all concurrent callers.
func (v *View) queueCounts(ctx context.Context, ns string) (queueCounts, error) {
	return v.queues.get(ctx, ns, v.opt.Dispatch.Changes, func(ctx context.Context) (counts queueCounts, err error) {
		if counts.now, err = v.store.Now(ctx); err != nil {
			return counts, err
		}
		return counts, v.store.View(ctx, func(r store.Reader) error {
			counts.stats, err = r.Queues(ctx, ns)
			return err
		})
	})
}

// queueSnapshot is the state of all queues of a namespace at one time.
type queueSnapshot struct {
	ns      string
	now     time.Time
	stats   map[string]map[protocol.TaskKind]store.QueueStats
	workers map[string][]protocol.WorkerView // workers by queue
	decided map[string]*engine.Queue
	waiting map[string]int
	queries map[string]protocol.QueryTally
}

func (v *View) queueSnapshot(ctx context.Context, ns string) (*queueSnapshot, error) {
	g, err := v.queueServers(ctx, ns)
	if err != nil {
		return g, err
	}
	if g.queries, err = v.opt.Questions(ctx, ns, protocol.KindQuery); err != nil {
		return g, err
	}
	g.waiting = v.opt.Dispatch.Waiting(ns)
	counts, err := v.queueCounts(ctx, ns)
	g.now = counts.now
	g.add(counts.stats)
	return g, err
}

// queueServers returns a snapshot without tasks: the workers of the queues, and the decisions about them.
func (v *View) queueServers(ctx context.Context, ns string) (*queueSnapshot, error) {
	g := &queueSnapshot{
		ns: ns, stats: map[string]map[protocol.TaskKind]store.QueueStats{}, workers: map[string][]protocol.WorkerView{},
	}
	workers, err := v.Workers(ctx, ns, "", "")
	if err != nil {
		return g, err
	}
	for _, w := range workers {
		for _, q := range w.TaskQueues {
			g.workers[q] = append(g.workers[q], w)
		}
	}
	g.decided, err = v.queueSettings(ctx, ns)
	return g, err
}

// add indexes counts by queue and kind.
func (g *queueSnapshot) add(stats []store.QueueStats) {
	for _, s := range stats {
		if g.stats[s.Queue] == nil {
			g.stats[s.Queue] = map[protocol.TaskKind]store.QueueStats{}
		}
		g.stats[s.Queue][s.Kind] = s
	}
}

// names returns all known queues. Decisions about a whole namespace are stored under an empty name, which is not a
// queue.
func (g *queueSnapshot) names() []string {
	all := map[string]bool{}
	for name := range g.stats {
		all[name] = true
	}
	for name := range g.workers {
		all[name] = true
	}
	for name := range g.decided {
		all[name] = name != ""
	}
	for name := range g.waiting {
		all[name] = true
	}
	maps.DeleteFunc(all, func(_ string, there bool) bool { return !there })
	return slices.Sorted(maps.Keys(all))
}

func (g *queueSnapshot) state(name string) protocol.QueueState {
	v := protocol.QueueState{
		Name: name, Namespace: g.ns,
		Admission: protocol.QueueAdmission{
			Workflow: g.admission(name, protocol.KindWorkflow), Activity: g.admission(name, protocol.KindActivity),
			Query: g.queryAdmission(name),
		},
	}
	v.Group, v.FromNamespace = routed(g.decided, name)
	if id := g.decided[name].NewRuns(); id != "" {
		v.Promoted = &id
	}
	t := &v.Stats
	t.Workflow, t.Activity, t.Query = g.countsOf(name, protocol.KindWorkflow), g.countsOf(name, protocol.KindActivity),
		g.queries[name]
	t.Backlog = t.Workflow.Ready + t.Activity.Ready
	oldest := t.Workflow.OldestReady
	if o := t.Activity.OldestReady; oldest.IsZero() || !o.IsZero() && o.Before(oldest.Time) {
		oldest = o
	}
	if !oldest.IsZero() {
		age := fmt.Sprintf("%ds", max(0, int64(g.now.Sub(oldest.Time).Seconds())))
		t.BacklogAge = &age
	}
	for _, w := range g.workers[name] {
		if w.Status == protocol.WorkerStale {
			t.Pollers.Stale++
		} else {
			t.Pollers.Active++
		}
	}
	t.Pollers.Waiting = g.waiting[name]
	return v
}

// countsOf returns the task counts of a queue and kind; a missing entry returns zeros.
func (g *queueSnapshot) countsOf(name string, kind protocol.TaskKind) protocol.TaskTally {
	s := g.stats[name][kind]
	return protocol.TaskTally{
		Ready: s.Ready, Leased: s.Leased, Expired: s.Expired, Delayed: s.Delayed, OldestReady: s.OldestReady,
	}
}

// leased counts the leased tasks of a kind: of one queue, or of all queues for "".
func (g *queueSnapshot) leased(name string, kind protocol.TaskKind) (n int) {
	for queue, s := range g.stats {
		if name == "" || queue == name {
			n += s[kind].Leased
		}
	}
	return n
}

// admission returns the state of the limits of a queue and of its namespace.
func (g *queueSnapshot) admission(name string, kind protocol.TaskKind) protocol.TaskAdmission {
	own, all := g.decided[name], g.decided[""]
	l, of := own.Budget(kind), all.Budget(kind)
	v := protocol.TaskAdmission{
		Status: protocol.AdmissionUnlimited, BudgetSource: "worker_registration.max_concurrent_" + protocol.TaskLimits[kind],
		Leased: g.leased(name, kind), Ready: g.stats[name][kind].Ready,
		LeaseCount: g.leased(name, kind), MaxLeases: orNone(l.Leases), AllLeaseCount: g.leased("", kind),
		MaxAllLeases:  orNone(of.Leases),
		DispatchCount: own.Begun(kind, g.now), MaxDispatches: orNone(l.PerMinute), AllDispatchCount: all.Begun(kind, g.now),
		MaxAllDispatches: orNone(of.PerMinute),
		LockSupported:    true,
	}
	group, _ := routed(g.decided, name)
	for _, w := range g.workers[name] {
		if w.Status == protocol.WorkerStale || w.Gate != "" || w.Drain != nil ||
			group != "" && w.Group != group { // slots of a worker that gets no tasks do not count
			continue
		}
		v.ActiveWorkers++
		if kind == protocol.KindWorkflow {
			v.Slots += w.WorkflowSlots
		} else {
			v.Slots += w.ActivitySlots
		}
	}
	v.AvailableSlots = max(0, v.Slots-v.Leased)
	least := -1
	for _, m := range []struct {
		most   *int
		used   int
		left   **int
		source string
	}{
		{v.MaxLeases, v.LeaseCount, &v.RemainingLeases, "max_active_leases_per_queue"},
		{v.MaxAllLeases, v.AllLeaseCount, &v.RemainingAllLeases, "max_active_leases_per_namespace"},
		{v.MaxDispatches, v.DispatchCount, &v.RemainingDispatches, "max_dispatches_per_minute"},
		{v.MaxAllDispatches, v.AllDispatchCount, &v.RemainingAllDispatchs, "max_dispatches_per_minute_per_namespace"},
	} {
		if m.most == nil {
			continue
		}
		left := max(0, *m.most-m.used)
		*m.left, v.LockRequired = &left, true
		if least < 0 || left < least {
			source := "server.admission." + protocol.TaskLimits[kind] + "." + m.source
			least, v.ServerSource = left, &source
		}
	}
	if least >= 0 {
		v.Status = protocol.AdmissionAccepting
	}
	if t := throttle(own, all, kind, v.LeaseCount, v.AllLeaseCount, g.now); t.Why != nil {
		v.Status, v.WaitReason, v.Wait = protocol.AdmissionThrottled, t.Text(), t.Why
	}
	return v
}

func (g *queueSnapshot) queryAdmission(name string) protocol.QueryAdmission {
	const most = protocol.MaxPendingQuestions
	pending := g.queries[name].Ready
	v := protocol.QueryAdmission{
		Status: protocol.AdmissionAccepting, BudgetSource: "server.query_tasks.max_pending_per_queue", Pending: pending,
		MaxPending: most, Remaining: max(0, most-pending), LockSupported: true,
	}
	if v.Remaining == 0 {
		v.Status = protocol.AdmissionFull
	}
	return v
}
