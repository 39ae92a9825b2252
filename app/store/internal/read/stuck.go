package read

import (
	"context"
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A pass of package view decides once per routing key whether a live worker may lease its tasks. These queries read the
// routing keys that have ready tasks, and, for routing keys without a worker, the runs whose stuck mark must change.

func (r *reader) ReadyRoutingKeys(ctx context.Context) (list []store.ReadyRoutingKey, err error) {
	query := "SELECT namespace, queue, kind, lane FROM lanes WHERE " + record.HasReady(r.dialect)
	err = r.query(ctx, query, nil, func(v []any) error {
		l := store.ReadyRoutingKey{
			Namespace: db.Str(v[0]), Queue: db.Str(v[1]), Kind: protocol.TaskKind(db.Str(v[2])), Text: db.Str(v[3]),
		}
		kind, key, ok := record.ParseRoutingKey(l.Text)
		if !ok {
			return nil
		}
		l.Key, l.InSession = key, strings.TrimPrefix(kind, record.SuspectKeyPrefix) == record.SessionKeyKind
		list = append(list, l)
		return nil
	})
	return list, wrapRead(err, "routing keys with ready tasks")
}

// unservedColumns are the parameters for each routing key without a worker: the range of its routes, the time since
// which a task must have been ready, and the mark of its runs.
var unservedColumns = []db.Column{
	db.Text("low"), db.Text("high"), db.Num("ready_by"), db.Text("reason"), db.Text("message"),
}

func (r *reader) Unserved(
	ctx context.Context, keys []store.UnservedRoutingKey, limit int,
) (list []store.UnservedRun, err error) {
	rows := db.NewRowset(unservedColumns)
	for _, l := range keys {
		low, high := routes(l)
		rows.S(low).S(high).I(micros(l.Before)).S(string(l.Reason)).S(l.Message)
	}
	marked, unmarked := unservedRuns(r.dialect, limit)
	args := r.dialect.Keys(rows)
	err = r.query(ctx, marked, args, func(v []any) error {
		list = append(list, store.UnservedRun{Run: db.Str(v[0])})
		return nil
	})
	if err == nil && len(keys) > 0 {
		err = r.query(ctx, unmarked, args, func(v []any) error {
			list = append(list, store.UnservedRun{Run: db.Str(v[0]), Stuck: &engine.Stuck{
				Since: history.Micros(db.Int(v[1])), Reason: protocol.WaitReason(db.Str(v[2])), Message: db.Str(v[3]),
			}})
			return nil
		})
	}
	return list, wrapRead(err, "runs without a worker")
}

// routes returns the first and the last route of a routing key. The routing word of a session without a holder begins
// with +.
func routes(l store.UnservedRoutingKey) (low, high string) {
	of := strings.Join([]string{l.Namespace, l.Queue, string(l.Kind), l.Text}, record.RouteSeparator)
	if l.Place {
		return of + record.RouteSeparator + "+", of + record.RouteSeparator + ","
	}
	return of + record.RouteSeparator, of + string(record.RouteSeparator[0]+1)
}

// unservedRuns returns the statements that list runs whose mark must be removed, and runs that must be marked.
func unservedRuns(d db.Dialect, limit int) (marked, unmarked string) {
	const within = "t.route >= k.low AND t.route < k.high AND t.ready_at <= k.ready_by"
	marked = fmt.Sprintf("SELECT r.run_id FROM runs AS r WHERE r.unserved IS NOT NULL AND NOT EXISTS"+
		" (SELECT 1 FROM %s AS k WHERE k.reason = r.unserved AND EXISTS"+
		" (SELECT 1 FROM tasks AS t WHERE t.run_id = r.run_id AND %s)) LIMIT %d",
		d.List(unservedColumns), strings.ReplaceAll(within, "t.route", noIndexPrefix(d)+"t.route"), limit)
	tasks := "tasks AS t ON " + within
	if d.Shared { // each routing key is then read from its range of the index
		tasks = "LATERAL (SELECT t.run_id, t.ready_at FROM tasks AS t WHERE " + within + " OFFSET 0) AS t"
	}
	unmarked = fmt.Sprintf("SELECT t.run_id, min(t.ready_at), min(k.reason), min(k.message) FROM %s AS k CROSS JOIN %s"+
		" CROSS JOIN runs AS r WHERE r.run_id = t.run_id AND r.unserved IS NULL AND r.closed_at IS NULL"+
		" GROUP BY t.run_id LIMIT %d", d.List(unservedColumns), tasks, limit)
	return marked, unmarked
}

// noIndexPrefix returns a prefix that prevents SQLite from using an index of the column after it.
func noIndexPrefix(d db.Dialect) string {
	if d.Shared {
		return ""
	}
	return "+"
}

func (r *reader) StuckUpTo(ctx context.Context, namespace string, most int) (n int, err error) {
	err = r.query(ctx, stuckUpTo(), []any{namespace, int64(most)}, func(v []any) error {
		n = int(db.Int(v[0]))
		return nil
	})
	return n, wrapRead(err, "count of stuck runs")
}

func stuckUpTo() string {
	return "SELECT count(*) FROM (SELECT 1 FROM runs AS r WHERE r.namespace = $1 AND " + record.StuckRun("r") +
		" LIMIT $2) AS few"
}

func (r *reader) StuckCounts(ctx context.Context) (list []store.StuckCount, err error) {
	err = r.query(ctx, stuckCounts(), nil, func(v []any) error {
		list = append(list, store.StuckCount{
			Namespace: db.Str(v[0]), Reason: protocol.WaitReason(db.Str(v[1])), Runs: int(db.Int(v[2])),
		})
		return nil
	})
	return list, wrapRead(err, "counts of stuck runs")
}

func stuckCounts() string {
	return "SELECT r.namespace, COALESCE(r.failing, r.unserved), count(*) FROM runs AS r WHERE " + record.StuckRun("r") +
		" GROUP BY 1, 2 ORDER BY 1, 2"
}
