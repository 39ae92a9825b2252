// Package transaction builds the transactions that requests submit to the store: a step of a run or a session, the end
// of a delivery, and pages of history. It starts no goroutines and holds no state.
package transaction

import (
	"context"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Commit submits one transaction whose result is a T.
func Commit[T any](ctx context.Context, s store.Store, c store.Transaction) (T, error) {
	a, err := s.Commit(ctx, c)
	if err != nil {
		var zero T
		return zero, err
	}
	return a.(T), nil
}

// WorkflowNotFound returns the error for an unknown workflow ID.
func WorkflowNotFound(id string) error {
	return protocol.Refuse(protocol.ReasonInstanceNotFound, "workflow %s not found", id)
}

// RunNotFound returns the error for an unknown run ID.
func RunNotFound(id string) error {
	return protocol.Refuse(protocol.ReasonRunNotFound, "run %s not found", id)
}

// TaskNotFound returns the error for an unknown task ID.
func TaskNotFound(id string) error {
	return protocol.Refuse(protocol.ReasonTaskNotFound, "task %s not found", id)
}

// WorkerNotFound is the error for a caller that may not act for a worker. It is the same as for a worker that does not
// exist, so that the caller does not learn that the worker exists.
func WorkerNotFound(id string) error {
	return protocol.Refuse(protocol.ReasonWorkerNotFound, "worker %s not found", id).With("worker_id", id)
}

// SessionNotFound is the corresponding error for a session.
func SessionNotFound() error {
	return protocol.Refuse(protocol.ReasonSessionNotFound, "session not found")
}

// StaleWorker returns the error for a superseded process.
func StaleWorker(id string) error {
	return protocol.Refuse(
		protocol.ReasonStaleRegistration, "another process registered as worker %s after this one", id,
	).With("poll_status", string(protocol.ReasonStaleRegistration))
}

// NamespaceOrDefault returns the namespace of a request.
func NamespaceOrDefault(n string) string {
	if n == "" {
		return "default"
	}
	return n
}
