package read

import (
	"context"
	"slices"
	"strconv"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The leases of a worker are stored in the rows of tasks, runs and sessions, each of which has an index by owner. The
// cost of this query depends only on the number of leases held by this worker.

func (r *reader) Worker(ctx context.Context, k engine.WorkerKey) (w engine.Worker, err error) {
	err = r.queryRow(ctx, selectAll(record.Workers)+" WHERE namespace = $1 AND worker_id = $2", []any{
		k.Namespace, k.ID,
	}, func(v []any) (err error) {
		w, err = record.ReadWorker(v)
		return err
	})
	return w, wrapRead(err, "worker %s", k.ID)
}

// Workers lists by ID. Queues are in the JSON document, so the filter on them is applied to the pages that were read.
func (r *reader) Workers(ctx context.Context, q store.WorkerQuery) ([]engine.Worker, error) {
	if q.Limit <= 0 {
		q.Limit = defaultLimit
	}
	var list []engine.Worker
	for after := q.AfterID; ; {
		db := r.list(ctx, q.Limit).Order("worker_id, namespace").Where("worker_id > ?", after)
		if q.Namespace != "" {
			db = db.Where("namespace = ?", q.Namespace)
		}
		if q.Holding {
			db = db.Where(holdsLeaseOrSession)
		}
		var rows []WorkerModel
		if err := db.Find(&rows).Error; err != nil {
			return nil, wrapRead(err, "workers")
		}
		for _, m := range rows {
			w, err := record.ReadWorker([]any{
				m.Namespace, m.WorkerID, m.Incarnation, m.Status, m.AliveUntil, m.UpdatedAt, m.Body,
			})
			if err != nil {
				return nil, err
			}
			if q.Queue == "" || slices.Contains(w.Queues, q.Queue) {
				list = append(list, w)
			}
			if len(list) == q.Limit {
				return list, nil
			}
			after = w.ID
		}
		if len(rows) < q.Limit {
			return list, nil
		}
	}
}

// holdsLeaseOrSession is the condition that a worker has a leased task or a session. The indexes on owners contain no
// other rows.
const holdsLeaseOrSession = "(EXISTS (SELECT 1 FROM tasks WHERE tasks.namespace = workers.namespace AND tasks.owner = workers.worker_id)" +
	" OR EXISTS (SELECT 1 FROM runs WHERE runs.namespace = workers.namespace AND runs.owner = workers.worker_id)" +
	" OR EXISTS (SELECT 1 FROM sessions WHERE sessions.namespace = workers.namespace AND sessions.owner = workers.worker_id AND sessions.status = 'active'))"

// Owned returns the leased tasks of a worker: activities are rows of tasks, leased workflow tasks are part of their
// runs' rows. Both indexes by owner contain only leased tasks.
func (r *reader) Owned(ctx context.Context, k engine.WorkerKey, incarnation string) ([]store.TaskRef, error) {
	var list []store.TaskRef
	const tasks = "SELECT run_id, seq, body FROM tasks WHERE namespace = $1 AND owner = $2 ORDER BY run_id, seq"
	err := r.query(ctx, tasks, []any{k.Namespace, k.ID}, func(v []any) error {
		a, err := record.ReadActivity(db.Str(v[0]), k.Namespace, db.Int(v[1]), db.Str(v[2]))
		if err == nil && (incarnation == "" || a.Incarnation == incarnation) {
			list = append(list, store.TaskRef{
				Kind: protocol.KindActivity, Run: a.RunID, Seq: a.Seq, Delivery: a.Delivery, Session: a.SessionID, PollID: a.PollID,
				Incarnation: a.Incarnation, Redeliveries: a.Redeliveries,
				App: a.Lease.App, LeasedAt: a.LeasedAt,
			})
		}
		return err
	})
	if err != nil {
		return nil, wrapRead(err, "activities of worker %s", k.ID)
	}
	runs := selectAll(record.Runs) + " WHERE namespace = $1 AND owner = $2 ORDER BY run_id"
	err = r.query(ctx, runs, []any{k.Namespace, k.ID}, func(v []any) error {
		h, err := record.ReadHead(v)
		if err == nil && h.Task != nil && (incarnation == "" || h.Task.Incarnation == incarnation) {
			list = append(list, store.TaskRef{
				Kind: protocol.KindWorkflow, Run: h.ID, Seq: h.Task.Number, Delivery: h.Task.Delivery, PollID: h.Task.PollID,
				Incarnation: h.Task.Incarnation, Redeliveries: h.Task.Redeliveries,
				App: h.Task.App, LeasedAt: h.Task.LeasedAt,
			})
		}
		return err
	})
	return list, wrapRead(err, "workflow tasks of worker %s", k.ID)
}

// Suspects reads suspects by two partial indexes, of rows of tasks and of runs.
func (r *reader) Suspects(ctx context.Context, namespace string) ([]store.SuspectRef, error) {
	var list []store.SuspectRef
	where, args := "suspect IS NOT NULL", []any{}
	if namespace != "" {
		where, args = where+" AND namespace = $1", []any{namespace}
	}
	tasks := "SELECT run_id, seq, body, namespace FROM tasks WHERE " + where + " ORDER BY run_id, seq"
	err := r.query(ctx, tasks, args, func(v []any) error {
		a, err := record.ReadActivity(db.Str(v[0]), db.Str(v[3]), db.Int(v[1]), db.Str(v[2]))
		if err == nil && a.Suspect != nil {
			list = append(list, store.SuspectRef{
				Namespace: a.Namespace, Queue: a.Queue, Run: a.RunID, Seq: a.Seq, State: a.State, Suspicion: a.Suspect,
			})
		}
		return err
	})
	if err != nil {
		return nil, wrapRead(err, "suspects among activities")
	}
	err = r.query(ctx, selectAll(record.Runs)+" WHERE "+where+" ORDER BY run_id", args, func(v []any) error {
		h, err := record.ReadHead(v)
		if err == nil && h.Task != nil && h.Task.Suspect != nil {
			list = append(list, store.SuspectRef{
				Namespace: h.Namespace, Queue: h.Queue, Run: h.ID, State: h.Task.State, Suspicion: h.Task.Suspect,
			})
		}
		return err
	})
	return list, wrapRead(err, "suspects among workflow tasks")
}

func (r *reader) Holdings(ctx context.Context, namespace string) (map[string]store.Holding, error) {
	now, err := r.Now(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]store.Holding{}
	// places: 1 for held sessions, 2 for prepared ones, 3 for suspended state
	query := "SELECT owner, count(*), 0, 0, CAST(0 AS bigint), NULL FROM tasks WHERE namespace = $1 AND owner IS NOT NULL GROUP BY owner" +
		" UNION ALL SELECT owner, count(*), count(*), 0, 0, NULL FROM runs" +
		" WHERE namespace = $1 AND owner IS NOT NULL GROUP BY owner" +
		" UNION ALL SELECT owner, 0, 0, count(*), 1, units FROM sessions" +
		" WHERE namespace = $1 AND owner IS NOT NULL AND status = 'active' AND lease_until > $2 GROUP BY owner, units" +
		" UNION ALL SELECT prepare_for, 0, 0, count(*), 2, prepare_units FROM sessions" +
		" WHERE namespace = $1 AND prepare_for IS NOT NULL AND prepare_until > $2 GROUP BY prepare_for, prepare_units" +
		" UNION ALL SELECT owner, 0, 0, count(*), 3, units FROM sessions WHERE namespace = $1 AND units IS NOT NULL" +
		" AND owner IS NOT NULL AND (status <> 'active' OR lease_until <= $2) AND lease_until > $2 - " +
		strconv.FormatInt(engine.SuspendedTime.Microseconds(), 10) + " GROUP BY owner, units"
	err = r.query(ctx, query, []any{namespace, micros(now)}, func(v []any) error {
		h := all[db.Str(v[0])]
		h.Leases += int(db.Int(v[1]))
		h.WorkflowTasks += int(db.Int(v[2]))
		n := int(db.Int(v[3]))
		resources, err := record.ReadHeldResources(v[5])
		switch db.Int(v[4]) {
		case 1:
			h.Sessions += n
			h.Used.Add(resources.Resources, n)
		case 2:
			h.Prepared += n
			h.Used.Add(resources.Resources, n)
		case 3:
			if h.Suspended == nil {
				h.Suspended = map[string]engine.Amounts{}
			}
			some := h.Suspended[resources.Incarnation]
			some.Add(resources.Resources, n)
			h.Suspended[resources.Incarnation] = some
		}
		all[db.Str(v[0])] = h
		return err
	})
	return all, wrapRead(err, "holdings")
}
