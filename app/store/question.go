package store

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Question is a query task or an update validation task for the workers of a queue, which may poll another app than the
// caller's. It ends with the caller's request, so it is neither durable nor part of a history.
type Question struct {
	ID         string            `json:"id"` // a ULID, so IDs sort by arrival
	Kind       protocol.TaskKind `json:"kind"`
	Namespace  string            `json:"namespace"`
	Queue      string            `json:"queue"`
	WorkflowID string            `json:"workflow_id"`
	RunID      string            `json:"run_id"`
	Type       string            `json:"type"` // workflow type
	RunStatus  string            `json:"run_status"`
	LastSeq    int64             `json:"last_seq"` // last event of the history that the worker replays
	Name       string            `json:"name"`     // name of the query or update
	Arguments  string            `json:"arguments,omitempty"`
	Headers    history.Headers   `json:"headers,omitempty"`
	Bytes      int64             `json:"bytes,omitempty"` // size of the task

	Requirements []string `json:"requirements,omitempty"` // capabilities without which a worker cannot run the workflow
	// processes that received an earlier copy of the task and have not replied
	Asked []string  `json:"beside,omitempty"`
	Until time.Time `json:"-"` // deadline of the caller, and of every lease

	Owner       string `json:"-"` // worker that leased it; empty: it waits for a worker
	Incarnation string `json:"-"`
	Attempt     int64  `json:"-"`
	Over        bool   `json:"-"` // a reply was stored
}

// Reply is the response of a worker. With a failure it has no result.
type Reply struct {
	Result  string            `json:"result,omitempty"`
	Failure *protocol.Failure `json:"failure,omitempty"`
}

// ErrFull means that the queue contains the maximum number of waiting questions.
var ErrFull = errors.New("too many queries wait in this queue")

// Questions passes questions between the apps that share a database. Dispatcher.Backlog reports a question that waits
// for a worker, and Changed.Answers a reply; both notifications may be lost.
type Questions interface {
	// Ask enqueues a question for at most patience. It returns ErrFull if most questions wait in its queue.
	Ask(ctx context.Context, q Question, patience time.Duration, most int) error
	// Waiting lists up to limit waiting questions of a kind and queue, oldest first.
	Waiting(ctx context.Context, namespace, queue string, kind protocol.TaskKind, limit int) ([]Question, error)
	// Lease leases a question to its Owner. It returns false if another app was faster or the caller no longer waits.
	Lease(ctx context.Context, q Question) (bool, error)
	// Question returns the current state of a question, or ErrNotFound if the caller no longer waits.
	Question(ctx context.Context, id string) (Question, error)
	// Unlease makes a question wait for a worker again; attempt 0 means the current attempt.
	Unlease(ctx context.Context, id string, attempt int64) error
	// Settle stores the reply under the current, unexpired lease. It returns false if there is no such lease.
	Settle(ctx context.Context, q Question, r Reply) (bool, error)
	// Reply returns the reply; false if there is none yet.
	Reply(ctx context.Context, id string) (Reply, bool, error)
	// CountUnanswered counts, by queue, the questions of a kind in a namespace without a reply.
	CountUnanswered(ctx context.Context, namespace string, kind protocol.TaskKind) (map[string]protocol.QueryTally, error)
	// Forget removes a question whose caller no longer waits.
	Forget(ctx context.Context, id string) error
}
