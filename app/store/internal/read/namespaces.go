package read

import (
	"context"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// A namespace is deleted in steps. Each step deletes a part of the rows that still exist.

func (r *reader) Namespace(ctx context.Context, name string) (n store.Namespace, err error) {
	err = r.queryRow(ctx, selectAll(record.Namespaces)+" WHERE name = $1", []any{name}, func(v []any) (err error) {
		n, err = record.ReadNamespace(v)
		return err
	})
	return n, wrapRead(err, "namespace %s", name)
}

func (r *reader) Namespaces(ctx context.Context) ([]store.Namespace, error) {
	var list []store.Namespace
	err := r.query(ctx, selectAll(record.Namespaces)+" ORDER BY name", nil, func(v []any) error {
		n, err := record.ReadNamespace(v)
		list = append(list, n)
		return err
	})
	return list, wrapRead(err, "namespaces")
}

// Contents returns rows of each kind in any order, because every step of the deletion reads again.
func (r *reader) Contents(ctx context.Context, namespace string, limit int) (c store.Contents, err error) {
	const query = "SELECT * FROM (SELECT 'schedule' AS kind, schedule_id AS id FROM schedules WHERE namespace = $1 ORDER BY schedule_id LIMIT $2) AS d" +
		" UNION ALL SELECT * FROM (SELECT 'run', run_id FROM runs WHERE namespace = $1 ORDER BY started_at, run_id LIMIT $2) AS r" +
		" UNION ALL SELECT * FROM (SELECT 'session', session_id FROM sessions WHERE namespace = $1 ORDER BY session_id LIMIT $2) AS s" +
		" UNION ALL SELECT * FROM (SELECT 'worker', worker_id FROM workers WHERE namespace = $1 ORDER BY worker_id LIMIT $2) AS w"
	err = r.query(ctx, query, []any{namespace, int64(limit)}, func(v []any) error {
		switch id := db.Str(v[1]); db.Str(v[0]) {
		case "run":
			c.Runs = append(c.Runs, id)
		case "schedule":
			c.Schedules = append(c.Schedules, engine.ScheduleKey{Namespace: namespace, ID: id})
		case "session":
			c.Sessions = append(c.Sessions, engine.SessionKey{Namespace: namespace, ID: id})
		default:
			c.Workers = append(c.Workers, engine.WorkerKey{Namespace: namespace, ID: id})
		}
		return nil
	})
	return c, wrapRead(err, "contents of namespace %s", namespace)
}
