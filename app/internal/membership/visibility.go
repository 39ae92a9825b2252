package membership

import (
	"context"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A token may be restricted to queues or a group, and a worker ID does not show whose worker it is. Before a caller is
// rejected the row is read, since another app may have stored a registration of the caller's worker.

// CheckVisible returns an error if the caller may not act for the worker with this ID. An unregistered ID is open to
// every caller.
func (ws *Workers) CheckVisible(ctx context.Context, ns, id string) error {
	_, err := ws.IsVisible(ctx, ns, id)
	return err
}

// IsVisible also reports whether the worker exists. Before it rejects a caller it reads the row, since another app
// may have registered the worker meanwhile.
func (ws *Workers) IsVisible(ctx context.Context, ns, id string) (there bool, err error) {
	principal := auth.BoundFrom(ctx)
	if principal == nil {
		return true, nil
	}
	key := engine.WorkerKey{Namespace: transaction.NamespaceOrDefault(ns), ID: id}
	w, err := ws.Known(ctx, key)
	if err == nil && !principal.SpeaksFor(w) {
		w, err = ws.Stored(ctx, key)
	}
	switch {
	case protocol.ReasonOf(err) == protocol.ReasonWorkerNotRegistered:
		return false, nil
	case err != nil:
		return false, err
	case !principal.SpeaksFor(w):
		return true, transaction.WorkerNotFound(id)
	}
	return true, nil
}
