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
// What that app had leased to it just before would wait for the end of its lease, minutes later. But heartbeats say
// how many slots are free, and an open poll says that the one before it is over: what was leased before that and has
// no slot did not arrive. Only the death of the app that gave it makes this worth believing, since nobody checks a
// client's numbers.

// Rest is a row of heartbeats of a worker that all said that it runs nothing of a kind.
type Rest struct{ since, last time.Time }

// rest notes what a heartbeat says of a kind of tasks. polls is how many of its polls for them are open here.
func (h *Heard) rest(kind protocol.TaskKind, polls int, now time.Time) {
	used := most(h.Worker, kind)
	free, said := h.free()[kind]
	if used -= free; kind == protocol.KindWorkflow && strings.HasPrefix(h.Worker.SDKVersion, protocol.PythonSDK) {
		used -= polls // it keeps a slot for what a poll may bring
	}
	switch r := h.Rests[kind]; {
	case !said || used > 0:
		delete(h.Rests, kind)
	case polls > 0: // else it may wait for an answer still, or is between two polls
		if h.Rests == nil {
			h.Rests = map[protocol.TaskKind]Rest{}
		}
		if r.since.IsZero() {
			r.since = now
		}
		r.last = now
		h.Rests[kind] = r
	}
}

// underway is how long an answer may be under way, or a heartbeat.
func (ws *Workers) underway() time.Duration { return ws.opt.Heartbeat / 3 }

// freeLost takes note of the slots that the heartbeat of a worker that names nothing it holds says are free, and
// undoes the leases from apps which are gone that have no slot by two heartbeats: one alone may have been sent before
// the lease was given.
func (ws *Workers) freeLost(ctx context.Context, w *engine.Worker) error {
	key, open := w.Key(), map[protocol.TaskKind][]string{}
	for _, kind := range []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity} {
		open[kind] = ws.dispatch.Polls(key, kind)
	}
	now, before := time.Now(), map[protocol.TaskKind]time.Time{}
	ws.With(key, func(h *Heard) {
		for kind, polls := range open {
			h.rest(kind, len(polls), now)
			if r, ok := h.Rests[kind]; ok && r.last.Equal(now) && now.Sub(r.since) >= ws.underway() {
				before[kind] = r.since.Add(-ws.underway())
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
		since, rests := before[ref.Kind]
		if !rests || ref.App == "" || serves[ref.App] || ref.Again > 0 || // it was told of it by an app that serves
			slices.Contains(open[ref.Kind], ref.PollID) || !ref.LeasedAt.Before(stored.Add(-now.Sub(since))) {
			continue
		}
		in, needs := change.ReleaseOf(ref, "undelivered", true, false)
		if a, ok := in.(engine.ReleaseActivity); ok {
			a.UnlessHeard = ref.LeasedAt // it arrived, if its own heartbeats did
			in = a
		}
		_, err := ws.store.Commit(ctx, change.Step("", ref.Run, needs, in))
		switch {
		case err == nil:
			ws.log.Info().Str("worker_id", w.ID).Str("run_id", ref.Run).Msg("gave on what an app that is gone had leased")
		case protocol.ReasonOf(err) == "" && !engine.IsNotDue(err): // else somebody ended it meanwhile
			return err
		}
	}
	return nil
}
