package sqldb

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Each decision rewrites the whole schedule, so a decision on an older version would undo later changes. Therefore it
// names the version on which it is based, and is refused if the batch has another version.

// schedule is a schedule in a batch. Its Schedule is nil if the schedule does not exist.
type schedule struct {
	*engine.Schedule
	stored, dirty bool
	wiped         bool                     // its history must be deleted
	events        []protocol.ScheduleEvent // history entries of the next write
}

// Schedule returns a schedule in the state of the batch: a decision sees the changes of earlier ones.
func (b *batch) Schedule(k engine.ScheduleKey) *engine.Schedule {
	if s := b.schedules[k]; s != nil {
		return s.Schedule
	}
	return nil
}

// Schedules are not cached: each is needed only when it is due, and many schedules would evict rows that are needed
// often.
func (b *batch) loadSchedules(keys map[engine.ScheduleKey]bool) []*db.Call {
	missing := db.NewRowset(record.Schedules.Key())
	for k := range keys {
		if b.schedules[k] == nil {
			b.schedules[k] = &schedule{}
			missing.S(k.Namespace).S(k.ID)
		}
	}
	return b.fetch(b.s.st.schedules, missing, func(v []any) error {
		s, err := record.ReadSchedule(v)
		b.schedules[s.Key()] = &schedule{Schedule: &s, stored: true}
		return err
	}, func(v []any) { b.markLocked(engine.ScheduleKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}) })
}

// checkSchedules rejects decisions that are based on another version of a schedule than the version in the batch.
func (b *batch) checkSchedules(list []engine.ScheduleDecision) error {
	for i := range list {
		at := int64(0)
		if s := b.Schedule(list[i].Next.Key()); s != nil {
			at = s.Version
		}
		if list[i].After != at {
			return fmt.Errorf("schedule %s: the decision is based on version %d, but the stored version is %d", list[i].Next.ID, list[i].After, at)
		}
	}
	return nil
}

// If a step deletes the schedule, its history entries are not stored.
func (b *batch) applySchedules(list []engine.ScheduleDecision) {
	for i := range list {
		k := list[i].Next.Key()
		s := b.schedules[k]
		if s == nil {
			s = &schedule{}
			b.schedules[k] = s
		}
		before := engine.ScheduleUsage(s.Schedule)
		s.Schedule, s.dirty = list[i].Next, true
		s.events = append(s.events, list[i].Events...)
		if list[i].Delete {
			s.Schedule, s.events, s.wiped = nil, nil, s.stored
		}
		b.addUsage(k.Namespace, engine.ScheduleUsage(s.Schedule).Minus(before))
	}
}

// The history of a deleted schedule is deleted, too, since another schedule may use the same ID later.
func (b *batch) gatherSchedules() ([]*db.Call, error) {
	rows, gone, goneEvents := db.NewRowset(record.Schedules.Columns), db.NewRowset(record.Schedules.Key()),
		db.NewRowset(record.Schedules.Key())
	events := db.NewRowset(record.ScheduleEvents.Columns)
	keys := slices.SortedFunc(maps.Keys(b.schedules), func(x, y engine.ScheduleKey) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.ID, y.ID))
	})
	for _, k := range keys {
		s := b.schedules[k]
		if s.wiped {
			goneEvents.S(k.Namespace).S(k.ID)
			s.wiped = false
		}
		switch {
		case !s.dirty:
			continue
		case s.Schedule == nil:
			if s.stored {
				gone.S(k.Namespace).S(k.ID)
			}
			s.stored = false
		default:
			body, err := record.Document(s.Schedule)
			if err != nil {
				return nil, fmt.Errorf("schedule %s: %w", k.ID, err)
			}
			rows.S(k.Namespace).S(k.ID).S(s.Status).I(s.DueAt().Micros()).S(body)
			b.dueAt(s.DueAt())
			s.stored = true
		}
		for i := range s.events {
			e := &s.events[i]
			body, err := record.Document(e)
			if err != nil {
				return nil, fmt.Errorf("history of schedule %s: %w", k.ID, err)
			}
			events.S(k.Namespace).S(k.ID).I(e.Sequence).I(e.At.Micros()).S(body)
		}
		s.events, s.dirty = nil, false
	}
	st := b.s.st
	calls := st.dropSchedules.Calls(gone)
	calls = append(calls, st.dropScheduleEvents.Calls(goneEvents)...)
	calls = append(calls, st.putSchedules.Calls(rows)...)
	return append(calls, st.addScheduleEvents.Calls(events)...), nil
}
