package read

import (
	"cmp"
	"context"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These queries show an operator why a queue makes no progress: its settings, its leases and its next tasks.

func (r *reader) QueueRows(ctx context.Context, namespace string) ([]engine.Queue, error) {
	var list []engine.Queue
	err := r.query(ctx, selectAll(record.Queues)+" WHERE namespace = $1 OR $1 = '' ORDER BY namespace, queue", []any{
		namespace,
	}, func(v []any) error {
		q, err := record.ReadQueue(v)
		list = append(list, q)
		return err
	})
	return list, wrapRead(err, "decisions about queues")
}

// QueueLeases lists leases by expiry time. A leased activity has its own row; a leased workflow task is stored in the
// row of its run.
func (r *reader) QueueLeases(ctx context.Context, k engine.QueueKey, limit int) ([]store.QueueLease, error) {
	var list []store.QueueLease
	const query = "SELECT * FROM (" +
		"SELECT t.kind AS kind, t.run_id AS run_id, t.seq AS seq, x.workflow_id AS workflow_id, t.owner AS owner, t.due_at AS due_at, t.body AS body" +
		" FROM tasks AS t JOIN runs AS x ON x.run_id = t.run_id WHERE t.namespace = $1 AND t.queue = $2 AND t.owner IS NOT NULL" +
		" UNION ALL SELECT 'workflow', run_id, 0, workflow_id, owner, due_at, state FROM runs WHERE namespace = $1 AND queue = $2 AND owner IS NOT NULL" +
		") AS l ORDER BY due_at, run_id, seq LIMIT $3"
	err := r.query(ctx, query, []any{k.Namespace, k.Name, int64(limit)}, func(v []any) error {
		l := store.QueueLease{
			TaskRef:    store.TaskRef{Kind: protocol.TaskKind(db.Str(v[0])), Run: db.Str(v[1]), Seq: db.Int(v[2])},
			WorkflowID: db.Str(v[3]), Owner: db.Str(v[4]),
		}
		if l.Kind == protocol.KindWorkflow {
			h, err := record.Undocument[engine.Head](db.Str(v[6]))
			if err != nil || h.Task == nil {
				return err
			}
			l.Seq, l.Delivery, l.Until = h.Task.Number, h.Task.Delivery, h.Task.Until
		} else {
			a, err := record.Undocument[engine.Activity](db.Str(v[6]))
			if err != nil {
				return err
			}
			l.Delivery, l.Until, l.Session = a.Delivery, a.Until, a.SessionID
		}
		list = append(list, l)
		return nil
	})
	return list, wrapRead(err, "leases of queue %s", k.Name)
}

func (r *reader) OldestReady(
	ctx context.Context, k engine.QueueKey, kind protocol.TaskKind, limit int,
) ([]store.TaskRef, error) {
	var list []store.TaskRef
	err := r.query(ctx, oldestReady, []any{k.Namespace, k.Name, string(kind), int64(limit)}, func(v []any) error {
		list = append(list, store.TaskRef{Kind: kind, Run: db.Str(v[0]), Seq: db.Int(v[1])})
		return nil
	})
	return list, wrapRead(err, "oldest tasks of queue %s", k.Name)
}

// oldestReady reads the first entries of a range of the index tasks_waiting.
const oldestReady = "SELECT run_id, seq FROM tasks WHERE namespace = $1 AND queue = $2 AND kind = $3 AND state = 'ready' AND owner IS NULL" +
	" ORDER BY ready_at, run_id, seq LIMIT $4"

// ReadyOn uses one statement per route: each route is one range of the index, and a claim reports few routes.
func (r *reader) ReadyOn(ctx context.Context, namespace string, routes []string, limit int) ([]engine.Activity, error) {
	var list []engine.Activity
	const query = "SELECT run_id, seq, body FROM tasks WHERE route = $1 ORDER BY priority, rank, ready_at, run_id, seq LIMIT $2"
	for _, route := range routes {
		err := r.query(ctx, query, []any{route, int64(limit)}, func(v []any) error {
			a, err := record.ReadActivity(db.Str(v[0]), namespace, db.Int(v[1]), db.Str(v[2]))
			list = append(list, a)
			return err
		})
		if err != nil {
			return nil, wrapRead(err, "ready activities")
		}
	}
	slices.SortStableFunc(list, func(x, y engine.Activity) int {
		return cmp.Or(cmp.Compare(x.Priority, y.Priority), cmp.Compare(
			x.Rank, y.Rank,
		), x.ReadyAt.Compare(y.ReadyAt.Time), cmp.Compare(x.RunID, y.RunID),
			cmp.Compare(x.Seq, y.Seq))
	})
	return list, nil
}

// poolWaiters reads the first entries of the index tasks_waiting in the order of their dispatch.
const poolWaiters = "SELECT t.run_id, t.seq, t.body, x.workflow_id FROM (" +
	"SELECT run_id, seq FROM tasks WHERE namespace = $1 AND queue = $2 AND kind = 'activity' AND state = 'ready'" +
	" AND owner IS NULL ORDER BY priority, rank, ready_at, run_id, seq LIMIT $3) AS few" +
	" JOIN tasks AS t ON t.run_id = few.run_id AND t.seq = few.seq JOIN runs AS x ON x.run_id = few.run_id" +
	" ORDER BY t.priority, t.rank, t.ready_at, t.run_id, t.seq"

func (r *reader) PoolWaiters(ctx context.Context, k engine.QueueKey, limit int) ([]store.PoolWaiter, error) {
	var list []store.PoolWaiter
	err := r.query(ctx, poolWaiters, []any{k.Namespace, k.Name, int64(limit)}, func(v []any) error {
		a, err := record.ReadActivity(db.Str(v[0]), k.Namespace, db.Int(v[1]), db.Str(v[2]))
		if err == nil && a.Borrow != nil {
			list = append(list, store.PoolWaiter{
				Run: a.RunID, Seq: a.Seq, WorkflowID: db.Str(v[3]), Priority: a.Priority, FairnessKey: a.FairnessKey,
				Since: a.ReadyAt,
			})
		}
		return err
	})
	return list, wrapRead(err, "waiters of %s", k.Name)
}

// queueOrder sorts entries of the index tasks_waiting and then reads only the rows that it returns.
const queueOrder = "SELECT t.kind, t.priority, t.rank, t.body, x.state FROM (" +
	"SELECT run_id, seq FROM tasks WHERE namespace = $1 AND queue = $2 AND state = 'ready' AND owner IS NULL" +
	" ORDER BY kind, priority, rank, ready_at, run_id, seq LIMIT $3) AS few" +
	" JOIN tasks AS t ON t.run_id = few.run_id AND t.seq = few.seq JOIN runs AS x ON x.run_id = few.run_id" +
	" ORDER BY t.kind, t.priority, t.rank, t.ready_at, t.run_id, t.seq"

func (r *reader) QueueOrder(ctx context.Context, k engine.QueueKey, limit int) ([]store.ReadyTask, error) {
	var list []store.ReadyTask
	err := r.query(ctx, queueOrder, []any{k.Namespace, k.Name, int64(limit)}, func(v []any) error {
		h, err := record.Undocument[engine.Head](db.Str(v[4]))
		if err != nil {
			return err
		}
		t := store.ReadyTask{Kind: protocol.TaskKind(db.Str(v[0])), Priority: int(db.Int(v[1])), Rank: db.Int(v[2])}
		t.Class, t.Weight = h.Fairness()
		if t.Kind == protocol.KindActivity {
			a, err := record.Undocument[engine.Activity](db.Str(v[3]))
			if err != nil {
				return err
			}
			t.Class, t.Weight = a.FairnessIn(&h)
		}
		list = append(list, t)
		return nil
	})
	return list, wrapRead(err, "order of queue %s", k.Name)
}
