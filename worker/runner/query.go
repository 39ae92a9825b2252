package runner

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/rs/zerolog"

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
	if f := r.ask(t, &item); f != nil {
		r.log.Debug().Str("task_id", t.TaskID).Str("run_id", t.RunID).Str("query", t.QueryName).Str("why", f.Message).Msg("query not answered")
		item.Failure = f
	}
	r.report.add(item, until)
}

func (r *Runner) ask(t *protocol.QueryTask, item *protocol.CompleteItem) *protocol.Failure {
	def, ok := r.opt.Definitions.FindWorkflow(t.WorkflowType)
	if !ok {
		f := workflow.Unregistered(t.WorkflowType)
		f.Reason = string(protocol.ReasonQueryRejected)
		return f
	}
	m := workflow.NewMachine(def, workflow.Options{Names: r.opt.Definitions, Logger: zerolog.Nop(), ForQueries: true})
	defer m.Close()
	_, err := m.Apply(&protocol.WorkflowTask{
		RunID: t.RunID, WorkflowID: t.WorkflowID, Namespace: t.Namespace, WorkflowType: t.WorkflowType, TaskQueue: t.TaskQueue,
		Arguments: t.WorkflowArguments,
	}, t.Events)
	if err == nil {
		item.Result, err = m.Query(t.QueryName, t.QueryArguments)
	}
	if err == nil {
		return nil
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
	return f
}

func queryItem(t *protocol.QueryTask) protocol.CompleteItem {
	return protocol.CompleteItem{Kind: protocol.KindQuery, TaskID: t.TaskID, Owner: t.LeaseOwner, Attempt: t.Attempt}
}
