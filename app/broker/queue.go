package broker

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// leasesShown is how many leased tasks the detail of a queue shows.
const leasesShown = 200

// Queues lists the task queues of a namespace by name: those that hold a task, that a registered worker serves, or that
// something was decided about.
func (b *Broker) Queues(ctx context.Context, in protocol.QueueList) (protocol.QueuePage, error) {
	ns := change.Namespace(in.Namespace)
	p := protocol.QueuePage{Namespace: ns, Queues: []protocol.QueueState{}}
	after, err := base64.RawURLEncoding.DecodeString(in.PageToken)
	if err != nil {
		return p, protocol.Refuse(protocol.ReasonInvalidPageToken, "%q is no page token", in.PageToken)
	}
	g, err := b.queueSnapshot(ctx, ns)
	if err != nil {
		return p, err
	}
	limit := view.PageSize(in.PageSize, 100, 1000)
	for _, name := range g.names() {
		if name <= string(after) {
			continue
		}
		if len(p.Queues) == limit {
			token := base64.RawURLEncoding.EncodeToString([]byte(p.Queues[limit-1].Name))
			p.NextPageToken = &token
			break
		}
		p.Queues = append(p.Queues, g.state(name))
	}
	return p, nil
}

// Queue shows one task queue: its tasks, its leases, who serves it, its builds and budgets.
func (b *Broker) Queue(ctx context.Context, ns, name string) (protocol.QueueState, error) {
	ns = change.Namespace(ns)
	g, err := b.queueSnapshot(ctx, ns)
	if err != nil {
		return protocol.QueueState{}, err
	}
	if !slices.Contains(g.names(), name) {
		return protocol.QueueState{}, noQueue(name)
	}
	v := g.state(name)
	v.BuildIDs, v.Leases, v.Pollers = g.cohorts(name), []protocol.QueueLease{}, []protocol.QueuePoller{}
	v.Limits = map[string]protocol.Budget{}
	for kind, member := range limited {
		if l := g.decided[name].Budget(kind); l.Bounded() {
			v.Limits[member] = budget(l)
		}
	}
	for _, w := range g.workers[name] {
		v.Pollers = append(v.Pollers, protocol.QueuePoller{
			WorkerID: w.WorkerID, Runtime: w.Runtime, SDKVersion: w.SDKVersion, BuildID: w.BuildID,
			LastHeartbeatAt: w.LastHeartbeatAt,
			Status:          w.Status, Stale: w.Status == protocol.WorkerStale,
		})
	}
	return v, b.store.View(ctx, func(r store.Reader) error {
		leases, err := r.QueueLeases(ctx, engine.QueueKey{Namespace: ns, Name: name}, leasesShown)
		for _, l := range leases {
			v.Leases = append(v.Leases, leaseView(l, g.now))
		}
		return err
	})
}

func noQueue(name string) error {
	return protocol.Refuse(protocol.ReasonQueueNotFound, "queue %s holds no task and no worker serves it", name).
		With("task_queue", name)
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

// BuildIDs lists the build ids of a queue: those of registered workers and those something was decided about.
func (b *Broker) BuildIDs(ctx context.Context, ns, name string) (protocol.BuildRollout, error) {
	ns = change.Namespace(ns)
	g, err := b.queueSnapshot(ctx, ns)
	return protocol.BuildRollout{
		Namespace: ns, Queue: name, StaleAfter: int64(b.opt.Alive.Seconds()), BuildIDs: g.cohorts(name),
	}, err
}

// DecideBuild drains, resumes or promotes a build id of a queue, or takes its promotion back. The queue and the build
// need not have been seen yet.
func (b *Broker) DecideBuild(ctx context.Context, in protocol.BuildRequest) (protocol.BuildState, error) {
	id := ""
	if in.BuildID != nil {
		id = *in.BuildID
	}
	if len(id) > 255 || in.BuildID != nil && id == "" || strings.ContainsRune(id, 0) {
		return protocol.BuildState{}, protocol.Invalid("build_id", "must be null or 1 to 255 bytes, none of them NUL")
	}
	var decision engine.QueueChange
	switch in.Verb {
	case protocol.BuildDrain:
		decision = engine.DrainBuild{BuildID: id}
	case protocol.BuildResume:
		decision = engine.ResumeBuild{BuildID: id}
	case protocol.BuildPromote:
		decision = engine.PromoteBuild{BuildID: id}
	case protocol.BuildRollback:
		decision = engine.RollbackBuild{BuildID: id}
	default:
		return protocol.BuildState{}, protocol.Invalid("verb", "must be drain, resume, promote or rollback")
	}
	q, err := b.decideQueue(ctx, engine.QueueKey{
		Namespace: change.Namespace(in.Namespace), Name: in.Queue,
	}, decision, store.Audit{
		Identity: in.Identity, Action: "task_queue.build." + in.Verb, Detail: cmp.Or(id, "(no build id)"),
	})
	c := cohort(q, id)
	s := protocol.BuildState{
		Namespace: q.Namespace, Queue: in.Queue, BuildID: in.BuildID, Intent: c.Intent, DrainedAt: c.DrainedAt,
		PromotedAt: c.PromotedAt, Selected: c.Selected,
	}
	if err == nil && s.Selected && id != "" {
		s.Warning, err = b.unmanned(ctx, s)
	}
	return s, err
}

// unmanned warns of a promoted build that no living worker of its queue has: it may come yet, but if its name is a
// slip, every new run waits for it.
func (b *Broker) unmanned(ctx context.Context, s protocol.BuildState) (string, error) {
	g, err := b.queueSnapshot(ctx, s.Namespace)
	if err != nil {
		return "", err
	}
	for _, c := range g.cohorts(s.Queue) {
		if text(c.BuildID) == *s.BuildID && c.ActiveWorkers > 0 {
			return "", nil
		}
	}
	return fmt.Sprintf(
		"no live worker of queue %s has build %s: new runs are pinned to it and wait for one", s.Queue, *s.BuildID,
	), nil
}

// limited are the kinds of tasks that have budgets, by the member that says theirs.
var limited = map[protocol.TaskKind]string{
	protocol.KindWorkflow: protocol.WorkflowTaskLimit, protocol.KindActivity: protocol.ActivityTaskLimit,
}

// maxBudget is the highest bound a budget may say.
const maxBudget = 1_000_000_000

// Limit sets the budgets of a queue, or of all queues of a namespace together.
func (b *Broker) Limit(ctx context.Context, in protocol.LimitRequest) (protocol.LimitState, error) {
	limits := map[protocol.TaskKind]engine.Budget{}
	detail := ""
	for _, l := range []struct {
		kind protocol.TaskKind
		*protocol.Budget
	}{{protocol.KindWorkflow, in.Workflow}, {protocol.KindActivity, in.Activity}} {
		if l.Budget == nil {
			continue
		}
		for field, n := range map[string]*int{"max_active_leases": l.MaxLeases, "max_dispatches_per_minute": l.MaxPerMinute} {
			if n != nil && (*n < 1 || *n > maxBudget) {
				return protocol.LimitState{}, protocol.Invalid(limited[l.kind]+"."+field, "must be null or 1 to %d", maxBudget)
			}
		}
		own := engine.Budget{Leases: value(l.MaxLeases), PerMinute: value(l.MaxPerMinute)}
		limits[l.kind] = own
		detail += fmt.Sprintf("%s: %d leases, %d a minute; ", limited[l.kind], own.Leases, own.PerMinute)
	}
	key := engine.QueueKey{Namespace: change.Namespace(in.Namespace), Name: in.Queue}
	action := "task_queue.limit"
	if key.Name == "" {
		action = "namespace.limit"
	}
	if len(limits) == 0 {
		return protocol.LimitState{}, protocol.Invalid(
			protocol.ActivityTaskLimit, "give workflow_tasks, activity_tasks, or both",
		)
	}
	q, err := b.decideQueue(
		ctx, key, engine.LimitQueue{Limits: limits}, store.Audit{Identity: in.Identity, Action: action, Detail: detail},
	)
	return limitState(key, &q), err
}

// Limits are the budgets of a queue, or of a namespace.
func (b *Broker) Limits(ctx context.Context, ns, name string) (protocol.LimitState, error) {
	key := engine.QueueKey{Namespace: change.Namespace(ns), Name: name}
	decided, err := b.decided(ctx, key.Namespace)
	return limitState(key, decided[name]), err
}

func limitState(k engine.QueueKey, q *engine.Queue) protocol.LimitState {
	v := protocol.LimitState{
		Namespace: k.Namespace, Queue: k.Name, Workflow: budget(q.Budget(protocol.KindWorkflow)),
		Activity: budget(q.Budget(protocol.KindActivity)),
	}
	if q != nil {
		v.UpdatedAt = q.UpdatedAt
	}
	return v
}

func budget(l engine.Budget) protocol.Budget {
	return protocol.Budget{MaxLeases: orNone(l.Leases), MaxPerMinute: orNone(l.PerMinute)}
}

func orNone(n int) *int {
	if n == 0 {
		return nil
	}
	return &n
}

func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// decideQueue commits a decision about a queue and notes who made it.
func (b *Broker) decideQueue(
	ctx context.Context, k engine.QueueKey, in engine.QueueChange, note store.Audit,
) (engine.Queue, error) {
	if len(k.Name) > 255 {
		return engine.Queue{Namespace: k.Namespace}, protocol.Invalid("task_queue", "is longer than 255 bytes")
	}
	return change.Commit[engine.Queue](ctx, b.store, store.Change{
		Needs: store.Keys{Queues: []engine.QueueKey{k}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			q, err := engine.DecideQueue(rows.Queue(k), k, in, now)
			note.At, note.Namespace, note.Target = history.At(now), k.Namespace, cmp.Or(k.Name, k.Namespace)
			return store.Writes{Queues: []engine.Queue{q}, Audit: []store.Audit{note}, Answer: q}, err
		},
	})
}

// decided is what was decided about the queues of a namespace, by name; "" is all of it.
func (b *Broker) decided(ctx context.Context, ns string) (map[string]*engine.Queue, error) {
	m := map[string]*engine.Queue{}
	err := b.store.View(ctx, func(r store.Reader) error {
		rows, err := r.QueueRows(ctx, ns)
		for i := range rows {
			m[rows[i].Name] = &rows[i]
		}
		return err
	})
	return m, err
}

// waitersOf are the polls that wait at this app, by queue.
func (b *Broker) waitersOf(ns string) map[string]int {
	m := map[string]int{}
	for _, q := range b.dispatch.Queues() {
		if q.Namespace == ns {
			m[q.Queue] = max(m[q.Queue], q.Waiting)
		}
	}
	return m
}
