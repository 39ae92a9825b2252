package view

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A schedule that ended is kept for a while with its history, so that users can see later why it no longer fires. Lists
// omit schedules that were deleted.

// Schedule returns one schedule.
func (v *View) Schedule(ctx context.Context, ns, id string) (protocol.ScheduleView, error) {
	s, err := FindSchedule(ctx, v.store, engine.ScheduleKey{Namespace: cmp.Or(ns, store.DefaultNamespace), ID: id}, false)
	return viewSchedule(s), err
}

// maxScheduleEvents is the maximum number of schedules that one page of a list reads. A page that ends there may be
// shorter than requested.
const maxScheduleEvents = 5000

// Schedules lists the schedules that match the request, by ID. The page token is the last ID that the previous page
// read.
func (v *View) Schedules(
	ctx context.Context, in protocol.ScheduleListRequest,
) (list []protocol.ScheduleView, next string, err error) {
	limit := in.PageSize
	if limit == 0 {
		limit = 100
	}
	switch in.Status {
	case "", engine.ScheduleActive, engine.SchedulePaused, engine.ScheduleDeleted:
	default:
		return nil, "", protocol.Invalid("status", "must be one of %s, %s, %s", engine.ScheduleActive, engine.SchedulePaused,
			engine.ScheduleDeleted)
	}
	list = []protocol.ScheduleView{}
	err = v.store.View(ctx, func(r store.Reader) error {
		after := in.PageToken
		for read := 0; ; {
			rows, err := r.Schedules(ctx, cmp.Or(in.Namespace, store.DefaultNamespace), after, limit+1)
			if err != nil {
				return err
			}
			for _, s := range rows[:min(limit, len(rows))] {
				after = s.ID
				if s.RemovedAt.IsZero() && matches(in, &s) {
					list = append(list, viewSchedule(s))
				}
				if read++; len(list) == limit || read == maxScheduleEvents {
					break
				}
			}
			switch last := rows[max(0, len(rows)-1):]; {
			case len(last) == 0 || last[0].ID == after:
				return nil
			case len(list) == limit || read >= maxScheduleEvents:
				next = after
				return nil
			}
		}
	})
	return list, next, err
}

// matches reports whether a schedule matches the filters of a list request.
func matches(in protocol.ScheduleListRequest, s *engine.Schedule) bool {
	typ := cmp.Or(s.Action.WorkflowType, s.Action.ActivityType)
	return (in.Status == "" || in.Status == s.Status) &&
		(in.WorkflowType == "" || in.WorkflowType == s.Action.WorkflowType) &&
		(in.Query == "" || strings.Contains(s.ID, in.Query) || strings.Contains(typ, in.Query))
}

// ScheduleHistory reads a schedule's history after a sequence number, and reports whether there is more.
func (v *View) ScheduleHistory(
	ctx context.Context, ns, id string, after int64, limit int,
) ([]protocol.ScheduleEvent, bool, error) {
	return v.scheduleEvents(ctx, ns, id, after, limit, store.Reader.ScheduleEvents)
}

// ScheduleHistoryBack is like ScheduleHistory, in the other direction: it reads the entries before an entry, newest
// first; 0: the newest entries.
func (v *View) ScheduleHistoryBack(
	ctx context.Context, ns, id string, before int64, limit int,
) ([]protocol.ScheduleEvent, bool, error) {
	return v.scheduleEvents(ctx, ns, id, before, limit, store.Reader.ScheduleEventsBack)
}

// eventReader reads a page of a schedule's history in one direction.
type eventReader func(
	r store.Reader, ctx context.Context, k engine.ScheduleKey, from int64, limit int,
) ([]protocol.ScheduleEvent, error)

func (v *View) scheduleEvents(
	ctx context.Context, ns, id string, from int64, limit int, read eventReader,
) (list []protocol.ScheduleEvent, more bool, err error) {
	k := engine.ScheduleKey{Namespace: cmp.Or(ns, store.DefaultNamespace), ID: id}
	if _, err := FindSchedule(ctx, v.store, k, true); err != nil {
		return nil, false, err
	}
	if limit == 0 {
		limit = 100
	}
	err = v.store.View(ctx, func(r store.Reader) (err error) {
		list, err = read(r, ctx, k, from, limit+1)
		return err
	})
	if more = len(list) > limit; more {
		list = list[:limit]
	}
	if list == nil {
		list = []protocol.ScheduleEvent{}
	}
	return list, more, err
}

func viewSchedule(s engine.Schedule) protocol.ScheduleView {
	v := protocol.ScheduleView{
		ScheduleID: s.ID, Namespace: s.Namespace, Kind: protocol.RunOfWorkflow, WorkflowType: s.Action.WorkflowType,
		Status: s.Status,
		Paused: s.Status == engine.SchedulePaused,
		Spec:   s.Spec, Action: s.Action, Overlap: s.Overlap, Jitter: s.Jitter, Note: protocol.OrNil(s.Note),
		Memo:             orObject(s.Memo),
		SearchAttributes: orObject(s.SearchAttributes), Fires: s.Fires, Failures: s.Failures,
		Latest:    protocol.OrNil(s.Latest),
		CreatedAt: s.CreatedAt, UpdatedAt: s.UpdatedAt,
		Info: protocol.ScheduleInfo{Buffered: len(s.Buffered), Skipped: s.Skipped, LastSkip: protocol.OrNil(s.LastSkip)},
	}
	if typ := s.Action.ActivityType; typ != "" {
		v.Kind, v.WorkflowType = protocol.RunOfActivity, typ
	}
	if s.MaxRuns > 0 {
		v.MaxRuns, v.Remaining = &s.MaxRuns, &s.Remaining
	}
	if at := s.NextFire(); !at.IsZero() {
		v.NextFire, v.NextFireAt = &at, &at
	}
	if !s.LastFiredAt.IsZero() {
		v.LastFire, v.LastFiredAt = &s.LastFiredAt, &s.LastFiredAt
	}
	return v
}

func orObject(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 {
		return json.RawMessage(`{}`)
	}
	return raw
}

// ScheduleTimes returns the next times at which a spec would fire, at most count, without jitter.
func (v *View) ScheduleTimes(ctx context.Context, spec protocol.ScheduleSpec, count int) ([]history.Time, error) {
	calendar, err := engine.NewCalendar(spec)
	if err != nil {
		return nil, err
	}
	now, err := v.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	times := []history.Time{}
	for at := calendar.Next(now); !at.IsZero() && len(times) < count; at = calendar.Next(at) {
		times = append(times, history.At(at))
	}
	return times, nil
}

// FindSchedule reads a schedule. With removed it also returns a deleted schedule, for requests of its history.
func FindSchedule(ctx context.Context, st reads, k engine.ScheduleKey, removed bool) (s engine.Schedule, err error) {
	err = st.View(ctx, func(r store.Reader) (err error) {
		s, err = r.Schedule(ctx, k)
		return err
	})
	if errors.Is(err, store.ErrNotFound) || err == nil && !s.RemovedAt.IsZero() && !removed {
		err = protocol.Refuse(protocol.ReasonScheduleNotFound, "schedule %s not found", k.ID).With("schedule_id", k.ID)
	}
	return s, err
}
