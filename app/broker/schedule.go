package broker

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/quota"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The engine decides about schedules as about runs. The broker reads the workflows that a decision needs, and commits a
// firing together with the start of its run.

// maxBackfill is the maximum number of firings of one backfill.
const maxBackfill = 1000

// errMoved means that a schedule changed after a step was prepared; the caller prepares the step again.
var errMoved = errors.New("the schedule has moved")

// scheduled is the result of a step on a schedule.
type scheduled struct {
	engine.ScheduleDecision
	before *engine.Schedule
}

// decideSchedule applies one step to a schedule. The workflows that the step may start and end depend on the schedule's
// row, so the row is read first, and read again if it changed meanwhile. The start, the end of the previous workflow
// and the row are one transaction, and the workflow ID contains the time of the firing and is used only once. So no
// firing happens twice.
func (b *Broker) decideSchedule(ctx context.Context, k engine.ScheduleKey, in engine.ScheduleInput) (scheduled, error) {
	for {
		var s *engine.Schedule
		err := b.store.View(ctx, func(r store.Reader) error {
			row, err := r.Schedule(ctx, k)
			if err == nil {
				s = &row
			}
			return err
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return scheduled{}, err
		}
		out, err := b.scheduleTransaction(ctx, k, s, in)
		if !errors.Is(err, errMoved) {
			return out, err
		}
	}
}

// scheduleTransaction prepares a step for the version of the schedule that was read; the transaction compares the
// version under the row's lock.
func (b *Broker) scheduleTransaction(
	ctx context.Context, k engine.ScheduleKey, read *engine.Schedule, in engine.ScheduleInput,
) (scheduled, error) {
	needs := store.Keys{Schedules: []engine.ScheduleKey{k}}
	var begin scheduledRun
	var first []string
	version := int64(0)
	if read != nil {
		version = read.Version
		var err error
		// This workflow ID is a placeholder, because the validation of the action accepts any ID. The started workflow
		// gets the ID of its firing.
		if begin, err = b.scheduledRun(read.Namespace, read.FireID(time.Unix(0, 0)), read.Action); err != nil {
			return scheduled{}, err
		}
		needs.Sessions = begin.sessions()
		needs.Workflows, needs.Current, needs.AllTasks, needs.Chain, needs.Bound = workflowsOf(read, in), true, true, true,
			true
		// Only a backfill may use a workflow ID again.
		if fire, ok := in.(engine.FireSchedule); ok && fire.Backfill && repeatsFirings(read.Action) {
			if first, err = b.firstRuns(ctx, needs.Workflows); err != nil {
				return scheduled{}, err
			}
			needs.Runs = first
		}
	}
	var full *engine.QuotaExceeded
	out, err := transaction.Commit[scheduled](ctx, b.store, store.Transaction{Needs: needs, Decide: func(
		rows store.Rows, now time.Time,
	) (store.Writes, error) {
		s := rows.Schedule(k)
		// The version that was read determines which rows were loaded. For another version the decision might lack a
		// workflow.
		if s == nil && version != 0 || s != nil && s.Version != version {
			return store.Writes{}, errMoved
		}
		var latest *engine.Run
		w := engine.ScheduleEnvironment{Existing: func(id string) (*engine.Workflow, *engine.Run) {
			flow := rows.Workflow(engine.WorkflowKey{Namespace: k.Namespace, ID: id})
			if flow == nil {
				return nil, nil
			}
			return flow, rows.Run(flow.RunID)
		}}
		if s != nil && s.Latest != "" {
			_, latest = w.Existing(s.Latest)
		}
		w.Running = latest != nil && latest.Status.Open()
		if _, creates := in.(engine.CreateSchedule); creates && (s == nil || s.Status == engine.ScheduleDeleted) {
			if err := quotaRefusal(k.Namespace, rows.Quotas(k.Namespace).NewSchedule()); err != nil {
				return store.Writes{}, err
			}
		}
		_, byClient := in.(engine.FireSchedule)
		if _, due := in.(engine.DueSchedule); due || byClient {
			w.Full = func(others, ended int64) protocol.Quota {
				x := rows.Quotas(k.Namespace).NewRun(others, ended)
				if x == nil {
					return ""
				}
				full = x
				return x.Quota
			}
		}
		full = nil
		d, err := engine.DecideSchedule(s, k, w, in, now)
		if err != nil {
			return store.Writes{}, err
		}
		// Refuse a client's request, so that the client can repeat it. A firing that was due is skipped, which the
		// history of the schedule records.
		if byClient && full != nil {
			return store.Writes{}, quotaRefusal(k.Namespace, full)
		}
		var writes store.Writes
		// The previous workflow ends in the transaction that starts the next one, so readers never see both open, or
		// none.
		if d.End != "" && w.Running {
			writes, _, err = transaction.Decide(rows, latest, engine.EndRun{
				Terminate: d.End == "terminate", Reason: "schedule " + k.ID + " fired", Identity: "schedule " + k.ID,
			}, now)
			if err != nil {
				return store.Writes{}, err
			}
		}
		for _, start := range d.Starts {
			if run := rows.Run(start.Replaces); run != nil {
				ended, err := transaction.Replace(rows, run, "schedule "+k.ID, now)
				if err != nil {
					return store.Writes{}, err
				}
				writes.Runs, writes.Workflows = append(writes.Runs, ended.Runs...), append(writes.Workflows, ended.Workflows...)
				writes.Audit = append(writes.Audit, ended.Audit...)
			}
			writes.Runs = append(writes.Runs, begin.run(rows, writes.Runs, start, s.NameRules == 0, now))
			writes.Workflows = append(
				writes.Workflows, engine.Workflow{Namespace: k.Namespace, ID: start.WorkflowID, RunID: start.RunID, Runs: 1},
			)
		}
		switch err := keepResponses(rows, &writes, first, now); {
		case errors.Is(err, errFirstRunNotLoaded):
			return store.Writes{}, errMoved
		case err != nil:
			return store.Writes{}, err
		}
		writes.Schedules = []engine.ScheduleDecision{d}
		writes.Answer = scheduled{d, s}
		return writes, nil
	}})
	if err == nil && full != nil {
		b.store.Quotas().CountRefusal(quota.Refusal{Namespace: k.Namespace, Quota: full.Quota, What: "firing"})
	}
	return out, b.countQuotaRefusal(k.Namespace, "schedule", err)
}

// repeatsFirings reports whether the policies of an action let a backfill fire again for a time that has fired.
func repeatsFirings(a protocol.ScheduleAction) bool {
	return a.ConflictPolicy == protocol.ConflictTerminateExisting ||
		a.ReusePolicy == protocol.ReuseAllow || a.ReusePolicy == protocol.ReuseAfterFailure
}

// workflowsOf returns the workflows that a step may read: the last started one, and workflows that the step may start.
func workflowsOf(s *engine.Schedule, in engine.ScheduleInput) []engine.WorkflowKey {
	ids := []string{s.Latest}
	switch in := in.(type) {
	case engine.FireSchedule:
		// A backfill uses the workflow ID of the scheduled firing for that time, so that no firing happens twice. A
		// manual firing has another ID.
		trigger := engine.ByHand
		if in.Backfill {
			trigger = engine.ByBackfill
		}
		ids = append(ids, s.StartID(in.At, trigger))
	case engine.DueSchedule:
		ids = append(ids, s.FireID(s.NextAt.Time))
		for _, b := range s.Buffered[:min(1, len(s.Buffered))] {
			ids = append(ids, s.StartID(b.At.Time, b.Trigger))
		}
	}
	var keys []engine.WorkflowKey
	for _, id := range ids {
		if id != "" {
			keys = append(keys, engine.WorkflowKey{Namespace: s.Namespace, ID: id})
		}
	}
	return keys
}

// scheduledRun is what an action starts: a workflow, or an activity run with its command.
type scheduledRun struct {
	request  protocol.StartRequest
	args     string
	activity *protocol.Command
}

// scheduledRun checks the action of a schedule and returns what it starts.
func (b *Broker) scheduledRun(ns, id string, a protocol.ScheduleAction) (s scheduledRun, err error) {
	if a.ActivityType == "" {
		if !reflect.ValueOf(a.ActivityOptions).IsZero() {
			return s, protocol.Invalid(
				"activity_type", "is required, because the action has options that only apply to activities",
			)
		}
		s.request, s.args, err = b.startRequest(protocol.StartRequest{
			Namespace: ns, WorkflowID: id, WorkflowType: a.WorkflowType, TaskQueue: a.TaskQueue, Input: a.Input,
			BusinessKey: a.BusinessKey, Memo: a.Memo,
			SearchAttributes: a.SearchAttributes, ExecutionTimeout: int64(a.ExecutionTimeout), RunTimeout: int64(a.RunTimeout),
			ReusePolicy: a.ReusePolicy, ConflictPolicy: a.ConflictPolicy, Identity: "schedule", Headers: a.Headers,
		})
		return s, err
	}
	switch {
	case a.WorkflowType != "":
		return s, protocol.Invalid(
			"activity_type", "and workflow_type cannot both be set; an action starts a workflow or an activity",
		)
	case a.ExecutionTimeout != 0:
		return s, protocol.Invalid("execution_timeout_seconds", "applies to workflows only; use schedule_to_close_timeout")
	case a.RunTimeout != 0:
		return s, protocol.Invalid("run_timeout_seconds", "applies to workflows only; use schedule_to_close_timeout")
	}
	s.request, s.args, s.activity, err = b.activityRequest(a.Activity(ns, id))
	return s, err
}

// sessions returns the session that an activity run of the action needs, if any.
func (s *scheduledRun) sessions() []engine.SessionKey {
	if s.activity == nil || s.activity.Session() == "" {
		return nil
	}
	return []engine.SessionKey{{Namespace: s.request.Namespace, ID: s.activity.Session()}}
}

// run returns the decision that starts the run. before are earlier decisions of the same step, each of which may have
// changed the run's session. oldNames means that the schedule was created before naming rules existed.
func (s *scheduledRun) run(
	rows store.Rows, before []engine.Decision, as engine.ScheduledStart, oldNames bool, now time.Time,
) engine.Decision {
	start := engine.Start{
		RunID: as.RunID, Number: 1, Request: s.request, Arguments: s.args, OldNames: oldNames, Reuses: as.Reuses,
	}
	start.Request.WorkflowID = as.WorkflowID
	if s.activity == nil {
		return transaction.StartRun(rows, start, now)
	}
	return engine.DecideActivityRun(start, *s.activity, engine.Environment{Session: func(id string) *engine.Session {
		key := engine.SessionKey{Namespace: start.Request.Namespace, ID: id}
		for _, d := range slices.Backward(before) {
			for _, c := range slices.Backward(d.Sessions) {
				if c.Session.Key() == key {
					return &c.Session
				}
			}
		}
		return rows.Session(key)
	}}, now)
}

// dueSchedule fires a schedule that is due. A refused start counts as a failed firing, so that the schedule continues.
func (b *Broker) dueSchedule(ctx context.Context, k engine.ScheduleKey) error {
	_, err := b.decideSchedule(ctx, k, engine.DueSchedule{})
	switch {
	case protocol.ReasonOf(err) == protocol.ReasonScheduleNotFound:
		return nil
	case err == nil, engine.IsNotDue(err), protocol.ReasonOf(err) == "":
		return err
	}
	store.Warn(&b.log, err).Str("schedule_id", k.ID).Msg("failed to start the workflow of a schedule")
	return b.failSchedule(ctx, k, err.Error())
}

// recomputeSchedules computes the next times of all schedules again, when the app starts and after a jump of the clock.
func (b *Broker) recomputeSchedules(ctx context.Context) {
	const page = 500
	var after engine.ScheduleKey
	for {
		var list []engine.Schedule
		now, err := b.store.Now(ctx)
		if err == nil {
			err = b.store.View(ctx, func(r store.Reader) (err error) {
				list, err = r.PlannedSchedules(ctx, after, page)
				return err
			})
		}
		for i := range list {
			after = list[i].Key()
			if err == nil {
				err = b.recomputeSchedule(ctx, list[i], now)
			}
		}
		if err != nil && ctx.Err() == nil {
			store.Warn(&b.log, err).Msg("failed to recompute the next times of schedules; the stored times apply")
		}
		if err != nil || len(list) < page {
			return
		}
	}
}

// ClockJumped computes the next times of all schedules again after a jump of the store's clock.
func (b *Broker) ClockJumped(ctx context.Context) { b.recomputeSchedules(ctx) }

// recomputeSchedule computes the next time of a schedule again. It writes nothing if the time stays the same.
func (b *Broker) recomputeSchedule(ctx context.Context, s engine.Schedule, now time.Time) error {
	_, err := engine.DecideSchedule(&s, s.Key(), engine.ScheduleEnvironment{}, engine.RecomputeSchedule{}, now)
	if err == nil {
		var out scheduled
		if out, err = b.decideSchedule(ctx, s.Key(), engine.RecomputeSchedule{}); err == nil {
			b.log.Info().Str("namespace", s.Namespace).Str("schedule_id", s.ID).Time("from", s.NextAt.Time).
				Time("to", out.Next.NextAt.Time).Msg("next time of a schedule recomputed")
		}
	}
	// nothing to do: the schedule was removed meanwhile, or its spec cannot be parsed
	if engine.IsNotDue(err) || protocol.ReasonOf(err) != "" {
		return nil
	}
	return err
}

// failSchedule records a failed firing and advances the schedule. Otherwise the same firing would be due and refused
// again and again.
func (b *Broker) failSchedule(ctx context.Context, k engine.ScheduleKey, reason string) error {
	_, err := b.store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Schedules: []engine.ScheduleKey{k}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			d, err := engine.DecideSchedule(
				rows.Schedule(k), k, engine.ScheduleEnvironment{}, engine.FailSchedule{Reason: reason}, now,
			)
			return store.Writes{Schedules: []engine.ScheduleDecision{d}}, err
		},
	})
	return err
}

// CreateSchedule creates a schedule.
func (b *Broker) CreateSchedule(ctx context.Context, in protocol.ScheduleRequest) (protocol.ScheduleReceipt, error) {
	if in.ID == "" {
		in.ID = ulid.Make().String()
	}
	return b.commandSchedule(ctx, in, engine.CreateSchedule{Request: in})
}

// UpdateSchedule changes the members of a schedule that are in the request.
func (b *Broker) UpdateSchedule(ctx context.Context, in protocol.ScheduleRequest) (protocol.ScheduleReceipt, error) {
	return b.commandSchedule(ctx, in, engine.UpdateSchedule{Request: in})
}

// commandSchedule validates the request before it reads the row, so that errors do not depend on whether the schedule
// exists.
func (b *Broker) commandSchedule(
	ctx context.Context, in protocol.ScheduleRequest, do engine.ScheduleInput,
) (protocol.ScheduleReceipt, error) {
	k := engine.ScheduleKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.ID}
	if err := b.checkSchedule(ctx, k, in); err != nil {
		return protocol.ScheduleReceipt{}, err
	}
	out, err := b.decideSchedule(ctx, k, do)
	return receiptOf(k, out), err
}

// checkSchedule validates the action of a schedule like the start that it will become. Otherwise an invalid action
// would fail only at the first firing.
func (b *Broker) checkSchedule(ctx context.Context, k engine.ScheduleKey, in protocol.ScheduleRequest) error {
	if err := protocol.CheckLimits(in); err != nil {
		return err
	}
	if err := protocol.CheckScheduleID("schedule_id", k.ID); err != nil {
		return err
	}
	if len(in.Memo) > engine.MaxStartMemo {
		return protocol.Invalid("memo", "is larger than %d KiB", engine.MaxStartMemo>>10)
	}
	if in.Spec != nil {
		if _, err := engine.NewCalendar(*in.Spec); err != nil {
			return err
		}
	}
	if in.Action == nil {
		return nil
	}
	if in.Action.WorkflowID != "" {
		if err := protocol.CheckScheduleID("action.workflow_id", in.Action.WorkflowID); err != nil {
			return err
		}
	}
	if _, err := b.scheduledRun(k.Namespace, k.ID, *in.Action); err != nil {
		return withFieldPrefix("action", err)
	}
	return b.checkTypes(ctx, k.Namespace, "action.search_attributes", in.Action.SearchAttributes)
}

// withFieldPrefix prefixes the fields of an error with another field, so that the caller finds the member in the
// request.
func withFieldPrefix(field string, err error) error {
	var e *protocol.Error
	if !errors.As(err, &e) || e.Fields == nil {
		return err
	}
	fields := map[string][]string{}
	for name, what := range e.Fields {
		fields[field+"."+name] = what
	}
	return &protocol.Error{Reason: e.Reason, Message: field + "." + e.Message, Details: e.Details, Fields: fields}
}

func receiptOf(k engine.ScheduleKey, d scheduled) protocol.ScheduleReceipt {
	r := protocol.ScheduleReceipt{ScheduleID: k.ID, Namespace: k.Namespace, Outcome: d.Outcome, Reason: d.Reason}
	if s := d.Next; s != nil {
		r.Status = s.Status
		if d.Outcome == "created" {
			r.CreatedAt = &s.CreatedAt
		}
		if d.Outcome == "buffered" || d.Outcome == "buffer_full" {
			r.BufferDepth = len(s.Buffered)
		}
	}
	if n := len(d.Starts); n > 0 {
		r.WorkflowID, r.RunID = d.Starts[n-1].WorkflowID, d.Starts[n-1].RunID
	}
	return r
}

// PauseSchedule stops the firings of a schedule.
func (b *Broker) PauseSchedule(ctx context.Context, ns, id, note string) (protocol.ScheduleReceipt, error) {
	return b.commandSchedule(ctx, protocol.ScheduleRequest{Namespace: ns, ID: id, Note: &note}, engine.PauseSchedule{
		Note: note,
	})
}

// ResumeSchedule resumes a schedule with its next time. Firings missed during the pause need a backfill.
func (b *Broker) ResumeSchedule(ctx context.Context, ns, id, note string) (protocol.ScheduleReceipt, error) {
	return b.commandSchedule(ctx, protocol.ScheduleRequest{Namespace: ns, ID: id, Note: &note}, engine.ResumeSchedule{
		Note: note,
	})
}

// DeleteSchedule deletes a schedule. Its history is retained as long as a closed run; the workflows that it started are
// not affected.
func (b *Broker) DeleteSchedule(ctx context.Context, ns, id string) (protocol.ScheduleReceipt, error) {
	out, err := b.commandSchedule(ctx, protocol.ScheduleRequest{Namespace: ns, ID: id}, engine.DeleteSchedule{})
	out.Status = engine.ScheduleDeleted
	return out, err
}

// TriggerSchedule fires a schedule now, under the given overlap policy or else the schedule's own.
func (b *Broker) TriggerSchedule(ctx context.Context, ns, id, overlap string) (protocol.ScheduleReceipt, error) {
	now, err := b.store.Now(ctx)
	if err != nil {
		return protocol.ScheduleReceipt{}, err
	}
	return b.commandSchedule(ctx, overlapRequest(ns, id, overlap), engine.FireSchedule{At: now, Overlap: overlap})
}

// overlapRequest returns a request with which a given overlap policy can be validated; "" selects the schedule's
// policy.
func overlapRequest(ns, id, overlap string) protocol.ScheduleRequest {
	in := protocol.ScheduleRequest{Namespace: ns, ID: id}
	if overlap != "" {
		in.Overlap = &overlap
	}
	return in
}

// BackfillSchedule fires for the times of the spec between two times, both included. A time that has already fired is
// skipped.
func (b *Broker) BackfillSchedule(
	ctx context.Context, ns, id string, from, to time.Time, overlap string,
) (protocol.ScheduleReceipt, error) {
	k := engine.ScheduleKey{Namespace: transaction.NamespaceOrDefault(ns), ID: id}
	if err := b.checkSchedule(ctx, k, overlapRequest(ns, id, overlap)); err != nil {
		return protocol.ScheduleReceipt{}, err
	}
	if from.IsZero() || to.IsZero() || to.Before(from) {
		return protocol.ScheduleReceipt{}, protocol.Invalid(
			"end_time", "start_time and end_time are required, and end_time must not be before start_time",
		)
	}
	s, err := view.FindSchedule(ctx, b.store, k, false)
	if err != nil {
		return protocol.ScheduleReceipt{}, err
	}
	c, err := engine.ParseCalendar(s.Spec)
	if err != nil {
		return protocol.ScheduleReceipt{}, err
	}
	if repeatsFirings(s.Action) {
		now, err := b.store.Now(ctx)
		if err != nil {
			return protocol.ScheduleReceipt{}, err
		}
		if to.After(now) {
			return protocol.ScheduleReceipt{}, protocol.Invalid(
				"end_time", "is in the future (now: %s); the policies of the action allow only a backfill of past times",
				now.UTC().Format(time.RFC3339),
			)
		}
	}
	// Count the times before the first one fires, because an operator would have to clean up after a backfill that is
	// refused halfway.
	times, more := c.Between(from, to, maxBackfill)
	if more {
		return protocol.ScheduleReceipt{}, protocol.Invalid(
			"end_time", "the range has more than %d scheduled times; choose a shorter range", maxBackfill,
		)
	}
	n := len(times)
	r := protocol.ScheduleReceipt{
		ScheduleID: id, Namespace: k.Namespace, Outcome: "backfilled", Status: s.Status, Attempted: &n,
		Results: []protocol.ScheduleFire{},
	}
	// Each time is a separate step. If the request is interrupted, the same request continues: times that have fired
	// are skipped.
	for _, at := range times {
		out, err := b.decideSchedule(ctx, k, engine.FireSchedule{At: at, Backfill: true, Overlap: overlap})
		if err != nil {
			return r, err
		}
		one := receiptOf(k, out)
		r.Results = append(r.Results, protocol.ScheduleFire{
			At: history.At(at), Outcome: one.Outcome, Reason: one.Reason, WorkflowID: one.WorkflowID,
			BufferDepth: one.BufferDepth,
		})
	}
	return r, nil
}
