package read

import (
	"context"
	"encoding/json"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// Log lines are read by attempt and deleted by age.

func (r *reader) Logs(ctx context.Context, k store.AttemptKey, after int64, limit int) ([]store.LogBatch, error) {
	var list []store.LogBatch
	const query = "SELECT part, body FROM activity_logs WHERE run_id = $1 AND seq = $2 AND delivery = $3 AND part > $4" +
		" ORDER BY part LIMIT $5"
	err := r.query(ctx, query, []any{k.Run, k.Seq, k.Delivery, after, int64(limit)}, func(v []any) error {
		p := store.LogBatch{LogKey: store.LogKey{AttemptKey: k, Part: db.Int(v[0])}}
		err := json.Unmarshal([]byte(db.Str(v[1])), &p.Lines)
		list = append(list, p)
		return err
	})
	return list, wrapRead(err, "lines of %s", engine.AttemptID(k.Run, k.Seq, k.Delivery))
}

func (r *reader) LogSums(ctx context.Context, run string, seq int64) ([]store.LogSum, error) {
	var list []store.LogSum
	const query = "SELECT delivery, CAST(sum(size) AS BIGINT), max(part) FROM activity_logs WHERE run_id = $1 AND seq = $2" +
		" GROUP BY delivery ORDER BY delivery"
	err := r.query(ctx, query, []any{run, seq}, func(v []any) error {
		list = append(list, store.LogSum{Delivery: db.Int(v[0]), Size: db.Int(v[1]), Last: db.Int(v[2])})
		return nil
	})
	return list, wrapRead(err, "lines of %s", engine.StepID(run, seq))
}

// The age is that of the store's time, at which the lines were stored. The times in the lines are those of a worker's
// clock, which may be wrong.
func (r *reader) OldLogs(ctx context.Context, before time.Time, limit int) ([]store.LogKey, error) {
	var list []store.LogKey
	const query = "SELECT run_id, seq, delivery, part FROM activity_logs WHERE at < $1 ORDER BY at LIMIT $2"
	err := r.query(ctx, query, []any{micros(before), int64(limit)}, func(v []any) error {
		list = append(list, store.LogKey{
			AttemptKey: store.AttemptKey{Run: db.Str(v[0]), Seq: db.Int(v[1]), Delivery: db.Int(v[2])}, Part: db.Int(v[3]),
		})
		return nil
	})
	return list, wrapRead(err, "old lines")
}

func (r *reader) FirstLog(ctx context.Context) (at time.Time, err error) {
	err = r.query(ctx, "SELECT at FROM activity_logs ORDER BY at LIMIT 1", nil, func(v []any) error {
		at = time.UnixMicro(db.Int(v[0])).UTC()
		return nil
	})
	return at, wrapRead(err, "oldest lines")
}
