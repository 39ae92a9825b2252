package runner

import (
	"context"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Local steps run while their workflow task is leased. A step begins only while the lease is valid, like an attempt of
// an activity. Its outcome is recorded under the task's delivery number, which is a fencing token: a worker that lost
// the task cannot record it.

// localSteps runs the local steps of one workflow task. It implements replay.LocalSteps for the task's replay machine.
type localSteps struct {
	r     *Runner
	task  *protocol.WorkflowTask
	lease *lease
	place *replaySlot // slot for a replay, released when a step begins; nil: none
	// a step was recorded, so a new replay machine that applies the task's events would run it again
	recorded bool

	mu    sync.Mutex // guards the fields below
	ctx   context.Context
	end   context.CancelCauseFunc
	cause error // why the task was lost
}

// lost ends the running step. It is called when the lease of the task is lost.
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

// close ends the context of the steps.
func (s *localSteps) close() { s.lost(context.Canceled) }

// Context returns a context that ends when the lease of the task is lost or the worker stops. It is created for the
// first step, since most tasks have none.
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

// Begin returns nil if the task's lease is valid. It releases the replay slot, because a step may take long and other
// runs need the slot.
func (s *localSteps) Begin(ctx context.Context) error {
	s.place.release()
	s.place = nil
	return s.r.leases.begin(ctx, s.lease, time.Time{})
}

// Record stores commands at the app while the task stays leased. If a request gets no response, Record repeats it until
// the lease is lost; the app recognizes the repetition.
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
