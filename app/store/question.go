package store

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Question is a task for the workers of a queue, which may poll another app than the caller's: a query, or the
// validation of an update. It ends with its caller's request, so it is neither durable nor part of a history.
type Question struct {
	ID         string            `json:"id"` // a ULID: their order is that in which they came
	Kind       protocol.TaskKind `json:"kind"`
	Namespace  string            `json:"namespace"`
	Queue      string            `json:"queue"`
	WorkflowID string            `json:"workflow_id"`
	RunID      string            `json:"run_id"`
	Type       string            `json:"type"` // of the workflow
	RunStatus  string            `json:"run_status"`
	LastSeq    int64             `json:"last_seq"` // the history that the worker replays ends here
	Name       string            `json:"name"`     // of the query or update
	Arguments  string            `json:"arguments,omitempty"`
	Bytes      int64             `json:"bytes,omitempty"` // of its task

	Requirements []string  `json:"requirements,omitempty"` // capabilities without which a worker cannot run the workflow
	Asked        []string  `json:"beside,omitempty"`       // processes that were asked the same and have not answered
	Until        time.Time `json:"-"`                      // deadline of the caller, and of every lease

	Owner       string `json:"-"` // empty: it waits for a worker
	Incarnation string `json:"-"`
	Attempt     int64  `json:"-"`
	Over        bool   `json:"-"` // it was answered
}

// Reply is a worker's answer. With a failure there is no result.
type Reply struct {
	Result  string            `json:"result,omitempty"`
	Failure *protocol.Failure `json:"failure,omitempty"`
}

// ErrFull says that as many questions as may wait do.
var ErrFull = errors.New("too many queries wait in this queue")

// Questions passes questions between the apps that share a database. Dispatcher.Backlog reports a question that waits
// for a worker, and Changed.Answers one that was answered; both notices may be lost.
type Questions interface {
	// Ask enqueues a question for at most patience; ErrFull if most questions wait in its queue.
	Ask(ctx context.Context, q Question, patience time.Duration, most int) error
	// Waiting lists up to limit waiting questions of a kind and queue, oldest first.
	Waiting(ctx context.Context, namespace, queue string, kind protocol.TaskKind, limit int) ([]Question, error)
	// Lease leases a question to its Owner; false if another app was faster or its caller has left.
	Lease(ctx context.Context, q Question) (bool, error)
	// Question returns a question in its current state; ErrNotFound if its caller has left.
	Question(ctx context.Context, id string) (Question, error)
	// Unlease puts a question back in line; attempt 0 means whichever is under way.
	Unlease(ctx context.Context, id string, attempt int64) error
	// Settle stores the reply of the current, unexpired lease; false if there is no such lease.
	Settle(ctx context.Context, q Question, r Reply) (bool, error)
	// Reply returns the reply, if there is one.
	Reply(ctx context.Context, id string) (Reply, bool, error)
	// CountUnanswered counts the questions of a kind in a namespace that are not answered, by queue.
	CountUnanswered(ctx context.Context, namespace string, kind protocol.TaskKind) (map[string]protocol.QueryTally, error)
	// Forget removes a question whose caller has left.
	Forget(ctx context.Context, id string) error
}
