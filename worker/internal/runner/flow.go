package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Workflow code has no side effects, so late commands are harmless: the worker drops them or the app rejects them. But
// a replay machine must never continue from commands that the app did not accept. If in doubt, the worker closes the
// machine, and the next task replays the run.

// workflow runs one workflow task. The worker renews its lease like the lease of an attempt, which has the same length.
// If the lease expires while the code runs, the commands are dropped, because another worker may run the task. Since
// workflow code has no side effects, the worker does not confirm the lease before it starts the code. A task whose
// lease had expired on arrival is returned.
func (r *Runner) workflow(t *protocol.WorkflowTask, received arrival) {
	if r.leases.tooOld(received, t.LeaseExpiresAt) {
		item := taskItem(t)
		item.Returned = "its lease was over before it began"
		r.report.handBack(item)
		return
	}
	steps := &localSteps{r: r, task: t}
	defer steps.close()
	lease := r.leases.holdWorkflowTask(t, received, steps.lost)
	defer r.leases.release(lease)
	steps.lease = lease
	item := taskItem(t)
	commands, lastApplied, err := r.decide(t, steps)
	abandoned, inStep := errors.AsType[*workflow.StepAbandonedError](err)
	switch {
	case r.leases.isLost(lease):
		r.cache.evict(t.RunID) // the machine has applied commands that the app will not accept
		r.dropped(item, ErrLeaseLost.Error())
		return
	case errors.Is(err, errUnregistered):
		item.Failure = replay.Unregistered(t.WorkflowType)
		r.notifyTaskFailed(t, item.Failure)
	case err == nil && len(commands) == 0:
		item.Failure, item.Kept = replay.Waiting(), lastApplied
	case err == nil:
		item.Commands, item.Kept = commands, lastApplied
	case r.life.Err() != nil:
		item.Returned = "draining"
	case inStep && !refusesContent(abandoned.Err):
		// The app did not record the step: the task has ended, or another worker has it.
		r.dropped(item, err.Error())
		return
	case isHistory(err):
		// The worker could not load a history page, or the page has a gap. A later attempt or another worker may
		// succeed.
		r.log.Warn().Err(err).Str("task_id", t.TaskID).Str("run_id", t.RunID).Msg("failed to load the history of a run; returning the task")
		item.Returned = "history_unavailable"
	default:
		item.Failure = r.taskFailure(err)
		line := r.log.Error().Str("error", protocol.ErrorText(err.Error())).Str("task_id", t.TaskID).
			Str("run_id", t.RunID).Str("workflow_type", t.WorkflowType)
		if at := item.Failure.StackTrace; at != "" && r.stacks.first(t.RunID, err.Error()) {
			line = line.Str("stack", stack.Clean(at, protocol.MaxErrorText))
		}
		line.Msg("workflow task failed")
		r.notifyTaskFailed(t, item.Failure)
	}
	// The lease may last as long as if it had been granted when the worker read the task; the app decides.
	r.report.add(entry{
		class: t.FairnessClass, item: item, until: later(r.leases.until(lease), received.read.Add(r.opt.AttemptLease)),
		workflowID: t.WorkflowID,
	})
}

// taskFailure returns the failure of a task whose code failed. A worker with codecs leaves out the arguments that a
// mismatch shows, because the app must not see them.
func (r *Runner) taskFailure(err error) *protocol.Failure {
	f := replay.TaskFailure(err)
	if _, ok := errors.AsType[*workflow.NonDeterminismError](err); ok && len(r.opt.Codecs) > 0 {
		f.Message = err.Error()
	}
	return f
}

func (r *Runner) notifyTaskFailed(t *protocol.WorkflowTask, f *protocol.Failure) {
	if r.opt.TaskFailed != nil {
		r.opt.TaskFailed(t, f)
	}
}

var errUnregistered = errors.New("workflow type is not registered")

// historyError reports that a page of history could not be loaded.
type historyError struct{ error }

func (e historyError) Unwrap() error { return e.error }

func isHistory(err error) bool {
	var h historyError
	return errors.As(err, &h) || errors.Is(err, replay.ErrGap)
}

// decide returns the next commands of a run, from its replay machine in the sticky cache or from a new machine that
// replays the whole history. An error of a cached machine may come from its state in memory, so it counts only if a new
// machine reproduces it. Exceptions are deadlocks and calls from foreign goroutines, which a new machine cannot detect.
func (r *Runner) decide(
	t *protocol.WorkflowTask, steps *localSteps,
) (commands []protocol.Command, lastApplied int64, err error) {
	def, ok := r.opt.Definitions.FindWorkflow(t.WorkflowType)
	if !ok {
		return nil, 0, errUnregistered
	}
	if err := r.deadlocks.errorOf(t.RunID); err != nil {
		return nil, 0, err
	}
	if k := r.cache.await(r.life, t.RunID); k != nil {
		m, events := k.machine, t.Events
		// The tail contains the events of the response to an eager workflow task, which this task may omit.
		if tail := nextEvents(m.Seen(), k.tail); len(tail) > 0 && (len(events) == 0 || events[0].Seq > m.Seen()+1) {
			events = append(tail, events...)
		}
		// If there is a gap between the applied and the received events, a new replay machine replays the whole
		// history.
		if len(events) == 0 || events[0].Seq <= m.Seen()+1 {
			m.SetCallbacks(steps, steps.fetchSignals)
			commands, err := r.apply(m, t, events, nil)
			if err == nil {
				return commands, r.cacheMachine(t, m), nil
			}
			// A new replay machine would run again the local steps that this machine has run.
			if _, inStep := errors.AsType[*workflow.StepAbandonedError](err); inStep || steps.recorded {
				r.deadlocks.record(t.RunID, m, err)
				m.Close()
				return nil, 0, err
			}
			r.log.Debug().Err(err).Str("run_id", t.RunID).Msg("sticky cache entry invalid; replaying the run from its history")
			if r.deadlocks.record(t.RunID, m, err); m.Deadlocked() || m.CalledByForeignGoroutine() {
				m.Close()
				return nil, 0, err
			}
		}
		m.Close()
	}
	var place *replaySlot
	if needsReplaySlot(t) {
		if place, err = r.replays.begin(r.life); err != nil {
			return nil, 0, err
		}
		defer place.release()
		steps.place = place
	}
	m := replay.New(def, replay.Options{
		Names: r.opt.Definitions, Logger: r.opt.Logger, OnBranchRun: r.opt.OnBranchRun, Codecs: r.opt.Codecs,
	})
	m.SetCallbacks(steps, steps.fetchSignals)
	events := t.Events
	if len(events) == 0 || events[0].Seq != 1 {
		page, err := r.page(t, "")
		if err != nil {
			m.Close()
			return nil, 0, err
		}
		events = page.Events
		fresh := *t
		fresh.NextPageToken, fresh.OmittedSignals = page.NextPageToken, nil
		t = &fresh
	}
	if commands, err = r.apply(m, t, events, place); err != nil {
		r.deadlocks.record(t.RunID, m, err)
		m.Close()
		return nil, 0, err
	}
	return commands, r.cacheMachine(t, m), nil
}

// cacheMachine caches a replay machine for the run's next task, unless the run has finished, and returns the last event
// it has applied.
func (r *Runner) cacheMachine(t *protocol.WorkflowTask, m replay.Machine) int64 {
	if m.Finished() {
		m.Close()
		return 0
	}
	// Read Seen before caching the machine: afterwards another task may use the machine.
	seen := m.Seen()
	m.SetCallbacks(nil, nil)
	r.cache.add(t.RunID, m)
	return seen
}

// apply applies the events, and the following pages of the history, to a replay machine. The pages count towards the
// memory limit of replays.
func (r *Runner) apply(
	m replay.Machine, t *protocol.WorkflowTask, events []history.Event, place *replaySlot,
) ([]protocol.Command, error) {
	if err := place.reserve(r.life, events); err != nil {
		return nil, err
	}
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
			if err := place.reserve(r.life, page.Events); err != nil {
				return nil, err
			}
			events, next = append(events, page.Events...), page.NextPageToken
		}
	}
	return m.Apply(t, events)
}

func (r *Runner) page(t *protocol.WorkflowTask, token string) (protocol.HistoryPage, error) {
	return r.historyPage(t, protocol.HistoryRequest{PageToken: token, PageSize: pageSize})
}

// fetchSignals fetches signals that the first task of the run omitted.
func (s *localSteps) fetchSignals(after int64, most int) ([]history.Event, error) {
	page, err := s.r.historyPage(s.task, protocol.HistoryRequest{After: after, PageSize: most})
	if err == nil {
		err = s.place.reserve(s.r.life, page.Events)
	}
	return page.Events, err
}

func (r *Runner) historyPage(t *protocol.WorkflowTask, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	ctx, cancel := context.WithTimeout(r.life, time.Minute)
	defer cancel()
	in.TaskID, in.Owner, in.Attempt = t.TaskID, t.LeaseOwner, t.Attempt
	page, err := r.opt.Link.HistoryPage(ctx, in)
	if err != nil {
		return page, historyError{fmt.Errorf("history of run %s: %w", t.RunID, err)}
	}
	return page, nil
}
