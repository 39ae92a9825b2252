package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A schedule fires unattended, so errors in it must be reported when it is created. Verbs that cause many firings may
// take long and count as long requests.

// Schedules is the part of the broker for schedules.
type Schedules interface {
	CreateSchedule(context.Context, protocol.ScheduleRequest) (protocol.ScheduleReceipt, error)
	UpdateSchedule(context.Context, protocol.ScheduleRequest) (protocol.ScheduleReceipt, error)
	PauseSchedule(ctx context.Context, namespace, id, note string) (protocol.ScheduleReceipt, error)
	ResumeSchedule(ctx context.Context, namespace, id, note string) (protocol.ScheduleReceipt, error)
	DeleteSchedule(ctx context.Context, namespace, id string) (protocol.ScheduleReceipt, error)
	TriggerSchedule(ctx context.Context, namespace, id, overlap string) (protocol.ScheduleReceipt, error)
	BackfillSchedule(
		ctx context.Context, namespace, id string, from, to time.Time, overlap string,
	) (protocol.ScheduleReceipt, error)
}

func scheduleRoutes(contract, ours lineFunc) []route {
	const one = "/schedules/{schedule}"
	backfill := audited(
		"schedule.backfill", contract(post, one+"/backfill", "backfill_schedule", auth.Operator, backfillSchedule),
	)
	backfill.Limit = serve.Held
	return []route{
		contract(get, "/schedules", "list_schedules", auth.Viewer, listSchedules),
		audited("schedule.create", contract(post, "/schedules", "create_schedule", auth.Operator, createSchedule)),
		contract(get, one, "describe_schedule", auth.Viewer, describeSchedule),
		audited("schedule.update", contract(methodPut, one, "update_schedule", auth.Operator, updateSchedule)),
		audited("schedule.delete", contract(del, one, "delete_schedule", auth.Operator, deleteSchedule)),
		contract(get, one+"/history", "schedule_history", auth.Viewer, scheduleHistory),
		audited("schedule.pause", contract(post, one+"/pause", "pause_schedule", auth.Operator, pauseSchedule)),
		audited("schedule.resume", contract(post, one+"/resume", "resume_schedule", auth.Operator, resumeSchedule)),
		audited("schedule.trigger", contract(post, one+"/trigger", "trigger_schedule", auth.Operator, triggerSchedule)),
		backfill,
		ours(get, "/api/sojourn/schedule-times", "schedule_times", auth.Viewer, scheduleTimes),
	}
}

func listSchedules(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.ScheduleListRequest{
		Namespace: c.NS, Status: q.text("status"), WorkflowType: q.text("workflow_type"), Query: q.text("query"),
		PageSize: q.number("page_size", 1, 200), PageToken: q.text("next_page_token"), Values: q.valuesOf(),
	}
	if q.err != nil {
		return response{}, q.err
	}
	list, next, err := a.opt.ScheduleViews.Schedules(c.Ctx, in)
	for i := range list {
		view.TruncateSchedule(&list[i], in.Values)
	}
	body := schedulesResponse{Namespace: c.NS, Schedules: list}
	if next != "" {
		body.NextPageToken = &next
	}
	return ok(body, err)
}

func createSchedule(a *API, c *call) (response, error) {
	in, err := c.schedule()
	if err != nil {
		return response{}, err
	}
	out, err := a.opt.Schedules.CreateSchedule(c.Ctx, in)
	c.about = out.ScheduleID
	return response{http.StatusCreated, out}, err
}

// schedule reads a request about the schedule of the path, or of the body where the path has none.
func (c *call) schedule() (in protocol.ScheduleRequest, err error) {
	if err = c.Read(&in); err != nil {
		return in, err
	}
	in.Namespace = c.NS
	if id := c.PathValue("schedule"); id != "" {
		in.ID, c.about = id, id
	}
	return in, nil
}

func updateSchedule(a *API, c *call) (response, error) {
	in, err := c.schedule()
	if err != nil {
		return response{}, err
	}
	return ok(a.opt.Schedules.UpdateSchedule(c.Ctx, in))
}

func describeSchedule(a *API, c *call) (response, error) {
	q := c.query()
	values := q.valuesOf()
	if q.err != nil {
		return response{}, q.err
	}
	out, err := a.opt.ScheduleViews.Schedule(c.Ctx, c.NS, c.PathValue("schedule"))
	view.TruncateSchedule(&out, values)
	return ok(out, err)
}

func deleteSchedule(a *API, c *call) (response, error) {
	c.about = c.PathValue("schedule")
	return ok(a.opt.Schedules.DeleteSchedule(c.Ctx, c.NS, c.about))
}

func pauseSchedule(a *API, c *call) (response, error) {
	return changeWithNote(c, a.opt.Schedules.PauseSchedule)
}

func resumeSchedule(a *API, c *call) (response, error) {
	return changeWithNote(c, a.opt.Schedules.ResumeSchedule)
}

func changeWithNote(
	c *call, verb func(ctx context.Context, namespace, id, note string) (protocol.ScheduleReceipt, error),
) (response, error) {
	var in scheduleNote
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	c.about = c.PathValue("schedule")
	return ok(verb(c.Ctx, c.NS, c.about, orBlank(in.Note)))
}

func triggerSchedule(a *API, c *call) (response, error) {
	var in triggerBody
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	c.about = c.PathValue("schedule")
	return ok(a.opt.Schedules.TriggerSchedule(c.Ctx, c.NS, c.about, orBlank(in.Overlap)))
}

func backfillSchedule(a *API, c *call) (response, error) {
	var in backfillBody
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	var times [2]time.Time
	for i, text := range []string{in.Start, in.End} {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return response{}, protocol.Invalid([]string{"start_time", "end_time"}[i], "must be a time as 2026-01-01T00:00:00Z")
		}
		times[i] = at
	}
	c.about = c.PathValue("schedule")
	return ok(a.opt.Schedules.BackfillSchedule(c.Ctx, c.NS, c.about, times[0], times[1], orBlank(in.Overlap)))
}

func orBlank(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func scheduleHistory(a *API, c *call) (response, error) {
	q := c.query()
	limit, from, read := q.number("limit", 1, 1000), q.number("after_sequence", 0, 1<<53),
		a.opt.ScheduleViews.ScheduleHistory
	if q.flag("newest_first") {
		from, read = q.number("before_sequence", 0, 1<<53), a.opt.ScheduleViews.ScheduleHistoryBack
	}
	if q.err != nil {
		return response{}, q.err
	}
	id := c.PathValue("schedule")
	events, more, err := read(c.Ctx, c.NS, id, int64(from), limit)
	body := scheduleHistoryResponse{ScheduleID: id, Namespace: c.NS, Events: events, More: more}
	if more {
		next := strconv.FormatInt(events[len(events)-1].Sequence, 10)
		body.NextCursor = &next
	}
	return ok(body, err)
}

// scheduleTimes returns the next firings of a schedule with the spec in the query string.
func scheduleTimes(a *API, c *call) (response, error) {
	q := c.query()
	text, count := q.text("spec"), q.number("count", 1, 100)
	if q.err != nil {
		return response{}, q.err
	}
	var spec protocol.ScheduleSpec
	if err := httpjson.Decode([]byte(text), &spec); err != nil {
		return response{}, err
	}
	times, err := a.opt.ScheduleViews.ScheduleTimes(c.Ctx, spec, cmp.Or(count, 5))
	return ok(scheduleTimesResponse{times}, err)
}
