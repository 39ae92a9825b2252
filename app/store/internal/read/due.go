package read

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/clock"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// Every app sweeps due times. Due reads the beginnings of partial indexes on due times, which contain only rows with a
// due time.

// Each subquery reads the first entries of one index and has a limit. A single query with one condition over all five
// tables would scan them.
func (r *reader) Due(ctx context.Context, now time.Time, limit int) ([]store.Due, error) {
	var list []store.Due
	const query = "SELECT * FROM (SELECT 'run' AS kind, due_at, run_id, 0 AS seq, '' AS namespace, '' AS session FROM runs" +
		" WHERE due_at <= $1 ORDER BY due_at LIMIT $2) AS r" +
		" UNION ALL SELECT * FROM (SELECT 'activity', due_at, run_id, seq, '', '' FROM tasks WHERE due_at <= $1 ORDER BY due_at LIMIT $2) AS t" +
		" UNION ALL SELECT * FROM (SELECT kind, due_at, run_id, seq, '', '' FROM items WHERE due_at <= $1 ORDER BY due_at LIMIT $2) AS i" +
		" UNION ALL SELECT * FROM (SELECT 'session', due_at, '', 0, namespace, session_id FROM sessions WHERE due_at <= $1 ORDER BY due_at LIMIT $2) AS s" +
		" UNION ALL SELECT * FROM (SELECT 'schedule', due_at, '', 0, namespace, schedule_id FROM schedules WHERE due_at <= $1 ORDER BY due_at LIMIT $2) AS d" +
		" ORDER BY 2 LIMIT $2"
	err := r.query(ctx, query, []any{micros(now), int64(limit)}, func(v []any) error {
		if db.Str(v[0]) == string(store.DueSchedule) {
			list = append(list, store.Due{
				Kind: store.DueSchedule, At: time.UnixMicro(db.Int(v[1])).UTC(),
				Schedule: engine.ScheduleKey{Namespace: db.Str(v[4]), ID: db.Str(v[5])},
			})
			return nil
		}
		list = append(list, store.Due{
			Kind: store.DueKind(db.Str(v[0])), At: time.UnixMicro(db.Int(v[1])).UTC(), Run: db.Str(v[2]), Seq: db.Int(v[3]),
			Session: engine.SessionKey{Namespace: db.Str(v[4]), ID: db.Str(v[5])},
		})
		return nil
	})
	return list, wrapRead(err, "list due rows")
}

// Each subquery reads the first entry of an index. The query also returns the server's time, so that both times come
// from the same clock.
func (r *reader) NextDue(ctx context.Context, after time.Time) (next, now time.Time, err error) {
	query := "SELECT min(due_at) AS at FROM runs WHERE due_at > $1 UNION ALL SELECT min(due_at) FROM tasks WHERE due_at > $1" +
		" UNION ALL SELECT min(due_at) FROM items WHERE due_at > $1 UNION ALL SELECT min(due_at) FROM sessions WHERE due_at > $1" +
		" UNION ALL SELECT min(due_at) FROM schedules WHERE due_at > $1"
	query = "SELECT at, 0 FROM (" + query + ") AS due"
	if r.dialect.Shared {
		query += " UNION ALL SELECT " + clock.SQL + ", 1"
	} else {
		now = r.clock.Now()
	}
	least, sent := int64(0), r.clock.Steady()
	err = r.query(ctx, query, []any{micros(after)}, func(v []any) error {
		switch at := db.Int(v[0]); {
		case db.Int(v[1]) == 1:
			now = r.clock.At(at, sent)
		case at > 0 && (least == 0 || at < least):
			least = at
		}
		return nil
	})
	if least > 0 {
		next = time.UnixMicro(least).UTC()
	}
	return next, now, wrapRead(err, "next due time")
}

func (r *reader) DueActivities(
	ctx context.Context, namespace string, now time.Time, limit int,
) ([]store.Due, error) {
	var list []store.Due
	err := r.query(ctx, dueActivities, []any{micros(now), namespace, int64(limit)}, func(v []any) error {
		list = append(list, store.Due{
			Kind: store.DueActivity, At: time.UnixMicro(db.Int(v[0])).UTC(), Run: db.Str(v[1]), Seq: db.Int(v[2]),
		})
		return nil
	})
	return list, wrapRead(err, "due activities")
}

// dueActivities excludes ready workflow tasks, which are in the same table as step 0.
const dueActivities = "SELECT due_at, run_id, seq FROM tasks WHERE due_at <= $1 AND namespace = $2 AND seq > 0 ORDER BY due_at, run_id, seq LIMIT $3"
