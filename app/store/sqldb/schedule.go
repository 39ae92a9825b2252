package sqldb

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A schedule is rewritten whole at each decision, so a decision on an older version would undo what came between. It
// names the version it was made on, and is refused when that is not the batch's.

var (
	schedulesTable = &table{name: "schedules", keys: 2, prune: true, columns: []column{
		text("namespace"), text("schedule_id"), text("status"), num("due_at").opt(), text("body"),
	}}
	scheduleEventsTable = &table{name: "schedule_events", columns: []column{
		text("namespace"), text("schedule_id"), num("seq"), num("at"), text("body"),
	}}
)

// schedule is a schedule in a batch. Its Schedule is nil when there is none.
type schedule struct {
	*engine.Schedule
	stored, dirty bool
	wiped         bool                     // its history goes
	events        []protocol.ScheduleEvent // to be written next
}

// A decision sees what the one before it in the batch has left, as for all other rows.
func (b *batch) Schedule(k engine.ScheduleKey) *engine.Schedule {
	if s := b.schedules[k]; s != nil {
		return s.Schedule
	}
	return nil
}

// The status stands in a column as well, for listings, and is read from there.
func readSchedule(v []any) (engine.Schedule, error) {
	var s engine.Schedule
	if err := json.Unmarshal([]byte(str(v[4])), &s); err != nil {
		return s, fmt.Errorf("schedule %s: %w", str(v[1]), err)
	}
	s.Namespace, s.ID, s.Status = str(v[0]), str(v[1]), str(v[2])
	return s, nil
}

// No cache keeps schedules: each is asked for when it is due, and a fleet of them would push out what is asked for
// all the time.
func (b *batch) loadSchedules(keys map[engine.ScheduleKey]bool) []*Call {
	missing := newRowset(schedulesTable.key())
	for k := range keys {
		if b.schedules[k] == nil {
			b.schedules[k] = &schedule{}
			missing.s(k.Namespace).s(k.ID)
		}
	}
	return b.fetch(b.s.st.schedules, missing, func(v []any) error {
		s, err := readSchedule(v)
		b.schedules[s.Key()] = &schedule{Schedule: &s, stored: true}
		return err
	}, func(v []any) { b.lock(engine.ScheduleKey{Namespace: str(v[0]), ID: str(v[1])}) })
}

// checkSchedules refuses what was decided on another version of a schedule than the batch's.
func (b *batch) checkSchedules(list []engine.ScheduleDecision) error {
	for i := range list {
		at := int64(0)
		if s := b.Schedule(list[i].Next.Key()); s != nil {
			at = s.Version
		}
		if list[i].After != at {
			return fmt.Errorf("schedule %s: decided on version %d, but it is %d", list[i].Next.ID, list[i].After, at)
		}
	}
	return nil
}

// The events of a step that takes the schedule away go with it: there is nothing any more that they could be shown
// at.
func (b *batch) applySchedules(list []engine.ScheduleDecision) {
	for i := range list {
		k := list[i].Next.Key()
		s := b.schedules[k]
		if s == nil {
			s = &schedule{}
			b.schedules[k] = s
		}
		s.Schedule, s.dirty = list[i].Next, true
		s.events = append(s.events, list[i].Events...)
		if list[i].Delete {
			s.Schedule, s.events, s.wiped = nil, nil, s.stored
		}
	}
}

// Of a schedule that goes, its history goes with it: under the same id there may be another one afterwards.
func (b *batch) gatherSchedules() ([]*Call, error) {
	rows, gone, goneEvents := newRowset(schedulesTable.columns), newRowset(schedulesTable.key()),
		newRowset(schedulesTable.key())
	events := newRowset(scheduleEventsTable.columns)
	keys := slices.SortedFunc(maps.Keys(b.schedules), func(x, y engine.ScheduleKey) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.ID, y.ID))
	})
	for _, k := range keys {
		s := b.schedules[k]
		if s.wiped {
			goneEvents.s(k.Namespace).s(k.ID)
			s.wiped = false
		}
		switch {
		case !s.dirty:
			continue
		case s.Schedule == nil:
			if s.stored {
				gone.s(k.Namespace).s(k.ID)
			}
			s.stored = false
		default:
			body, err := document(s.Schedule)
			if err != nil {
				return nil, fmt.Errorf("schedule %s: %w", k.ID, err)
			}
			rows.s(k.Namespace).s(k.ID).s(s.Status).i(s.DueAt().Micros()).s(body)
			b.dueAt(s.DueAt())
			s.stored = true
		}
		for i := range s.events {
			e := &s.events[i]
			body, err := document(e)
			if err != nil {
				return nil, fmt.Errorf("history of schedule %s: %w", k.ID, err)
			}
			events.s(k.Namespace).s(k.ID).i(e.Sequence).i(e.At.Micros()).s(body)
		}
		s.events, s.dirty = nil, false
	}
	st := b.s.st
	calls := st.dropSchedules.calls(gone)
	calls = append(calls, st.dropScheduleEvents.calls(goneEvents)...)
	calls = append(calls, st.putSchedules.calls(rows)...)
	return append(calls, st.addScheduleEvents.calls(events)...), nil
}

func (r *reader) Schedule(ctx context.Context, k engine.ScheduleKey) (s engine.Schedule, err error) {
	err = r.one(ctx, selects(schedulesTable)+" WHERE namespace = $1 AND schedule_id = $2", []any{
		k.Namespace, k.ID,
	}, func(v []any) (err error) {
		s, err = readSchedule(v)
		return err
	})
	return s, wrap(err, "schedule %s", k.ID)
}

func (r *reader) Schedules(ctx context.Context, namespace, after string, limit int) ([]engine.Schedule, error) {
	var list []engine.Schedule
	query := selects(schedulesTable) + " WHERE namespace = $1 AND schedule_id > $2 ORDER BY schedule_id LIMIT $3"
	err := r.query(ctx, query, []any{namespace, after, int64(limit)}, func(v []any) error {
		s, err := readSchedule(v)
		list = append(list, s)
		return err
	})
	return list, wrap(err, "schedules")
}

func (r *reader) ScheduleEvents(
	ctx context.Context, k engine.ScheduleKey, after int64, limit int,
) ([]protocol.ScheduleEvent, error) {
	return r.scheduleEventsBetween(ctx, k, "seq > $3 ORDER BY seq LIMIT $4", after, limit)
}

// People read the newest first; whoever follows a schedule reads on from the last one it knows. Both are the same
// statement from its two ends.
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
		e, err := undocument[protocol.ScheduleEvent](str(v[3]))
		e.ID, e.Sequence, e.At = integer(v[0]), integer(v[1]), history.Micros(integer(v[2]))
		list = append(list, e)
		return err
	})
	return list, wrap(err, "history of schedule %s", k.ID)
}
