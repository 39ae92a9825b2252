package querytask

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// queue is the queue of query tasks and their replies: in memory if the app is alone on its database, else in the
// database. Its entries do not outlive their callers.
type queue interface {
	// add enqueues a query task until the timeout ends; store.ErrFull if the number of waiting tasks is most.
	add(ctx context.Context, q store.Question, timeout time.Duration, most int) error
	// waiting lists up to limit waiting query tasks of a queue, oldest first.
	waiting(ctx context.Context, l queueKey, limit int) ([]store.Question, error)
	// lease leases a query task to its Owner under its Attempt; false if another worker was faster.
	lease(ctx context.Context, q store.Question) (bool, error)
	// get returns the state of a query task; store.ErrNotFound if its caller has disconnected.
	get(ctx context.Context, id string) (store.Question, error)
	// requeue puts a query task back into the queue; attempt 0 selects the current attempt.
	requeue(ctx context.Context, id string, attempt int64) error
	// complete stores the reply under the current lease; false if the lease is not current.
	complete(ctx context.Context, q store.Question, r store.Reply) (bool, error)
	// reply waits for the reply to a query task.
	reply(ctx context.Context, id string) (store.Reply, error)
	// count counts the query tasks of a kind without a reply in a namespace, by queue.
	count(ctx context.Context, namespace string, kind protocol.TaskKind) (map[string]protocol.QueryTally, error)
	// remove deletes the query task of a caller that has disconnected.
	remove(ctx context.Context, id string) error
}

// queueKey is the queue of one kind of query tasks for the workers of a task queue.
type queueKey struct {
	namespace, queue string
	kind             protocol.TaskKind
}

func queueKeyOf(q *store.Question) queueKey { return queueKey{q.Namespace, q.Queue, q.Kind} }
