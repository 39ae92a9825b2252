package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// flowTime is how long the outcome of a workflow task is worth telling: the lease of one.
const flowTime = 4 * time.Minute

// workflow runs one workflow task.
func (r *Runner) workflow(t *protocol.WorkflowTask) {
	until := time.Now().Add(flowTime)
	item := taskItem(t)
	commands, kept, err := r.decide(t)
	switch {
	case errors.Is(err, errUnregistered):
		item.Failure = workflow.Unregistered(t.WorkflowType)
	case err == nil && len(commands) == 0:
		item.Failure = workflow.Waiting()
	case err == nil:
		item.Commands, item.Kept = commands, kept
	case r.life.Err() != nil:
		item.Returned = "draining"
	case isHistory(err):
		// The app did not show what it promised: another try, or another worker, may see it.
		r.log.Warn().Err(err).Str("task_id", t.TaskID).Str("run_id", t.RunID).Msg("history not available")
		item.Returned = "history_unavailable"
	default:
		r.log.Error().Err(err).Str("task_id", t.TaskID).Str("run_id", t.RunID).Str("workflow_type", t.WorkflowType).Msg("workflow task failed")
		item.Failure = workflow.TaskFailure(err)
	}
	r.report.add(item, until)
}

var errUnregistered = errors.New("workflow type is not registered")

// historyError is a page of history that could not be had.
type historyError struct{ error }

func (e historyError) Unwrap() error { return e.error }

func isHistory(err error) bool {
	var h historyError
	return errors.As(err, &h) || errors.Is(err, workflow.ErrGap)
}

// decide asks the run's machine what the workflow wants next: the kept one if there is one, or one that replays the whole history. An error of a kept
// machine is only believed when a new one agrees.
func (r *Runner) decide(t *protocol.WorkflowTask) (commands []protocol.Command, kept int64, err error) {
	def, ok := r.opt.Definitions.FindWorkflow(t.WorkflowType)
	if !ok {
		return nil, 0, errUnregistered
	}
	if m := r.cache.take(t.RunID); m != nil {
		if len(t.Events) == 0 || t.Events[0].Seq <= m.Seen()+1 {
			commands, err := r.apply(m, t, t.Events)
			if err == nil {
				return commands, r.keep(t, m), nil
			}
			r.log.Debug().Err(err).Str("run_id", t.RunID).Msg("kept machine replaced")
		}
		m.Close()
	}
	m := workflow.NewMachine(def, workflow.Options{Names: r.opt.Definitions, Logger: r.log})
	events := t.Events
	if len(events) == 0 || events[0].Seq != 1 {
		page, err := r.page(t, "")
		if err != nil {
			m.Close()
			return nil, 0, err
		}
		events = page.Events
		fresh := *t
		fresh.NextPageToken = page.NextPageToken
		t = &fresh
	}
	if commands, err = r.apply(m, t, events); err != nil {
		m.Close()
		return nil, 0, err
	}
	return commands, r.keep(t, m), nil
}

// keep keeps a machine for the run's next task, if there will be one, and returns the last event it has seen.
func (r *Runner) keep(t *protocol.WorkflowTask, m *workflow.Machine) int64 {
	if m.Finished() {
		m.Close()
		return 0
	}
	seen := m.Seen()
	r.cache.put(t.RunID, m)
	return seen
}

// apply gives a machine the events and the pages behind them.
func (r *Runner) apply(m *workflow.Machine, t *protocol.WorkflowTask, events []history.Event) ([]protocol.Command, error) {
	if next := t.NextPageToken; next != nil {
		events = append([]history.Event(nil), events...)
		for next != nil {
			page, err := r.page(t, *next)
			if err != nil {
				return nil, err
			}
			if len(page.Events) == 0 && page.NextPageToken != nil {
				return nil, historyError{fmt.Errorf("history of run %s: an empty page before the last", t.RunID)}
			}
			events, next = append(events, page.Events...), page.NextPageToken
		}
	}
	return m.Apply(t, events)
}

func (r *Runner) page(t *protocol.WorkflowTask, token string) (protocol.HistoryPage, error) {
	ctx, cancel := context.WithTimeout(r.life, time.Minute)
	defer cancel()
	page, err := r.opt.Link.History(ctx, t, token)
	if err != nil {
		return page, historyError{fmt.Errorf("history of run %s: %w", t.RunID, err)}
	}
	return page, nil
}
