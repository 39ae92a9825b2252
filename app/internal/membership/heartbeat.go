package membership

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/release"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Every accepted request of a process counts as its heartbeat. A refused request does not: any caller could send it
// under the worker's ID. Heartbeats belong to a process (an incarnation), not to a worker ID; otherwise a superseded
// process would keep its dead successor alive.

// RecordHeartbeat records a heartbeat of the registered process. Every accepted request counts as one: polls and
// completions as well as heartbeat requests.
func (ws *Workers) RecordHeartbeat(k engine.WorkerKey) { ws.recordHeartbeatOf(k, "") }

// recordHeartbeatOf is RecordHeartbeat for one incarnation. It does nothing if another incarnation is registered. The
// empty incarnation means the registered one.
func (ws *Workers) recordHeartbeatOf(k engine.WorkerKey, incarnation string) {
	overdue := false
	ws.With(k, func(h *TrackedWorker) {
		if incarnation != "" && h.Worker.Incarnation != incarnation {
			return
		}
		h.RecordHeartbeat()
		overdue = ws.overdue(h)
	})
	if overdue {
		ws.storeSoon()
	}
}

// storeSoon wakes Watch to store overdue heartbeats, together with heartbeats that are due soon.
func (ws *Workers) storeSoon() {
	select {
	case ws.unstored <- struct{}{}:
	default:
	}
}

// RecordHolderHeartbeat records a heartbeat of the process that holds a task or a session, after a request under its
// lease was accepted.
func (ws *Workers) RecordHolderHeartbeat(ctx context.Context, k engine.WorkerKey, incarnation string) {
	if k.ID == "" || incarnation == "" {
		return
	}
	if ws.Get(k) == nil {
		if _, err := ws.active(ctx, k); err != nil { // connected to another app, or before a restart
			return
		}
	}
	ws.recordHeartbeatOf(k, incarnation)
	ws.RecordLease(k)
}

// RecordLease records that a worker acquired a lease. If StoresEachHeartbeat becomes true by it, the worker's row is
// updated at once. Otherwise, if the worker and this app died together now, the other apps would treat the worker as
// alive for up to StoreAlive.
func (ws *Workers) RecordLease(k engine.WorkerKey) {
	unstored := false
	ws.With(k, func(h *TrackedWorker) {
		h.LastLeaseAt = time.Now()
		unstored = ws.opt.Shared && h.StoresEachHeartbeat(ws.opt.HTTPLease) && !h.StoresEach
	})
	if unstored {
		ws.storeSoon()
	}
}

// Current returns the registration of a worker. It refuses callers of a superseded incarnation, and callers whose token
// is not allowed to act for the worker.
func (ws *Workers) Current(ctx context.Context, key engine.WorkerKey, incarnation string) (*engine.Worker, error) {
	w, err := ws.active(ctx, key)
	if err != nil {
		return nil, err
	}
	if (incarnation == "" || incarnation == w.Incarnation) && auth.BoundFrom(ctx).SpeaksFor(w) {
		return w, nil
	}
	// Another app may have accepted a newer registration, so the row is read before the caller is refused. If the row
	// has the cached incarnation, the cached state of the live process stays.
	stored, err := ws.Stored(ctx, key)
	if err != nil {
		if protocol.ReasonOf(err) == protocol.ReasonWorkerNotRegistered {
			ws.Swap(key, w, nil)
		}
		return nil, err
	}
	switch {
	case !stored.DeregisteredAt.IsZero():
		ws.Swap(key, w, nil)
	case stored.Incarnation != w.Incarnation:
		ws.Swap(key, w, stored)
	}
	if !auth.BoundFrom(ctx).SpeaksFor(stored) {
		return nil, transaction.WorkerNotFound(key.ID)
	}
	if !stored.DeregisteredAt.IsZero() {
		return nil, deregistered(stored)
	}
	if incarnation != "" && incarnation != stored.Incarnation {
		return nil, transaction.StaleWorker(key.ID)
	}
	return stored, nil
}

// Gate records why the release gate holds a worker, and logs each change of it.
func (ws *Workers) Gate(key engine.WorkerKey, v release.Verdict) {
	why := ""
	if !v.Allowed {
		why = v.Message
	}
	changed := false
	ws.With(key, func(h *TrackedWorker) { changed, h.Gate = h.Gate != why, why })
	if changed && why != "" {
		ws.log.Warn().Str("worker_id", key.ID).Str("reason", v.Reason).Msg(why)
	}
	if changed && why == "" {
		ws.log.Info().Str("worker_id", key.ID).Msg("app and worker releases match; dispatch enabled")
	}
}

// Drains reports whether a worker drained in its last heartbeat. On a shared database, Drains reads the row before it
// returns true for a state that came from a row, since another app may have received a newer heartbeat.
func (ws *Workers) Drains(ctx context.Context, w *engine.Worker) bool {
	drains, stored := ws.ReportedDrain(w)
	if !drains || !stored || !ws.opt.Shared {
		return drains
	}
	row, err := ws.Stored(ctx, w.Key())
	if err != nil || row.Incarnation != w.Incarnation || row.Status == protocol.WorkerDraining {
		return true
	}
	ws.With(w.Key(), func(h *TrackedWorker) {
		if h.Worker.Incarnation == w.Incarnation && !h.DrainUnstored {
			h.Draining = false
		}
	})
	return false
}

// withDrainState is like With, for a change of a worker's state that may change its drain state. When the worker starts
// to drain, withDrainState drops its open polls at this app, so that they return at once.
func (ws *Workers) withDrainState(k engine.WorkerKey, update func(*TrackedWorker)) {
	begins := false
	ws.With(k, func(h *TrackedWorker) {
		drained := h.Draining
		update(h)
		begins = h.Draining && !drained
	})
	if begins {
		ws.dispatch.Drop(k, dispatch.ErrDraining)
	}
}

// Heartbeat records a worker's heartbeat request with the state in it (drain, machine, slots, process), and returns the
// worker's registration. The heartbeat is stored before Heartbeat returns if the drain state changed, if it is the
// first heartbeat request of the worker, or if StoresEachHeartbeat is true.
func (ws *Workers) Heartbeat(ctx context.Context, in protocol.WorkerHeartbeat) (*engine.Worker, error) {
	if in.WorkerID == "" {
		return nil, protocol.Invalid("worker_id", "is missing")
	}
	key := engine.WorkerKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.WorkerID}
	w, err := ws.Current(ctx, key, in.Incarnation)
	if err != nil {
		return nil, err
	}
	needed, overdue := false, false
	ws.withDrainState(key, func(h *TrackedWorker) {
		h.DrainUnstored = h.DrainUnstored || h.Draining != in.Draining
		needed = h.DrainUnstored // the other apps, and this one after a restart, read the drain state from the row
		h.RecordHeartbeat()
		h.Draining = in.Draining
		if !in.FromSettings && !h.SendsHeartbeats() {
			h.Beats, needed = true, true // after a restart, this app reads Beats from the row
		}
		if len(in.Machine) > 0 {
			h.Machine = in.Machine
		}
		if len(in.Slots) > 0 {
			h.Slots = in.Slots
		}
		if len(in.Process) > 0 {
			h.Process = in.Process
		}
		if ws.opt.Shared && h.StoresEachHeartbeat(ws.opt.HTTPLease) {
			needed = true
		}
		overdue = ws.overdue(h)
	})
	if needed {
		if err := ws.storeAlive(ctx, key); err != nil {
			return nil, err
		}
		if known := ws.Get(key); w.Explicit && known != nil && known.Incarnation != w.Incarnation {
			return nil, transaction.StaleWorker(key.ID)
		}
	} else if overdue {
		ws.storeSoon()
	}
	if !w.Explicit && len(in.Slots) > 0 {
		if err := ws.returnUndelivered(ctx, w); err != nil && ctx.Err() == nil {
			store.Warn(&ws.log, err).Str("worker_id", w.ID).Msg("failed to release tasks leased by a dead app; they expire with their leases")
		}
	}
	return w, nil
}
