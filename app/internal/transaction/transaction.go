// Package transaction builds the changes that verbs submit to the store: a step of a run or a session, the end of a
// delivery, and pages of history. It starts no goroutines and holds no state.
package transaction

import (
	"context"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Commit submits one change whose answer is a T.
func Commit[T any](ctx context.Context, s store.Store, c store.Change) (T, error) {
	a, err := s.Commit(ctx, c)
	if err != nil {
		var zero T
		return zero, err
	}
	return a.(T), nil
}

// NoRun returns the error for an unknown run ID.
func NoRun(id string) error {
	return protocol.Refuse(protocol.ReasonRunNotFound, "run %s not found", id)
}

// NoTask returns the error for an unknown task ID.
func NoTask(id string) error {
	return protocol.Refuse(protocol.ReasonTaskNotFound, "task %s not found", id)
}

// NoWorker is the answer to a caller that may not speak for a worker, as if there were none: it has no business knowing
// that there is one.
func NoWorker(id string) error {
	return protocol.Refuse(protocol.ReasonWorkerNotFound, "worker %s not found", id).With("worker_id", id)
}

// NoSession is the same of a session.
func NoSession() error { return protocol.Refuse(protocol.ReasonSessionNotFound, "no such session") }

// StaleWorker returns the error for a superseded process.
func StaleWorker(id string) error {
	return protocol.Refuse(
		protocol.ReasonStaleRegistration, "another process registered as worker %s after this one", id,
	).With("poll_status", string(protocol.ReasonStaleRegistration))
}

// Namespace is the namespace a request means.
func Namespace(n string) string {
	if n == "" {
		return "default"
	}
	return n
}
