package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/activitywire"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A query runs on a new replay machine that replays the history in the query task. It must not use the machine in the
// sticky cache, which may be running a workflow task.

// querySlots is the number of concurrent queries, and of concurrent validations. They use no slots of workflow tasks
// and activities.
const querySlots = 4

// queryTime is how long the worker works on a query at most; callers wait no longer than this.
const queryTime = 30 * time.Second

// question is the common part of query tasks and update validation tasks, which read a run and do not change it.
type question struct {
	item   protocol.CompleteItem // identifies the task in the response
	run    protocol.WorkflowTask // the run to replay
	events []history.Event
	next   *string // token of the history page after the events in the task
}

// query runs a query task with the code of its run.
func (r *Runner) query(t *protocol.QueryTask) {
	q := question{item: queryItem(t), events: t.Events, next: t.NextPageToken, run: protocol.WorkflowTask{
		RunID: t.RunID, WorkflowID: t.WorkflowID, Namespace: t.Namespace, WorkflowType: t.WorkflowType,
		TaskQueue: t.TaskQueue,
		Arguments: t.WorkflowArguments,
	}}
	r.answer(q, protocol.ReasonQueryRejected, func(
		m replay.Machine, item *protocol.CompleteItem,
	) (f *protocol.Failure) {
		var err error
		if item.Result, err = m.Query(t.QueryName, t.QueryArguments, t.Headers); err == nil {
			return nil
		}
		f = r.queryFailure(err)
		// The app adds the name of the query to the message.
		f.Message = strings.TrimPrefix(f.Message, fmt.Sprintf("query %q: ", t.QueryName))
		switch {
		case errors.Is(err, workflow.ErrUnknownQuery):
			f.Reason = string(protocol.ReasonUnknownQuery)
		case errors.Is(err, workflow.ErrQueryArguments):
			f.Reason = string(protocol.ReasonQueryArguments)
		}
		return f
	})
}

func (r *Runner) queryFailure(err error) *protocol.Failure {
	f := r.taskFailure(err)
	f.Type, f.Reason = "QueryFailed", string(protocol.ReasonQueryRejected)
	return f
}

// validation runs the validator of an update.
func (r *Runner) validation(t *protocol.ValidationTask) {
	q := question{item: validationItem(t), events: t.Events, next: t.NextPageToken, run: protocol.WorkflowTask{
		RunID: t.RunID, WorkflowID: t.WorkflowID, Namespace: t.Namespace, WorkflowType: t.WorkflowType,
		TaskQueue: t.TaskQueue,
		Arguments: t.WorkflowArguments,
	}}
	r.answer(q, protocol.ReasonValidatorFailed, func(m replay.Machine, _ *protocol.CompleteItem) (f *protocol.Failure) {
		err := m.Validate(t.UpdateName, t.UpdateArguments, t.Headers)
		var rejected *workflow.RejectedError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &rejected):
			if f, err = r.opt.Codecs.EncodeFailure(activitywire.FailureOf(rejected.Err)); err != nil {
				f = activitywire.FailureOf(err)
			}
			f.Reason = string(protocol.ReasonUpdateRejected)
			return f
		}
		f = r.taskFailure(err)
		f.Reason = string(protocol.ReasonValidatorFailed)
		return f
	})
}

// answer replays the run of a question and calls its code. refusal is the failure reason for errors that the code did
// not cause. It does not use cached replay machines, because handlers could change their state by mistake.
func (r *Runner) answer(
	q question, refusal protocol.Reason, runHandler func(replay.Machine, *protocol.CompleteItem) *protocol.Failure,
) {
	// The timeout counts from the arrival of the question and includes the replay: afterwards the caller has timed out,
	// and the response would only use space in the queue.
	until := time.Now().Add(queryTime)
	f, err := r.evaluate(&q, refusal, runHandler)
	log := func(e *zerolog.Event) *zerolog.Event {
		return e.Str("task_id", q.item.TaskID).Str("kind", string(q.item.Kind)).Str("run_id", q.run.RunID)
	}
	switch {
	case err != nil && r.life.Err() != nil:
		q.item.Returned = "draining"
	case err != nil && protocol.ReasonOf(err) == "":
		log(r.log.Warn()).Err(err).Msg("failed to load the history of a run; returning the task")
		q.item.Returned = "history_unavailable"
	case err != nil:
		q.item.Failure = &protocol.Failure{Message: err.Error(), Type: "QueryFailed", Reason: string(refusal)}
	case f != nil:
		log(r.log.Debug()).Str("why", f.Message).Msg("query failed")
		q.item.Failure = f
	}
	r.report.add(entry{item: q.item, until: until})
}

// evaluate stores the result in the question's item, or returns the failure. An error means that the history could not
// be read.
func (r *Runner) evaluate(
	q *question, refusal protocol.Reason, runHandler func(replay.Machine, *protocol.CompleteItem) *protocol.Failure,
) (*protocol.Failure, error) {
	def, ok := r.opt.Definitions.FindWorkflow(q.run.WorkflowType)
	if !ok {
		f := replay.Unregistered(q.run.WorkflowType)
		f.Reason = string(refusal)
		return f, nil
	}
	if err := r.deadlocks.errorOf(q.run.RunID); err != nil {
		f := replay.TaskFailure(err)
		f.Reason = string(refusal)
		return f, nil
	}
	events, err := r.history(q)
	if err != nil {
		return nil, err
	}
	m := replay.New(def, replay.Options{
		Names: r.opt.Definitions, ForQueries: true, OnBranchRun: r.opt.OnBranchRun, Codecs: r.opt.Codecs,
	})
	defer m.Close()
	if _, err = m.Apply(&q.run, events); err != nil {
		r.deadlocks.record(q.run.RunID, m, err)
		f := r.taskFailure(err)
		f.Reason = string(refusal)
		if q.item.Kind == protocol.KindQuery {
			f.Type = "QueryFailed"
		}
		return f, nil
	}
	return runHandler(m, &q.item), nil
}

// history returns the whole history of the run of a question.
func (r *Runner) history(q *question) ([]history.Event, error) {
	ctx, cancel := context.WithTimeout(r.life, queryTime)
	defer cancel()
	events := q.events
	for next := q.next; next != nil; {
		page, err := r.opt.Link.HistoryPage(ctx, protocol.HistoryRequest{
			Kind: q.item.Kind, TaskID: q.item.TaskID, Owner: q.item.Owner, Attempt: q.item.Attempt, PageToken: *next,
			PageSize: pageSize,
		})
		if err == nil && len(page.Events) == 0 && page.NextPageToken != nil {
			err = errors.New("an empty page before the last")
		}
		if err != nil {
			return nil, fmt.Errorf("history of run %s: %w", q.run.RunID, err)
		}
		events, next = append(events[:len(events):len(events)], page.Events...), page.NextPageToken
	}
	return events, nil
}

func queryItem(t *protocol.QueryTask) protocol.CompleteItem {
	return protocol.CompleteItem{Kind: protocol.KindQuery, TaskID: t.TaskID, Owner: t.LeaseOwner, Attempt: t.Attempt}
}

func validationItem(t *protocol.ValidationTask) protocol.CompleteItem {
	return protocol.CompleteItem{Kind: protocol.KindValidation, TaskID: t.TaskID, Owner: t.LeaseOwner, Attempt: t.Attempt}
}
