package broker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/question"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// queueSnapshot is one look at all queues of a namespace.
type queueSnapshot struct {
	ns      string
	now     time.Time
	stats   map[string]map[protocol.TaskKind]store.QueueStats
	workers map[string][]protocol.WorkerView // by queue
	decided map[string]*engine.Queue
	waiting map[string]int
	queries map[string]protocol.QueryTally
}

func (b *Broker) queueSnapshot(ctx context.Context, ns string) (*queueSnapshot, error) {
	g := &queueSnapshot{
		ns: ns, stats: map[string]map[protocol.TaskKind]store.QueueStats{}, workers: map[string][]protocol.WorkerView{},
		waiting: b.waitersOf(ns),
	}
	var err error
	if g.queries, err = b.questions.Count(ctx, ns, protocol.KindQuery); err != nil {
		return g, err
	}
	workers, err := b.Workers(ctx, ns, "", "")
	if err != nil {
		return g, err
	}
	for _, w := range workers {
		for _, q := range w.TaskQueues {
			g.workers[q] = append(g.workers[q], w)
		}
	}
	if g.now, err = b.store.Now(ctx); err != nil {
		return g, err
	}
	if g.decided, err = b.decided(ctx, ns); err != nil {
		return g, err
	}
	return g, b.store.View(ctx, func(r store.Reader) error {
		stats, err := r.Queues(ctx, ns)
		g.add(stats)
		return err
	})
}

func (g *queueSnapshot) add(stats []store.QueueStats) {
	for _, s := range stats {
		if g.stats[s.Queue] == nil {
			g.stats[s.Queue] = map[protocol.TaskKind]store.QueueStats{}
		}
		g.stats[s.Queue][s.Kind] = s
	}
}

// names are all queues anything is known of.
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
	t.Workflow, t.Activity, t.Query = g.tally(name, protocol.KindWorkflow), g.tally(name, protocol.KindActivity),
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

func (g *queueSnapshot) tally(name string, kind protocol.TaskKind) protocol.TaskTally {
	s := g.stats[name][kind]
	return protocol.TaskTally{
		Ready: s.Ready, Leased: s.Leased, Expired: s.Expired, Delayed: s.Delayed, OldestReady: s.OldestReady,
	}
}

// leased counts the leased tasks of a kind: of one queue, or of all for "".
func (g *queueSnapshot) leased(name string, kind protocol.TaskKind) (n int) {
	for queue, s := range g.stats {
		if name == "" || queue == name {
			n += s[kind].Leased
		}
	}
	return n
}

// admission is how the budgets of a queue and of its namespace stand.
func (g *queueSnapshot) admission(name string, kind protocol.TaskKind) protocol.TaskAdmission {
	own, all := g.decided[name], g.decided[""]
	l, of := own.Budget(kind), all.Budget(kind)
	v := protocol.TaskAdmission{
		Status: protocol.AdmissionUnlimited, BudgetSource: "worker_registration.max_concurrent_" + limited[kind],
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
			group != "" && w.Group != group { // slots that no task gets are none
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
			source := "server.admission." + limited[kind] + "." + m.source
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

// throttle is why the budgets of a queue and its namespace give nothing now; without a Why they do.
func throttle(own, all *engine.Queue, kind protocol.TaskKind, leased, leasedInAll int, now time.Time) engine.Throttle {
	var t engine.Throttle
	if own != nil {
		_, t, _ = own.Room(kind, leased, now)
	}
	if t.Why == nil && all != nil {
		_, t, _ = all.Room(kind, leasedInAll, now)
	}
	return t
}

func (g *queueSnapshot) queryAdmission(name string) protocol.QueryAdmission {
	v := protocol.QueryAdmission{
		Status: protocol.AdmissionAccepting, BudgetSource: "server.query_tasks.max_pending_per_queue",
		Pending:    g.queries[name].Ready,
		MaxPending: question.MostWaiting, Remaining: max(0, question.MostWaiting-g.queries[name].Ready), LockSupported: true,
	}
	if v.Remaining == 0 {
		v.Status = protocol.AdmissionFull
	}
	return v
}

// cohort is what was decided about a build id, without its workers.
func cohort(q engine.Queue, id string) protocol.BuildCohort {
	d := q.Builds[id]
	c := protocol.BuildCohort{
		BuildID: orNil(id), Intent: protocol.IntentActive, DrainedAt: d.DrainedAt, PromotedAt: d.PromotedAt,
		Selected: q.Promoted == id && !d.PromotedAt.IsZero(), Runtimes: []string{}, SDKVersions: []string{},
	}
	if !d.DrainedAt.IsZero() {
		c.Intent = protocol.IntentDraining
	}
	return c
}

// cohorts are the builds of a queue, that of new runs first, the one seen last before the others.
func (g *queueSnapshot) cohorts(name string) []protocol.BuildCohort {
	var decided engine.Queue
	if q := g.decided[name]; q != nil {
		decided = *q
	}
	all := map[string]*protocol.BuildCohort{}
	of := func(id string) *protocol.BuildCohort {
		if all[id] == nil {
			c := cohort(decided, id)
			all[id] = &c
		}
		return all[id]
	}
	for id := range decided.Builds {
		of(id)
	}
	for _, w := range g.workers[name] {
		id := ""
		if w.BuildID != nil {
			id = *w.BuildID
		}
		c := of(id)
		c.TotalWorkers++
		switch {
		case w.Status == protocol.WorkerStale:
			c.StaleWorkers++
		case w.Status == protocol.WorkerDraining, c.Intent == protocol.IntentDraining:
			c.DrainingWorkers++
		default:
			c.ActiveWorkers++
		}
		c.Runtimes, c.SDKVersions = with(c.Runtimes, w.Runtime), with(c.SDKVersions, w.SDKVersion)
		if w.LastHeartbeatAt.After(c.LastHeartbeatAt.Time) {
			c.LastHeartbeatAt = w.LastHeartbeatAt
		}
		if c.FirstSeenAt.IsZero() || w.RegisteredAt.Before(c.FirstSeenAt.Time) {
			c.FirstSeenAt = w.RegisteredAt
		}
	}
	list := []protocol.BuildCohort{}
	for _, c := range all {
		c.Rollout = rollout(c)
		list = append(list, *c)
	}
	slices.SortFunc(list, func(x, y protocol.BuildCohort) int {
		if x.Selected != y.Selected {
			if x.Selected {
				return -1
			}
			return 1
		}
		return cmp.Or(y.FirstSeenAt.Compare(x.FirstSeenAt.Time), cmp.Compare(text(y.BuildID), text(x.BuildID)))
	})
	return list
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func with(list []string, name string) []string {
	if name == "" || slices.Contains(list, name) {
		return list
	}
	list = append(list, name)
	slices.Sort(list)
	return list
}

func rollout(c *protocol.BuildCohort) string {
	switch {
	case c.ActiveWorkers > 0 && c.DrainingWorkers > 0:
		return protocol.RolloutMixed
	case c.ActiveWorkers > 0:
		return protocol.RolloutActive
	case c.DrainingWorkers > 0, c.Intent == protocol.IntentDraining:
		// the decision stands whether a worker of it is there or not
		return protocol.RolloutDraining
	case c.StaleWorkers > 0:
		return protocol.RolloutStale
	}
	return protocol.RolloutNobody
}

// throttles answers, for tasks of one namespace that are looked at together, whether a budget withholds them. It counts
// once, and only where there is a budget.
type throttles struct {
	b        *Broker
	ns       string
	now      time.Time
	snapshot *queueSnapshot
}

func (t *throttles) of(ctx context.Context, r store.Reader, queue string, kind protocol.TaskKind) engine.Throttle {
	own, all := t.b.store.Queue(engine.QueueKey{Namespace: t.ns, Name: queue}),
		t.b.store.Queue(engine.QueueKey{Namespace: t.ns})
	if !own.Budget(kind).Bounded() && !all.Budget(kind).Bounded() {
		return engine.Throttle{}
	}
	if t.snapshot == nil {
		g := &queueSnapshot{
			ns: t.ns, now: t.now, stats: map[string]map[protocol.TaskKind]store.QueueStats{},
			decided: map[string]*engine.Queue{},
		}
		if stats, err := r.Queues(ctx, t.ns); err == nil {
			g.add(stats)
		}
		if rows, err := r.QueueRows(ctx, t.ns); err == nil {
			for i := range rows {
				g.decided[rows[i].Name] = &rows[i]
			}
		}
		t.snapshot = g
	}
	return throttle(
		t.snapshot.decided[queue], t.snapshot.decided[""], kind, t.snapshot.leased(queue, kind), t.snapshot.leased("", kind),
		t.now,
	)
}
