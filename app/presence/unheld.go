package presence

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A client of the HTTP contract never says which tasks it holds, and gives a poll up a second after its app is gone.
// What that app had leased to it just before would wait for the end of its lease, minutes later. But heartbeats say how
// many slots are free, and an open poll says that the one before it has ended: what was leased before that and has no
// slot did not arrive. Only the death of the app that gave it makes this worth believing, since nobody checks a
// client's numbers.

// rest notes what a heartbeat says of a kind of tasks, while so many of the worker's polls for them are open here, and
// returns when the one before said as well that it runs none of them, zero if none did. Of heartbeats that are less
// apart one counts.
func (h *Heard) rest(kind protocol.TaskKind, polls int, apart time.Duration) (before time.Time) {
	used := most(h.Worker, kind)
	free, said := h.free()[kind]
	if used -= free; kind == protocol.KindWorkflow && strings.HasPrefix(h.Worker.SDKVersion, protocol.PythonSDK) {
		used -= polls // it keeps a slot for what a poll may bring
	}
	switch before = h.Rested[kind]; {
	case !said || used > 0:
		delete(h.Rested, kind)
		return time.Time{}
	case polls == 0, time.Since(before) < apart: // without one it may wait for an answer still, or is between two
		return time.Time{}
	}
	if h.Rested == nil {
		h.Rested = map[protocol.TaskKind]time.Time{}
	}
	h.Rested[kind] = time.Now()
	return before
}

// freeLost takes note of the slots that the heartbeat of a worker that names nothing it holds says are free, and
// undoes the leases from apps which are gone that have no slot by two heartbeats: one alone may have been sent before
// the lease was given.
func (ws *Workers) freeLost(ctx context.Context, w *engine.Worker) error {
	key, open := w.Key(), map[protocol.TaskKind][]string{}
	for _, kind := range []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity} {
		open[kind] = ws.dispatch.Polls(key, kind)
	}
	underway := ws.opt.Heartbeat / 3 // is an answer at most, or a heartbeat
	now, before := time.Now(), map[protocol.TaskKind]time.Time{}
	ws.With(key, func(h *Heard) {
		for kind, polls := range open {
			if rested := h.rest(kind, len(polls), underway); !rested.IsZero() {
				before[kind] = rested.Add(-underway)
			}
		}
	})
	if len(before) == 0 || now.UnixNano()-ws.fell.Load() > int64(ws.opt.HTTPLease) {
		return nil
	}
	stored, err := ws.store.Now(ctx)
	if err != nil {
		return err
	}
	var refs []store.TaskRef
	serves := map[string]bool{ws.opt.App: true}
	err = ws.store.View(ctx, func(r store.Reader) (err error) {
		if refs, err = r.Owned(ctx, key, w.Incarnation); err != nil || len(refs) == 0 {
			return err
		}
		apps, err := r.Workers(ctx, store.WorkerQuery{Namespace: appsNamespace, Limit: 10_000})
		for _, a := range apps {
			serves[a.ID] = serves[a.ID] || a.AliveUntil.After(stored)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, ref := range refs {
		at, rested := before[ref.Kind]
		if !rested || ref.App == "" || serves[ref.App] || ref.Again > 0 || // it was told of it by an app that serves
			slices.Contains(open[ref.Kind], ref.PollID) || !ref.LeasedAt.Before(stored.Add(-now.Sub(at))) {
			continue
		}
		// It arrived, if its own heartbeats did.
		err := change.ReleaseUnlessHeard(ctx, ws.store, ref, "undelivered", true, ref.LeasedAt)
		switch {
		case err == nil:
			ws.log.Info().Str("worker_id", w.ID).Str("run_id", ref.Run).Msg("requeued a task leased by a dead app")
		case protocol.ReasonOf(err) == "": // else somebody ended it meanwhile
			return err
		}
	}
	return nil
}
