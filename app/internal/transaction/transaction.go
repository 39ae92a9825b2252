// Package transaction builds the transactions that verbs submit to the store: a step of a run or a session, the end of
// a delivery, and pages of history. It starts no goroutines and holds no state.
package transaction

import (
	"context"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Commit submits one transaction whose answer is a T.
func Commit[T any](ctx context.Context, s store.Store, c store.Transaction) (T, error) {
	a, err := s.Commit(ctx, c)
	if err != nil {
		var zero T
		return zero, err
	}
	return a.(T), nil
}

// RunNotFound returns the error for an unknown run ID.
func RunNotFound(id string) error {
	return protocol.Refuse(protocol.ReasonRunNotFound, "run %s not found", id)
}

// TaskNotFound returns the error for an unknown task ID.
func TaskNotFound(id string) error {
	return protocol.Refuse(protocol.ReasonTaskNotFound, "task %s not found", id)
}

// WorkerNotFound is the answer to a caller that may not speak for a worker, as if there were none: it has no business
// knowing that there is one.
func WorkerNotFound(id string) error {
	return protocol.Refuse(protocol.ReasonWorkerNotFound, "worker %s not found", id).With("worker_id", id)
}

// SessionNotFound is the same of a session.
func SessionNotFound() error {
	return protocol.Refuse(protocol.ReasonSessionNotFound, "session not found")
}

// StaleWorker returns the error for a superseded process.
func StaleWorker(id string) error {
	return protocol.Refuse(
		protocol.ReasonStaleRegistration, "another process registered as worker %s after this one", id,
	).With("poll_status", string(protocol.ReasonStaleRegistration))
}

// NamespaceOrDefault is the namespace a request means.
func NamespaceOrDefault(n string) string {
	if n == "" {
		return "default"
	}
	return n
}
