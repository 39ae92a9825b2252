package read

import (
	"context"
	"math"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Schedules are listed by ID, which never changes.

func (r *reader) Schedule(ctx context.Context, k engine.ScheduleKey) (s engine.Schedule, err error) {
	err = r.queryRow(ctx, selectAll(record.Schedules)+" WHERE namespace = $1 AND schedule_id = $2", []any{
		k.Namespace, k.ID,
	}, func(v []any) (err error) {
		s, err = record.ReadSchedule(v)
		return err
	})
	return s, wrapRead(err, "schedule %s", k.ID)
}

func (r *reader) Schedules(ctx context.Context, namespace, after string, limit int) ([]engine.Schedule, error) {
	return r.listSchedules(
		ctx, " WHERE namespace = $1 AND schedule_id > $2 ORDER BY schedule_id LIMIT $3", namespace, after, int64(limit),
	)
}

func (r *reader) PlannedSchedules(
	ctx context.Context, after engine.ScheduleKey, limit int,
) ([]engine.Schedule, error) {
	return r.listSchedules(
		ctx, " WHERE due_at IS NOT NULL AND (namespace, schedule_id) > ($1, $2) ORDER BY namespace, schedule_id LIMIT $3",
		after.Namespace, after.ID, int64(limit),
	)
}

func (r *reader) listSchedules(ctx context.Context, which string, args ...any) (list []engine.Schedule, err error) {
	err = r.query(ctx, selectAll(record.Schedules)+which, args, func(v []any) error {
		s, err := record.ReadSchedule(v)
		list = append(list, s)
		return err
	})
	return list, wrapRead(err, "schedules")
}

func (r *reader) ScheduleEvents(
	ctx context.Context, k engine.ScheduleKey, after int64, limit int,
) ([]protocol.ScheduleEvent, error) {
	return r.scheduleEventsBetween(ctx, k, "seq > $3 ORDER BY seq LIMIT $4", after, limit)
}

// Both directions use the same statement: the dashboard reads the newest events first, and a client that follows a
// schedule reads from the last event that it received.
func (r *reader) ScheduleEventsBack(
	ctx context.Context, k engine.ScheduleKey, before int64, limit int,
) ([]protocol.ScheduleEvent, error) {
	if before == 0 {
		before = math.MaxInt64
	}
	return r.scheduleEventsBetween(ctx, k, "seq < $3 ORDER BY seq DESC LIMIT $4", before, limit)
}

func (r *reader) scheduleEventsBetween(
	ctx context.Context, k engine.ScheduleKey, which string, from int64, limit int,
) ([]protocol.ScheduleEvent, error) {
	var list []protocol.ScheduleEvent
	query := "SELECT id, seq, at, body FROM schedule_events WHERE namespace = $1 AND schedule_id = $2 AND " + which
	err := r.query(ctx, query, []any{k.Namespace, k.ID, from, int64(limit)}, func(v []any) error {
		e, err := record.Undocument[protocol.ScheduleEvent](db.Str(v[3]))
		e.ID, e.Sequence, e.At = db.Int(v[0]), db.Int(v[1]), history.Micros(db.Int(v[2]))
		list = append(list, e)
		return err
	})
	return list, wrapRead(err, "history of schedule %s", k.ID)
}
