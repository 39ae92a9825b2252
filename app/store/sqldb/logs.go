package sqldb

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Lines are many and worth little each, and no decision reads them. So they are written with whatever batch comes,
// and cost those that wait for one no lock and no read.

// logsTable holds what the code of activities logged. Nothing of it is loaded for a decision or locked; a part that
// comes again changes nothing. Since no change of lines locks their run, it may be gone by then, with its namespace:
// what came later would belong to nobody, so it is left out where it is written.
var logsTable = &table{name: "activity_logs", keys: 4, columns: []column{
	text("run_id"), num("seq"), num("delivery"), num("part"), num("at"), num("size"), text("body"),
}}

// logRun names all lines of a run.
var logRun = logsTable.columns[:1]

// applyLogs notes lines that come, at the time of the batch, and lines that go.
func (b *batch) applyLogs(w *store.Writes) error {
	bodies := make([]string, len(w.Logs))
	for i := range w.Logs {
		p := &w.Logs[i]
		body, err := json.Marshal(p.Lines)
		if err != nil {
			return fmt.Errorf("lines of %s: %w", engine.AttemptID(p.Run, p.Seq, p.Delivery), err)
		}
		bodies[i] = string(body)
	}
	for i := range w.Logs {
		p := &w.Logs[i]
		size := int64(protocol.LogSize(p.Lines))
		b.flush.logs.s(p.Run).i(p.Seq).i(p.Delivery).i(p.Part).i(b.now.UnixMicro()).i(size).s(bodies[i])
	}
	for _, k := range w.DropLogs {
		b.flush.goneLogs.s(k.Run).i(k.Seq).i(k.Delivery).i(k.Part)
	}
	return nil
}

func (r *reader) Logs(ctx context.Context, k store.AttemptKey, after int64, limit int) ([]store.LogPart, error) {
	var list []store.LogPart
	const query = "SELECT part, body FROM activity_logs WHERE run_id = $1 AND seq = $2 AND delivery = $3 AND part > $4" +
		" ORDER BY part LIMIT $5"
	err := r.query(ctx, query, []any{k.Run, k.Seq, k.Delivery, after, int64(limit)}, func(v []any) error {
		p := store.LogPart{LogKey: store.LogKey{AttemptKey: k, Part: integer(v[0])}}
		err := json.Unmarshal([]byte(str(v[1])), &p.Lines)
		list = append(list, p)
		return err
	})
	return list, wrap(err, "lines of %s", engine.AttemptID(k.Run, k.Seq, k.Delivery))
}

func (r *reader) LogSums(ctx context.Context, run string, seq int64) ([]store.LogSum, error) {
	var list []store.LogSum
	const query = "SELECT delivery, CAST(sum(size) AS BIGINT), max(part) FROM activity_logs WHERE run_id = $1 AND seq = $2" +
		" GROUP BY delivery ORDER BY delivery"
	err := r.query(ctx, query, []any{run, seq}, func(v []any) error {
		list = append(list, store.LogSum{Delivery: integer(v[0]), Size: integer(v[1]), Last: integer(v[2])})
		return nil
	})
	return list, wrap(err, "lines of %s", engine.StepID(run, seq))
}

// By the time at which they were stored, which the store gave, and not by what the lines say: a worker's clock may
// be wrong.
func (r *reader) OldLogs(ctx context.Context, before time.Time, limit int) ([]store.LogKey, error) {
	var list []store.LogKey
	const query = "SELECT run_id, seq, delivery, part FROM activity_logs WHERE at < $1 ORDER BY at LIMIT $2"
	err := r.query(ctx, query, []any{micros(before), int64(limit)}, func(v []any) error {
		list = append(list, store.LogKey{
			AttemptKey: store.AttemptKey{Run: str(v[0]), Seq: integer(v[1]), Delivery: integer(v[2])}, Part: integer(v[3]),
		})
		return nil
	})
	return list, wrap(err, "old lines")
}

func (r *reader) FirstLog(ctx context.Context) (at time.Time, err error) {
	err = r.query(ctx, "SELECT at FROM activity_logs ORDER BY at LIMIT 1", nil, func(v []any) error {
		at = time.UnixMicro(integer(v[0])).UTC()
		return nil
	})
	return at, wrap(err, "oldest lines")
}
