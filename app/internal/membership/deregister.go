package membership

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Deregistration has three steps in this order: fence marks the row, so that the process receives nothing more; its
// leases and sessions are released; the row is deleted last, since a lease must never name a worker without a row.
// After a failure the caller repeats the request: marking a marked row succeeds.

// Deregister removes a worker's registration on the worker's request. It releases the worker's leases and sessions, so
// that other workers continue at once.
func (ws *Workers) Deregister(ctx context.Context, in protocol.DeregisterRequest) (protocol.DeregisterResponse, error) {
	w, err := ws.markDeregistered(ctx, in)
	if err != nil {
		return protocol.DeregisterResponse{}, err
	}
	flows, err := ws.releaseDeregistered(ctx, w, engine.ReturnedDraining, noLoss)
	return protocol.DeregisterResponse{WorkerID: w.ID, Outcome: "deregistered", Recovered: flows}, err
}

// RemoveWorker removes a worker's registration on an operator's request. From then on the worker receives no tasks.
// Tasks that it may still run are not requeued: it may complete them, and its row stays until it has completed them or
// their leases have expired. A live process with an incarnation is refused from then on, until another process
// registers under its ID.
func (ws *Workers) RemoveWorker(ctx context.Context, ns, id string) (protocol.DeregisterResponse, error) {
	key := engine.WorkerKey{Namespace: transaction.NamespaceOrDefault(ns), ID: id}
	w, err := ws.Known(ctx, key)
	if err != nil {
		return protocol.DeregisterResponse{}, transaction.WorkerNotFound(id)
	}
	now, err := ws.store.Now(ctx)
	if err != nil {
		return protocol.DeregisterResponse{}, err
	}
	h := TrackedWorker{Worker: w}
	ws.With(key, func(known *TrackedWorker) { h = *known })
	lives := ws.Alive(h, now) || !ws.opt.Shared && h.At.IsZero() && time.Since(ws.started) <= ws.opt.Alive
	if w, err = ws.markDeregistered(ctx, protocol.DeregisterRequest{Namespace: ns, WorkerID: id}); err != nil {
		return protocol.DeregisterResponse{}, err
	}
	out := protocol.DeregisterResponse{WorkerID: id, Outcome: "deregistered"}
	var refs []store.TaskRef
	err = ws.store.View(ctx, func(r store.Reader) error {
		refs, err = r.Owned(ctx, key, w.Incarnation)
		return err
	})
	if err != nil || (lives || w.Explicit) && len(refs) > 0 || lives && namesProcess(w) {
		return out, err
	}
	// leases of a live worker are not released
	out.Recovered, err = ws.releaseDeregistered(ctx, w, engine.ReasonOrphaned, allLost)
	return out, err
}

// namesProcess reports whether the incarnation of a worker identifies its process.
func namesProcess(w *engine.Worker) bool {
	return w.Explicit && w.Incarnation != protocol.SocketProcess
}

// markDeregistered marks a registration as removed. From this commit on, this app leases nothing to the process, nor do
// other apps once they are notified.
func (ws *Workers) markDeregistered(ctx context.Context, in protocol.DeregisterRequest) (*engine.Worker, error) {
	key := engine.WorkerKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.WorkerID}
	if err := ws.CheckVisible(ctx, key.Namespace, in.WorkerID); err != nil {
		return nil, err
	}
	w, err := transaction.Commit[engine.Worker](ctx, ws.store, store.Transaction{
		Needs: store.Keys{Workers: []engine.WorkerKey{key}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			old := rows.Worker(key)
			switch {
			case old == nil:
				return store.Writes{}, transaction.WorkerNotFound(key.ID)
			case in.Incarnation != "" && in.Incarnation != old.Incarnation:
				return store.Writes{}, transaction.StaleWorker(key.ID)
			case !old.DeregisteredAt.IsZero():
				return store.Writes{Answer: *old}, nil
			}
			next := *old
			next.DeregisteredAt, next.UpdatedAt, next.Status = history.At(now), history.At(now), protocol.WorkerDraining
			return store.Writes{Workers: []engine.Worker{next}, Answer: next}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	ws.dispatch.Deregistered(store.Process{Worker: key, Incarnation: w.Incarnation})
	return &w, nil
}

// releaseTimeout is the timeout of the release after a deregistration, which runs without its caller's context.
const releaseTimeout = 30 * time.Second

// releaseDeregistered releases the leases and sessions of a deregistered process, and deletes its row unless a new
// process has registered. It returns the number of requeued workflow tasks. It continues if the caller disconnects: a
// worker exits right after it deregistered, and its tasks would otherwise wait until their leases expire.
func (ws *Workers) releaseDeregistered(
	ctx context.Context, w *engine.Worker, why string, lost func(store.TaskRef) bool,
) (flows int, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	key := w.Key()
	_, flows, err = ws.endProcesses(ctx, key, why, lost, func(incarnation string) bool {
		return incarnation == w.Incarnation
	})
	if err != nil {
		return 0, err
	}
	if err := ws.releaseSessions(ctx, key, "shutdown"); err != nil {
		return 0, err
	}
	_, err = ws.deleteRows(ctx, []engine.WorkerKey{key}, func(rows store.Rows) []engine.WorkerKey {
		if now := rows.Worker(key); now == nil || now.Incarnation != w.Incarnation || now.DeregisteredAt.IsZero() {
			return nil
		}
		return []engine.WorkerKey{key}
	})
	return flows, err
}

// deleteRows deletes the rows of workers of one namespace for which over returns true. If a drain names a deleted
// worker, drop records the time of deletion in the drain, so that the drain also applies to the worker after a restart.
func (ws *Workers) deleteRows(
	ctx context.Context, keys []engine.WorkerKey, removable func(store.Rows) []engine.WorkerKey,
) ([]engine.WorkerKey, error) {
	all := engine.QueueKey{Namespace: keys[0].Namespace}
	needs := store.Keys{Workers: keys}
	if ws.opt.Settings(all).DrainsOneOf(keys) {
		needs.Queues = []engine.QueueKey{all}
	}
	return transaction.Commit[[]engine.WorkerKey](ctx, ws.store, store.Transaction{
		Needs: needs,
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			w := store.Writes{DropWorkers: removable(rows)}
			w.Answer = w.DropWorkers
			if q := rows.Queue(all); len(needs.Queues) > 0 && q.DrainsOneOf(w.DropWorkers) {
				w.Queues = []engine.Queue{q.Without(w.DropWorkers, now)}
			}
			return w, nil
		},
	})
}

// releaseSessions releases every session that a worker holds.
func (ws *Workers) releaseSessions(ctx context.Context, w engine.WorkerKey, why string) error {
	return ws.updateSessions(ctx, w, func(s *engine.Session) engine.SessionInput {
		return engine.ReleaseSession{SessionHolder: engine.SessionHolder{Worker: w.ID, Epoch: s.Epoch}, Why: why}
	}, func(err error) bool { return protocol.ReasonOf(err) != "" })
}

// updateSessions applies one step to each session that a worker holds. It ignores errors for which over is true:
// another change has already ended that session's lease.
func (ws *Workers) updateSessions(
	ctx context.Context, w engine.WorkerKey, step func(*engine.Session) engine.SessionInput, ignorable func(error) bool,
) error {
	held, err := transaction.SessionsOwnedBy(ctx, ws.store, w)
	if err != nil {
		return err
	}
	for i := range held {
		_, err := transaction.UpdateSession(ctx, ws.store, ws.dispatch, held[i].Key(), step(&held[i]))
		if err != nil && !ignorable(err) {
			return err
		}
	}
	return nil
}
