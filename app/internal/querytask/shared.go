package querytask

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Behind a load balancer a query may reach one app and its worker poll another. Then query tasks are stored in an
// unlogged table; losing it with the database only makes callers retry.

// shared stores the query tasks of several apps in a table of their database.
type shared struct {
	store.Questions
	watch func(id string) (<-chan struct{}, func())
}

// lookAgain is the interval at which a caller reads its answer without a notification, which may be lost.
const lookAgain = 2 * time.Second

func (s *shared) add(ctx context.Context, q store.Question, patience time.Duration, most int) error {
	return s.Ask(ctx, q, patience, most)
}

func (s *shared) waiting(ctx context.Context, l line, limit int) ([]store.Question, error) {
	return s.Waiting(ctx, l.namespace, l.queue, l.kind, limit)
}

func (s *shared) lease(ctx context.Context, q store.Question) (bool, error) {
	return s.Lease(ctx, q)
}

func (s *shared) get(ctx context.Context, id string) (store.Question, error) {
	return s.Question(ctx, id)
}

func (s *shared) requeue(ctx context.Context, id string, attempt int64) error {
	return s.Unlease(ctx, id, attempt)
}

func (s *shared) complete(ctx context.Context, q store.Question, r store.Reply) (bool, error) {
	return s.Settle(ctx, q, r)
}

func (s *shared) reply(ctx context.Context, id string) (store.Reply, error) {
	answered, stop := s.watch(id)
	defer stop()
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		r, ok, err := s.Reply(ctx, id)
		switch {
		case ctx.Err() != nil:
			return store.Reply{}, context.Cause(ctx)
		case ok, errors.Is(err, store.ErrNotFound):
			return r, err
		}
		select { // an error may pass
		case <-answered:
		case <-again.C:
		case <-ctx.Done():
			return store.Reply{}, context.Cause(ctx)
		}
	}
}

func (s *shared) count(
	ctx context.Context, namespace string, kind protocol.TaskKind,
) (map[string]protocol.QueryTally, error) {
	return s.Tally(ctx, namespace, kind)
}

func (s *shared) remove(ctx context.Context, id string) error { return s.Forget(ctx, id) }
