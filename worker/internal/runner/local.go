package runner

import (
	"context"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Local steps run while their workflow task is leased. A step begins only under a live lease, like an attempt of an
// activity, and its outcome is recorded under the task's delivery, which fences it: a worker that lost the task records
// nothing.

// localSteps runs the local steps of one workflow task; it is the replay.LocalSteps of its replay machine.
type localSteps struct {
	r     *Runner
	task  *protocol.WorkflowTask
	lease *lease
	place *replaySlot // slot of a replay, released when a step begins; nil: none
	// a step was recorded, so a new replay machine that applies the task's events would run it again
	recorded bool

	mu    sync.Mutex // guards what follows
	ctx   context.Context
	end   context.CancelCauseFunc
	cause error // why the task was lost
}

// lost ends the running step; it is called when the lease of the task is lost.
func (s *localSteps) lost(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause == nil {
		s.cause = cause
	}
	if s.end != nil {
		s.end(cause)
	}
}

// close releases the context.
func (s *localSteps) close() { s.lost(context.Canceled) }

// Context ends when the lease of the task is lost or the worker stops. It is made for the first step, since most tasks
// have none.
func (s *localSteps) Context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		s.ctx, s.end = context.WithCancelCause(s.r.life)
		if s.cause != nil {
			s.end(s.cause)
		}
	}
	return s.ctx
}

// Begin returns nil if the task's lease is live. The task no longer counts as a replay: a step may take long, and other
// runs need the slot.
func (s *localSteps) Begin(ctx context.Context) error {
	s.place.release()
	s.place = nil
	return s.r.leases.begin(ctx, s.lease, time.Time{})
}

// Record makes commands durable while the task stays leased. It repeats a request without a response until the lease is
// lost; the app recognizes the repetition.
func (s *localSteps) Record(commands []protocol.Command, from int64) error {
	ctx, r := s.Context(), s.r
	item := taskItem(s.task)
	item.Commands, item.RecordFrom = commands, from
	in := protocol.CompleteRequest{Items: []protocol.CompleteItem{item}}
	back := retry.Backoff{Min: 50 * time.Millisecond, Max: 2 * time.Second}
	for {
		try, cancel := context.WithTimeout(ctx, reportTimeout)
		a, err := r.opt.Link.Complete(try, in)
		cancel()
		if err == nil && len(a.Items) == 1 {
			e := a.Items[0].Error
			if e == nil {
				s.recorded = true
				r.logWarnings(entry{item: item, workflowID: s.task.WorkflowID}, a.Items[0].Warnings)
				return nil
			}
			err = e.Err()
			if !e.Reason.Away() {
				return err
			}
		} else if err != nil && (!link.Lost(err) || large(err)) {
			return err
		}
		if back.Tries() == 0 {
			r.log.Warn().Err(err).Str("task_id", s.task.TaskID).Msg("failed to record a local step; retrying")
		}
		wait := time.NewTimer(back.Next())
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return context.Cause(ctx)
		}
	}
}
