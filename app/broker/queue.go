package broker

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Operators' settings of queues and builds are stored, so they survive restarts of all apps. Each app applies a change
// when the notification of its commit arrives. The audit record is written in the same transaction.

// DecideBuild drains, resumes or promotes a build ID of a queue, or rolls back its promotion. The queue and the build
// need not be known.
func (b *Broker) DecideBuild(ctx context.Context, in protocol.BuildRequest) (protocol.BuildState, error) {
	id := ""
	if in.BuildID != nil {
		id = *in.BuildID
	}
	if len(id) > protocol.MaxName || in.BuildID != nil && id == "" || strings.ContainsRune(id, 0) {
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
		Namespace: transaction.NamespaceOrDefault(in.Namespace), Name: in.Queue,
	}, decision, store.Audit{
		Identity: in.Identity, Action: "task_queue.build." + in.Verb, Detail: cmp.Or(id, "(no build id)"),
	})
	c := view.Cohort(q, id)
	s := protocol.BuildState{
		Namespace: q.Namespace, Queue: in.Queue, BuildID: in.BuildID, Intent: c.Intent, DrainedAt: c.DrainedAt,
		PromotedAt: c.PromotedAt, Selected: c.Selected,
	}
	if err == nil && s.Selected && id != "" {
		// Only warn, because builds are often promoted before their first worker starts.
		s.Warning, err = b.unservedBuildWarning(ctx, s)
	}
	return s, err
}

// unservedBuildWarning returns a warning if no live worker of the promoted build accepts tasks. A worker may start
// later, but if the build ID is misspelled, every new run waits.
func (b *Broker) unservedBuildWarning(ctx context.Context, s protocol.BuildState) (string, error) {
	has, err := b.view.Cohort(ctx, s.Namespace, s.Queue, *s.BuildID)
	if err != nil || has.ActiveWorkers > 0 {
		return "", err
	}
	if has.DrainingWorkers > 0 {
		return fmt.Sprintf(
			"all live workers of queue %s with build %s are draining; new runs are pinned to this build and wait for another worker",
			s.Queue, *s.BuildID,
		), nil
	}
	return fmt.Sprintf(
		"no live worker of queue %s has build %s; new runs are pinned to this build and wait for such a worker", s.Queue,
		*s.BuildID,
	), nil
}

// maxBudget is the highest limit of a queue.
const maxBudget = 1_000_000_000

// Limit sets the limits of a queue, or of all queues of a namespace together.
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
		member := protocol.TaskLimits[l.kind]
		for field, n := range map[string]*int{"max_active_leases": l.MaxLeases, "max_dispatches_per_minute": l.MaxPerMinute} {
			if n != nil && (*n < 1 || *n > maxBudget) {
				return protocol.LimitState{}, protocol.Invalid(member+"."+field, "must be null or 1 to %d", maxBudget)
			}
		}
		own := engine.Budget{Leases: storedLimit(l.MaxLeases), PerMinute: storedLimit(l.MaxPerMinute)}
		limits[l.kind] = own
		detail += fmt.Sprintf("%s: %d leases, %d a minute; ", member, own.Leases, own.PerMinute)
	}
	key := engine.QueueKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), Name: in.Queue}
	action := "task_queue.limit"
	if key.Name == "" {
		action = "namespace.limit"
	}
	// A request without any limit is probably a mistake, not a request to remove all limits.
	if len(limits) == 0 {
		return protocol.LimitState{}, protocol.Invalid(
			protocol.ActivityTaskLimit, "set workflow_tasks, activity_tasks or both",
		)
	}
	q, err := b.decideQueue(
		ctx, key, engine.LimitQueue{Limits: limits}, store.Audit{Identity: in.Identity, Action: action, Detail: detail},
	)
	return view.LimitState(key, &q), err
}

// storedLimit returns a limit as it is stored: 0 means no limit.
func storedLimit(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// decideQueue commits a change of a queue's settings together with its audit record.
func (b *Broker) decideQueue(
	ctx context.Context, k engine.QueueKey, in engine.QueueChange, audit store.Audit,
) (engine.Queue, error) {
	if len(k.Name) > protocol.MaxName {
		return engine.Queue{Namespace: k.Namespace}, protocol.Invalid("task_queue", "is longer than 255 bytes")
	}
	return transaction.Commit[engine.Queue](ctx, b.store, store.Transaction{
		Needs: store.Keys{Queues: []engine.QueueKey{k}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			q, err := engine.DecideQueue(rows.Queue(k), k, in, now)
			audit.At, audit.Namespace, audit.Target = history.At(now), k.Namespace, cmp.Or(k.Name, k.Namespace)
			return store.Writes{Queues: []engine.Queue{q}, Audit: []store.Audit{audit}, Answer: q}, err
		},
	})
}
