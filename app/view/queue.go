package view

import (
	"context"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A queue has no row that a user creates. A queue exists while it contains a task, a worker serves it, or a decision
// about it is stored. Its views combine the three sources.

// leasesShown is the maximum number of leased tasks in the detail of a queue.
const leasesShown = 200

// Queues lists the task queues of a namespace by name: queues with a task, with a registered worker, or with a stored
// decision, but not the queues of pools.
func (v *View) Queues(ctx context.Context, in protocol.QueueList) (protocol.QueuePage, error) {
	ns := transaction.NamespaceOrDefault(in.Namespace)
	p := protocol.QueuePage{Namespace: ns, Queues: []protocol.QueueState{}}
	g, err := v.queueSnapshot(ctx, ns)
	if err != nil {
		return p, err
	}
	// The list of pools contains the queues in which workflows wait for members of pools; no worker polls them.
	listed := slices.DeleteFunc(g.names(), func(name string) bool { return g.decided[name].PoolOf() != "" })
	names, next, err := protocol.PageByName(listed, func(name string) string { return name }, in.PageSize, in.PageToken)
	if err != nil {
		return p, err
	}
	for _, name := range names {
		p.Queues = append(p.Queues, g.state(name))
	}
	p.NextPageToken = next
	return p, nil
}

// Queue returns one task queue: its tasks, leases, workers, builds and limits.
func (v *View) Queue(ctx context.Context, ns, name string) (protocol.QueueState, error) {
	ns = transaction.NamespaceOrDefault(ns)
	g, err := v.queueSnapshot(ctx, ns)
	if err != nil {
		return protocol.QueueState{}, err
	}
	if !slices.Contains(g.names(), name) {
		return protocol.QueueState{}, noQueue(name)
	}
	out := g.state(name)
	out.BuildIDs, out.Leases, out.Pollers = g.cohorts(name), []protocol.QueueLease{}, []protocol.QueuePoller{}
	out.Limits = map[string]protocol.Budget{}
	for kind, member := range protocol.TaskLimits {
		if l := g.decided[name].Budget(kind); l.Bounded() {
			out.Limits[member] = limitsOf(l)
		}
	}
	for _, w := range g.workers[name] {
		out.Pollers = append(out.Pollers, protocol.QueuePoller{
			WorkerID: w.WorkerID, Runtime: w.Runtime, SDKVersion: w.SDKVersion, BuildID: w.BuildID,
			LastHeartbeatAt: w.LastHeartbeatAt,
			Status:          w.Status, Stale: w.Status == protocol.WorkerStale,
		})
	}
	return out, v.store.View(ctx, func(r store.Reader) error {
		leases, err := r.QueueLeases(ctx, engine.QueueKey{Namespace: ns, Name: name}, leasesShown)
		for _, l := range leases {
			out.Leases = append(out.Leases, leaseView(l, g.now))
		}
		return err
	})
}

func noQueue(name string) error {
	const text = "queue %s not found: it has no task and no worker polls it"
	return protocol.Refuse(protocol.ReasonQueueNotFound, text, name).With("task_queue", name)
}

func leaseView(l store.QueueLease, now time.Time) protocol.QueueLease {
	v := protocol.QueueLease{
		Kind: l.Kind, WorkflowID: l.WorkflowID, RunID: l.Run, Owner: l.Owner, ExpiresAt: l.Until,
		Expired: !l.Until.After(now), SessionID: l.Session,
	}
	if l.Kind == protocol.KindWorkflow {
		v.TaskID, v.WorkflowAttempt = engine.TaskID(l.Run, l.Seq), l.Delivery
	} else {
		v.TaskID, v.AttemptID = engine.StepID(l.Run, l.Seq), engine.AttemptID(l.Run, l.Seq, l.Delivery)
	}
	return v
}

// BuildIDs lists the build IDs of a queue: of registered workers, and of operators' decisions.
func (v *View) BuildIDs(ctx context.Context, ns, name string) (protocol.BuildRollout, error) {
	ns = transaction.NamespaceOrDefault(ns)
	g, err := v.queueServers(ctx, ns)
	return protocol.BuildRollout{
		Namespace: ns, Queue: name, StaleAfter: int64(v.opt.Alive.Seconds()), BuildIDs: g.cohorts(name),
	}, err
}

// Limits returns the limits of a queue, or of a namespace.
func (v *View) Limits(ctx context.Context, ns, name string) (protocol.LimitState, error) {
	key := engine.QueueKey{Namespace: transaction.NamespaceOrDefault(ns), Name: name}
	decided, err := v.queueSettings(ctx, key.Namespace)
	return LimitState(key, decided[name]), err
}

// LimitState returns the limits of a queue or, with an empty name, of a namespace.
func LimitState(k engine.QueueKey, q *engine.Queue) protocol.LimitState {
	v := protocol.LimitState{
		Namespace: k.Namespace, Queue: k.Name, Workflow: limitsOf(q.Budget(protocol.KindWorkflow)),
		Activity: limitsOf(q.Budget(protocol.KindActivity)),
	}
	if q != nil {
		v.UpdatedAt = q.UpdatedAt
	}
	return v
}

func limitsOf(l engine.Budget) protocol.Budget {
	return protocol.Budget{MaxLeases: orNone(l.Leases), MaxPerMinute: orNone(l.PerMinute)}
}

func orNone(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

// queueSettings returns the decisions about the queues of a namespace by name; "" is the whole namespace.
func (v *View) queueSettings(ctx context.Context, ns string) (map[string]*engine.Queue, error) {
	m := map[string]*engine.Queue{}
	err := v.store.View(ctx, func(r store.Reader) error {
		rows, err := r.QueueRows(ctx, ns)
		for i := range rows {
			m[rows[i].Name] = &rows[i]
		}
		return err
	})
	return m, err
}

// Cohort returns the workers of a queue with a build; empty if there are none.
func (v *View) Cohort(ctx context.Context, ns, queue, build string) (protocol.BuildCohort, error) {
	g, err := v.queueServers(ctx, ns)
	if err != nil {
		return protocol.BuildCohort{}, err
	}
	for _, c := range g.cohorts(queue) {
		if text(c.BuildID) == build {
			return c, nil
		}
	}
	return protocol.BuildCohort{}, nil
}
