package runner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// querySlots are how many queries run at once, beside workflow tasks and activities.
const querySlots = 4

// queryTime is how long an answer is worth telling: nobody waits longer.
const queryTime = 30 * time.Second

// query replays the run it asks about and asks its code. Kept machines are left alone: what a handler changes by mistake must not stay.
func (r *Runner) query(t *protocol.QueryTask) {
	until := time.Now().Add(queryTime)
	item := queryItem(t)
	f, err := r.ask(t, &item)
	switch {
	case err != nil && r.life.Err() != nil:
		item.Returned = "draining"
	case err != nil && protocol.ReasonOf(err) == "":
		r.log.Warn().Err(err).Str("task_id", t.TaskID).Str("run_id", t.RunID).Msg("history not available")
		item.Returned = "history_unavailable"
	case err != nil:
		item.Failure = &protocol.Failure{Message: err.Error(), Type: "QueryFailed", Reason: string(protocol.ReasonQueryRejected)}
	case f != nil:
		r.log.Debug().Str("task_id", t.TaskID).Str("run_id", t.RunID).Str("query", t.QueryName).Str("why", f.Message).Msg("query not answered")
		item.Failure = f
	}
	r.report.add(item, until)
}

// ask gives the answer to item, or says why there is none. An error means that the history behind the query could not be had.
func (r *Runner) ask(t *protocol.QueryTask, item *protocol.CompleteItem) (*protocol.Failure, error) {
	def, ok := r.opt.Definitions.FindWorkflow(t.WorkflowType)
	if !ok {
		f := workflow.Unregistered(t.WorkflowType)
		f.Reason = string(protocol.ReasonQueryRejected)
		return f, nil
	}
	events, err := r.past(t)
	if err != nil {
		return nil, err
	}
	m := workflow.NewMachine(def, workflow.Options{Names: r.opt.Definitions, Logger: zerolog.Nop(), ForQueries: true})
	defer m.Close()
	_, err = m.Apply(&protocol.WorkflowTask{
		RunID: t.RunID, WorkflowID: t.WorkflowID, Namespace: t.Namespace, WorkflowType: t.WorkflowType, TaskQueue: t.TaskQueue,
		Arguments: t.WorkflowArguments,
	}, events)
	if err == nil {
		item.Result, err = m.Query(t.QueryName, t.QueryArguments)
	}
	if err == nil {
		return nil, nil
	}
	f := workflow.TaskFailure(err)
	f.Type, f.Reason = "QueryFailed", string(protocol.ReasonQueryRejected)
	f.Message = strings.TrimPrefix(f.Message, fmt.Sprintf("query %q: ", t.QueryName)) // its caller is told the name by the app
	switch {
	case errors.Is(err, workflow.ErrUnknownQuery):
		f.Reason = string(protocol.ReasonUnknownQuery)
	case errors.Is(err, workflow.ErrQueryArguments):
		f.Reason = string(protocol.ReasonQueryArguments)
	}
	return f, nil
}

// past is the whole history behind a query.
func (r *Runner) past(t *protocol.QueryTask) ([]history.Event, error) {
	ctx, cancel := context.WithTimeout(r.life, queryTime)
	defer cancel()
	events := t.Events
	for next := t.NextPageToken; next != nil; {
		page, err := r.opt.Link.QueryHistory(ctx, t, *next)
		if err == nil && len(page.Events) == 0 && page.NextPageToken != nil {
			err = errors.New("an empty page before the last")
		}
		if err != nil {
			return nil, fmt.Errorf("history of run %s: %w", t.RunID, err)
		}
		events, next = append(events[:len(events):len(events)], page.Events...), page.NextPageToken
	}
	return events, nil
}

func queryItem(t *protocol.QueryTask) protocol.CompleteItem {
	return protocol.CompleteItem{Kind: protocol.KindQuery, TaskID: t.TaskID, Owner: t.LeaseOwner, Attempt: t.Attempt}
}
