package presence

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/release"
)

// Whatever was accepted from a process is a sign of its life. A report that was refused is none: anybody could send it
// in the worker's name. A sign belongs to a process and not to an id, or an older process would keep its dead successor
// alive.

// Hear notes a heartbeat of a process: whatever was accepted from it is one, polls and reports as well as heartbeats.
func (ws *Workers) Hear(k engine.WorkerKey) { ws.hearProcess(k, "") }

// hearProcess is Hear for a process that may have been superseded: what a newer process says is no heartbeat of an
// older one. "" stands for the process that is known.
func (ws *Workers) hearProcess(k engine.WorkerKey, incarnation string) {
	overdue := false
	ws.With(k, func(h *Heard) {
		if incarnation != "" && h.Worker.Incarnation != incarnation {
			return
		}
		h.Hear()
		overdue = ws.overdue(h)
	})
	if overdue {
		ws.storeSoon()
	}
}

// storeSoon has the heartbeats stored that are overdue, with those of others that will be soon.
func (ws *Workers) storeSoon() {
	select {
	case ws.unstored <- struct{}{}:
	default:
	}
}

// Credit notes that a report was accepted under a lease, or a verb under a holding, which is a heartbeat of the process
// that has it.
func (ws *Workers) Credit(ctx context.Context, k engine.WorkerKey, incarnation string) {
	if k.ID == "" || incarnation == "" {
		return
	}
	if ws.Get(k) == nil {
		if _, err := ws.standing(ctx, k); err != nil { // it polls at another app, or did so before this one was started
			return
		}
	}
	ws.hearProcess(k, incarnation)
	ws.Gave(k)
}

// Gave notes that a worker holds something. That its heartbeats are stored from now on is written at once: else the
// other apps would believe for a minute more that it may have been heard, if it dies now together with this app.
func (ws *Workers) Gave(k engine.WorkerKey) {
	unstored := false
	ws.With(k, func(h *Heard) {
		h.Gave = time.Now()
		unstored = ws.opt.Shared && h.Closely(ws.opt.HTTPLease) && !h.Close
	})
	if unstored {
		ws.storeSoon()
	}
}

// Current is the registration of a worker, refused when the caller is an older process of that name, or may not speak
// for it.
func (ws *Workers) Current(ctx context.Context, key engine.WorkerKey, incarnation string) (*engine.Worker, error) {
	w, err := ws.standing(ctx, key)
	if err != nil {
		return nil, err
	}
	if (incarnation == "" || incarnation == w.Incarnation) && auth.BoundFrom(ctx).SpeaksFor(w) {
		return w, nil
	}
	// Another app may have taken the newer registration: look before refusing. When it did not, what is known of the
	// living process stays.
	stored, err := ws.Stored(ctx, key)
	if err != nil {
		if protocol.ReasonOf(err) == protocol.ReasonWorkerNotRegistered {
			ws.Swap(key, w, nil)
		}
		return nil, err
	}
	switch {
	case !stored.Left.IsZero():
		ws.Swap(key, w, nil)
	case stored.Incarnation != w.Incarnation:
		ws.Swap(key, w, stored)
	}
	if !auth.BoundFrom(ctx).SpeaksFor(stored) {
		return nil, change.NoWorker(key.ID)
	}
	if !stored.Left.IsZero() {
		return nil, left(stored)
	}
	if incarnation != "" && incarnation != stored.Incarnation {
		return nil, change.StaleWorker(key.ID)
	}
	return stored, nil
}

// Gate remembers why the release gate holds a worker, and says so once per change.
func (ws *Workers) Gate(key engine.WorkerKey, v release.Verdict) {
	why := ""
	if !v.Allowed {
		why = v.Message
	}
	changed := false
	ws.With(key, func(h *Heard) { changed, h.Gate = h.Gate != why, why })
	if changed && why != "" {
		ws.log.Warn().Str("worker_id", key.ID).Str("reason", v.Reason).Msg(why)
	}
	if changed && why == "" {
		ws.log.Info().Str("worker_id", key.ID).Msg("app and worker releases match; dispatch enabled")
	}
}

// Drains says whether a worker said last that it drains, at whichever app: before it is refused its row is looked at,
// since another app may have heard the opposite.
func (ws *Workers) Drains(ctx context.Context, w *engine.Worker) bool {
	drains, stored := ws.SaidDrain(w)
	if !drains || !stored || !ws.opt.Shared {
		return drains
	}
	row, err := ws.Stored(ctx, w.Key())
	if err != nil || row.Incarnation != w.Incarnation || row.Status == protocol.WorkerDraining {
		return true
	}
	ws.With(w.Key(), func(h *Heard) {
		if h.Worker.Incarnation == w.Incarnation && !h.Unsaid {
			h.Draining = false
		}
	})
	return false
}

// heed is With for what may have been said of a worker's drain. When it begins, the polls that the worker has open here
// are answered, so that it need not wait for their end.
func (ws *Workers) heed(k engine.WorkerKey, note func(*Heard)) {
	begins := false
	ws.With(k, func(h *Heard) {
		drained := h.Draining
		note(h)
		begins = h.Draining && !drained
	})
	if begins {
		ws.dispatch.Drop(k, dispatch.ErrDraining)
	}
}

// Beat takes the heartbeat that a worker's heartbeat is, with what it says of itself, and returns its registration. It
// is stored before it is answered where others would not know of it in time.
func (ws *Workers) Beat(ctx context.Context, in protocol.WorkerHeartbeat) (*engine.Worker, error) {
	if in.WorkerID == "" {
		return nil, protocol.Invalid("worker_id", "is missing")
	}
	key := engine.WorkerKey{Namespace: change.Namespace(in.Namespace), ID: in.WorkerID}
	w, err := ws.Current(ctx, key, in.Incarnation)
	if err != nil {
		return nil, err
	}
	keep, overdue := false, false
	ws.heed(key, func(h *Heard) {
		h.Unsaid = h.Unsaid || h.Draining != in.Draining
		keep = h.Unsaid // for the other apps to know as well, and for this one when it was started again
		h.Hear()
		h.Draining = in.Draining
		if !in.Told && !h.Missed() {
			h.Beats, keep = true, true // for this app to know as well when it was started again
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
		if ws.opt.Shared && h.Closely(ws.opt.HTTPLease) {
			keep = true
		}
		overdue = ws.overdue(h)
	})
	if keep {
		if err := ws.storeAlive(ctx, key); err != nil {
			return nil, err
		}
		if known := ws.Get(key); w.Explicit && known != nil && known.Incarnation != w.Incarnation {
			return nil, change.StaleWorker(key.ID)
		}
	} else if overdue {
		ws.storeSoon()
	}
	if !w.Explicit && len(in.Slots) > 0 {
		if err := ws.freeLost(ctx, w); err != nil && ctx.Err() == nil {
			store.Warn(&ws.log, err).Str("worker_id", w.ID).Msg("failed to release tasks leased by a dead app; they expire with their leases")
		}
	}
	return w, nil
}
