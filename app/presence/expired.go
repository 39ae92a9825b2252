package presence

import (
	"context"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

// A worker that ended without a word would stand in the lists forever. It goes once it has been silent for long and
// holds nothing: a row that something still names must stay, as what it holds is freed by it.

// A worker that sends heartbeats stays among the workers for so many times the silence after which it is taken for
// dead: 15 minutes, as that is 60 s. Who only polls may be silent as long as it works.
const (
	silencesKept     = 15
	removedUnbeating = 3 * 24 * time.Hour
)

// piece is how many workers are removed in one change.
const piece = 100

// returnTime is how long after its start an app without company waits for workers that only poll: it stored no
// heartbeat of those that it heard.
const returnTime = time.Hour

// expiryPause lies between two looks for silent workers, however many come and go.
func (ws *Workers) expiryPause() time.Duration { return ws.opt.Alive }

// expires notes that a worker may be past its time at a time of ours.
func (ws *Workers) expires(at time.Time) {
	if ws.expiry.IsZero() || at.Before(ws.expiry) {
		ws.expiry = at
	}
}

// removeSilent removes silent workers once the first of them is past its time, and notes when the next one will be:
// those that no other app is to miss. It asks nothing while all are heard.
func (ws *Workers) removeSilent(ctx context.Context, behind *Orphans) error {
	if ws.expiry.IsZero() || time.Now().Before(ws.expiry) {
		return nil
	}
	var list []engine.Worker
	err := ws.store.View(ctx, func(r store.Reader) (err error) {
		list, err = r.Workers(ctx, store.WorkerQuery{Limit: 10_000})
		return err
	})
	list = slices.DeleteFunc(list, func(w engine.Worker) bool { return behind.Others(ws.opt.App, &w) })
	next := time.Duration(0)
	if err == nil {
		next, err = ws.removeExpired(ctx, list)
	}
	ws.expiry = time.Time{}
	if next > 0 || err != nil {
		ws.expires(time.Now().Add(max(next, ws.expiryPause())))
	}
	return err
}

// Prune removes the workers of a namespace that are past their time, those included that only poll.
func (ws *Workers) Prune(ctx context.Context, namespace string) error {
	for after := ""; ; {
		var page []engine.Worker
		err := ws.store.View(ctx, func(r store.Reader) (err error) {
			page, err = r.Workers(ctx, store.WorkerQuery{Namespace: namespace, AfterID: after, Limit: piece})
			return err
		})
		if err != nil {
			return err
		}
		if _, err := ws.removeExpired(ctx, page); err != nil || len(page) < piece {
			return err
		}
		after = page[len(page)-1].ID
	}
}

// removeExpired removes those of some workers that are past their time and have nothing left, and returns when the next
// of those that send heartbeats is to be looked at; zero: this app hears them all.
func (ws *Workers) removeExpired(ctx context.Context, list []engine.Worker) (next time.Duration, err error) {
	now, err := ws.store.Now(ctx)
	if err != nil {
		return 0, err
	}
	over := map[string][]*engine.Worker{} // by namespace
	for i := range list {
		w := &list[i]
		left, silent := ws.untilRemoved(w, now)
		switch {
		case !silent:
		case left <= 0:
			over[w.Namespace] = append(over[w.Namespace], w)
		case w.Beats && (next == 0 || left < next):
			next = left
		}
	}
	for ns, workers := range over {
		held, err := ws.holdings(ctx, ns)
		if err != nil {
			return 0, err
		}
		idle := workers[:0]
		for _, w := range workers {
			if held[w.ID] == (store.Holding{}) {
				idle = append(idle, w)
			} else if again := 5 * ws.expiryPause(); w.Beats && (next == 0 || again < next) {
				next = again
			}
		}
		for some := range slices.Chunk(idle, piece) {
			if err := ws.removeUnheard(ctx, some); err != nil {
				return 0, err
			}
		}
	}
	return next, nil
}

// untilRemoved is how long it is until a worker is past its time, and whether it is silent, as far as is known here.
func (ws *Workers) untilRemoved(w *engine.Worker, now time.Time) (left time.Duration, silent bool) {
	if w.Namespace == appsNamespace {
		return 0, false
	}
	here := false
	ws.With(w.Key(), func(h *Heard) { here = ws.Hears(*h) })
	if here {
		return 0, false
	}
	most, since, up := removedUnbeating, now.Sub(lastSign(w)), time.Since(ws.started)
	if w.Beats {
		most = silencesKept * ws.opt.Alive
	}
	switch {
	case ws.opt.Shared:
	case w.Beats: // it would have come by now, whatever is stored
		since = min(since, up)
	case up < returnTime:
		since = 0
	}
	return most - since, true
}

func (ws *Workers) holdings(ctx context.Context, ns string) (held map[string]store.Holding, err error) {
	return held, ws.store.View(ctx, func(r store.Reader) (err error) {
		held, err = r.Holdings(ctx, ns)
		return err
	})
}

// removeUnheard removes workers, but for those that came back meanwhile. One that comes back later registers anew.
func (ws *Workers) removeUnheard(ctx context.Context, list []*engine.Worker) error {
	keys := make([]engine.WorkerKey, len(list))
	for i, w := range list {
		keys[i] = w.Key()
	}
	removed, err := ws.drop(ctx, keys, func(rows store.Rows) (over []engine.WorkerKey) {
		for _, w := range list {
			is, here := rows.Worker(w.Key()), false
			ws.With(w.Key(), func(h *Heard) { here = ws.Hears(*h) })
			if is != nil && is.Incarnation == w.Incarnation && lastSign(is).Equal(lastSign(w)) && !here {
				over = append(over, w.Key())
			}
		}
		return over
	})
	for _, k := range removed {
		ws.Drop(k)
		ws.log.Info().Str("worker_id", k.ID).Msg("worker registration removed: no heartbeat within its retention")
	}
	return err
}

// lastSign is the last heartbeat of a worker that is stored.
func lastSign(w *engine.Worker) time.Time {
	if w.HeartbeatAt.After(w.RegisteredAt.Time) {
		return w.HeartbeatAt.Time
	}
	return w.RegisteredAt.Time
}
