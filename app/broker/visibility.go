package broker

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/querytask"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A token may be restricted to some queues or to one group of workers. Such a caller must not change objects of other
// workers, nor learn from an error that they exist. So objects outside its scope are reported as not found.

// visibility is the scope of a caller that reports on a task. A caller without restrictions has access to every task,
// at no cost.
type visibility struct {
	b      *Broker
	ctx    context.Context // context of the request for which it was created
	caller *auth.Principal // nil: no restrictions
	ns     string
	kind   protocol.TaskKind
	id     string
	run    string
	seq    int64  // command number of an activity
	holder string // the worker in whose name the caller reports
}

// visibilityOf returns the scope for one report; ns is the namespace of the request.
func (b *Broker) visibilityOf(ctx context.Context, ns string, kind protocol.TaskKind, id, holder string) visibility {
	s := visibility{b: b, ctx: ctx, caller: auth.BoundFrom(ctx), ns: ns, kind: kind, id: id, holder: holder}
	if s.caller == nil {
		return s
	}
	if kind == protocol.KindWorkflow {
		s.run, _, _ = engine.ParseTaskID(id)
	} else {
		s.run, s.seq, _ = engine.ParseStepID(id)
	}
	return s
}

// checkOwner refuses a report in the name of a worker for which the caller may not act.
func (s visibility) checkOwner() error {
	if s.caller == nil {
		return nil
	}
	if err := s.b.workers.CheckVisible(s.ctx, s.ns, s.holder); protocol.ReasonOf(err) == protocol.ReasonWorkerNotFound {
		return s.notFound()
	} else if err != nil {
		return err
	}
	return nil
}

// guard returns a transaction that fails if the caller's token does not allow the task queue of the run.
func (s visibility) guard(c store.Transaction) (store.Transaction, error) {
	if s.caller == nil {
		return c, nil
	}
	decide := c.Decide
	c.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
		if run := rows.Run(s.run); run != nil {
			// Check the scope before the decision, because an error of the engine could reveal a task that the caller
			// must not see.
			if err := s.checkRun(run); err != nil {
				return store.Writes{}, err
			}
		}
		return decide(rows, now)
	}
	return c, s.checkOwner()
}

// checkRun refuses a task whose task queue the caller's token does not allow. It cannot check an activity that has
// ended, whose queue is only in the history; requests about such an activity are refused anyway, and hideDetails checks
// the queue then.
func (s visibility) checkRun(run *engine.Run) error {
	if s.caller == nil {
		return nil
	}
	if s.seq == 0 && !s.caller.Serves(run.Queue) {
		return s.notFound()
	}
	if a, open := run.Activities.Get(s.seq); s.seq > 0 && open && !s.caller.Serves(a.Queue) {
		return s.notFound()
	}
	return nil
}

// hideDetails returns the error that the caller may see. It does not disclose that a task exists to a caller without
// access to it, nor the ID of a worker for which the caller may not act.
func (s visibility) hideDetails(err error) error {
	var e *protocol.Error
	if s.caller == nil || !errors.As(err, &e) || e.Reason == protocol.ReasonTaskNotFound {
		return err
	}
	// Only a refusal needs these reads, so an accepted completion costs nothing extra.
	if owner, named := e.Details["lease_owner"].(string); named && owner != "" {
		if there, e := s.b.workers.IsVisible(s.ctx, s.ns, owner); e != nil || !there {
			return s.notFound()
		}
	}
	if s.seq == 0 {
		return err
	}
	queue, found, fail := s.b.activityQueue(s.ctx, s.run, s.seq)
	switch {
	case fail != nil:
		return fail
	case !found || !s.caller.Serves(queue):
		return s.notFound()
	}
	return err
}

// notFound returns the error for a task ID that does not exist.
func (s visibility) notFound() error {
	if s.kind.Asked() {
		return querytask.NotFound(s.kind, s.id)
	}
	return transaction.TaskNotFound(s.id)
}

// checkQueryTask refuses a report about a query task whose task queue the caller's token does not allow, or in the name
// of a worker for which the caller may not act.
func (s visibility) checkQueryTask(q *store.Question) error {
	if s.caller == nil {
		return nil
	}
	if !s.caller.Serves(q.Queue) {
		return s.notFound()
	}
	return s.checkOwner()
}

// activityQueue returns the task queue of an activity. For an activity that has ended, it reads the queue from the
// run's history.
func (b *Broker) activityQueue(ctx context.Context, run string, seq int64) (queue string, found bool, err error) {
	err = b.store.View(ctx, func(r store.Reader) error {
		s, err := r.Step(ctx, run, seq)
		if err != nil {
			return err
		}
		if a, open := s.Activities.Get(seq); open {
			queue, found = a.Queue, true
			return nil
		}
		for after := int64(0); !found; {
			events, err := r.Events(ctx, run, after, 0, transaction.MaxPage, transaction.MaxPageSize)
			if err != nil || len(events) == 0 {
				return err
			}
			for _, e := range events {
				if d, ok := e.Data.(*history.ActivityScheduled); ok && d.Sequence == seq {
					queue, found = s.Queue, true
					if d.Activity != nil && d.Activity.Queue != "" {
						queue = d.Activity.Queue
					}
				}
				after = e.Seq
			}
		}
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return "", false, nil
	}
	return queue, found, err
}

// checkSessionWorker refuses a session request in the name of a worker for which the caller may not act.
func (b *Broker) checkSessionWorker(ctx context.Context, ns, worker string) error {
	if err := b.workers.CheckVisible(ctx, ns, worker); protocol.ReasonOf(err) == protocol.ReasonWorkerNotFound {
		return transaction.SessionNotFound()
	} else if err != nil {
		return err
	}
	return nil
}

// hideSession returns the error of a session request without details that the caller must not see, if the session's
// owner is a worker for which the caller may not act.
func (b *Broker) hideSession(ctx context.Context, key engine.SessionKey, refusal error) error {
	if auth.BoundFrom(ctx) == nil || protocol.ReasonOf(refusal) == "" {
		return refusal
	}
	var s engine.Session
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		s, err = r.Session(ctx, key)
		return err
	})
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && s.Owner == "":
		return refusal
	case err != nil:
		return err
	}
	// The caller's scope restricts the owner; the session itself belongs to the namespace.
	there, err := b.workers.IsVisible(ctx, key.Namespace, s.Owner)
	if protocol.ReasonOf(err) == protocol.ReasonWorkerNotFound || err == nil && !there {
		return transaction.SessionNotFound()
	}
	if err != nil {
		return err
	}
	return refusal
}
