package membership

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An HTTP worker never reports which tasks it holds, and gives up a poll one second after the poll's app died. A task
// that this app leased to the poll just before would wait until its lease expires, minutes later. But the worker's
// heartbeats report its free slots, and an open poll shows that the previous one has ended. So a task that was leased
// before then and occupies no slot was not delivered. Sojourn relies on this only after the death of the app that
// leased the task, since nothing verifies the reported numbers.

// recordIdle records what a heartbeat reports of one kind of task, while the worker has a number of open polls for it
// here. It returns the time of the previous heartbeat that also reported no running task of this kind; zero: it
// reported one. Heartbeats that are less than apart after a counted one do not count.
func (h *TrackedWorker) recordIdle(kind protocol.TaskKind, polls int, apart time.Duration) (before time.Time) {
	used := slotsOf(h.Worker, kind)
	free, reported := h.free()[kind]
	if used -= free; kind == protocol.KindWorkflow && strings.HasPrefix(h.Worker.SDKVersion, protocol.PythonSDK) {
		used -= polls // the Python SDK reserves a slot per workflow poll
	}
	switch before = h.IdleAt[kind]; {
	case !reported || used > 0:
		delete(h.IdleAt, kind)
		return time.Time{}
	case polls == 0, time.Since(before) < apart: // without an open poll, a response may be on its way; or too early
		return time.Time{}
	}
	if h.IdleAt == nil {
		h.IdleAt = map[protocol.TaskKind]time.Time{}
	}
	h.IdleAt[kind] = time.Now()
	return before
}

// returnUndelivered evaluates the free slots that a worker's heartbeat reports. It releases tasks leased by dead apps
// if two heartbeats in a row report no running task of their kind; the first one may have been sent before the task was
// leased.
func (ws *Workers) returnUndelivered(ctx context.Context, w *engine.Worker) error {
	key, open := w.Key(), map[protocol.TaskKind][]string{}
	for _, kind := range []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity} {
		open[kind] = ws.dispatch.Polls(key, kind)
	}
	underway := ws.opt.Heartbeat / 3 // the longest time that a response or a heartbeat is on its way
	now, before := time.Now(), map[protocol.TaskKind]time.Time{}
	ws.With(key, func(h *TrackedWorker) {
		for kind, polls := range open {
			if rested := h.recordIdle(kind, len(polls), underway); !rested.IsZero() {
				before[kind] = rested.Add(-underway)
			}
		}
	})
	if len(before) == 0 || now.UnixNano()-ws.appEndedAt.Load() > int64(ws.opt.HTTPLease) {
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
		// another live app has delivered the task again
		if !rested || ref.App == "" || serves[ref.App] || ref.Redeliveries > 0 ||
			slices.Contains(open[ref.Kind], ref.PollID) || !ref.LeasedAt.Before(stored.Add(-now.Sub(at))) {
			continue
		}
		// An attempt with a heartbeat was delivered; ReleaseUnlessHeartbeat does not release it.
		err := transaction.ReleaseUnlessHeartbeat(ctx, ws.store, ref, "undelivered", true, ref.LeasedAt)
		switch {
		case err == nil:
			ws.log.Info().Str("worker_id", w.ID).Str("run_id", ref.Run).Msg("requeued a task leased by a dead app")
		case protocol.ReasonOf(err) == "": // other errors: the attempt has already ended
			return err
		}
	}
	return nil
}
