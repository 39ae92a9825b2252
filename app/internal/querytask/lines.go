package querytask

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// lines is where questions wait until a worker takes them and its reply goes back: in memory when this app has the
// database to itself, else in the database. Nothing in it outlives the callers.
type lines interface {
	// add adds a question for that long; store.ErrFull when most wait there already.
	add(ctx context.Context, q store.Question, patience time.Duration, most int) error
	// waiting lists up to limit questions that wait in a line, oldest first.
	waiting(ctx context.Context, l line, limit int) ([]store.Question, error)
	// lease leases a query task to its Owner under its Attempt; false if another worker was faster.
	lease(ctx context.Context, q store.Question) (bool, error)
	// get is a question as it stands; store.ErrNotFound when its caller has left.
	get(ctx context.Context, id string) (store.Question, error)
	// requeue puts a question back in line; attempt 0 means whichever is under way.
	requeue(ctx context.Context, id string, attempt int64) error
	// complete takes the reply of the live lease; false when there is none such.
	complete(ctx context.Context, q store.Question, r store.Reply) (bool, error)
	// reply waits for the answer.
	reply(ctx context.Context, id string) (store.Reply, error)
	// count counts the unanswered questions of a kind in a namespace by queue.
	count(ctx context.Context, namespace string, kind protocol.TaskKind) (map[string]protocol.QueryTally, error)
	// remove takes a question away whose caller has left.
	remove(ctx context.Context, id string) error
}

// line is where the questions of one kind wait for the workers of a queue.
type line struct {
	namespace, queue string
	kind             protocol.TaskKind
}

func lineOf(q *store.Question) line { return line{q.Namespace, q.Queue, q.Kind} }
