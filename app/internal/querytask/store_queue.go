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

// storeQueue stores the query tasks of several apps in a table of their database.
type storeQueue struct {
	store.Questions
	watch func(id string) (<-chan struct{}, func())
}

// replyPollInterval is the interval at which a caller reads its answer without a notification, which may be lost.
const replyPollInterval = 2 * time.Second

func (s *storeQueue) add(ctx context.Context, q store.Question, timeout time.Duration, most int) error {
	return s.Ask(ctx, q, timeout, most)
}

func (s *storeQueue) waiting(ctx context.Context, l queueKey, limit int) ([]store.Question, error) {
	return s.Waiting(ctx, l.namespace, l.queue, l.kind, limit)
}

func (s *storeQueue) lease(ctx context.Context, q store.Question) (bool, error) {
	return s.Lease(ctx, q)
}

func (s *storeQueue) get(ctx context.Context, id string) (store.Question, error) {
	return s.Question(ctx, id)
}

func (s *storeQueue) requeue(ctx context.Context, id string, attempt int64) error {
	return s.Unlease(ctx, id, attempt)
}

func (s *storeQueue) complete(ctx context.Context, q store.Question, r store.Reply) (bool, error) {
	return s.Settle(ctx, q, r)
}

func (s *storeQueue) reply(ctx context.Context, id string) (store.Reply, error) {
	answered, stop := s.watch(id)
	defer stop()
	ticker := time.NewTicker(replyPollInterval)
	defer ticker.Stop()
	for {
		r, ok, err := s.Reply(ctx, id)
		switch {
		case ctx.Err() != nil:
			return store.Reply{}, context.Cause(ctx)
		case ok, errors.Is(err, store.ErrNotFound):
			return r, err
		}
		select { // retry: the error may be temporary
		case <-answered:
		case <-ticker.C:
		case <-ctx.Done():
			return store.Reply{}, context.Cause(ctx)
		}
	}
}

func (s *storeQueue) count(
	ctx context.Context, namespace string, kind protocol.TaskKind,
) (map[string]protocol.QueryTally, error) {
	return s.CountUnanswered(ctx, namespace, kind)
}

func (s *storeQueue) remove(ctx context.Context, id string) error { return s.Forget(ctx, id) }
