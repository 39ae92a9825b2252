package fleet

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// For ten minutes after a worker has registered, idle sessions with a hand-over move to it, one per minute. The app
// that receives the worker's heartbeats chooses them. The time of the last choice is in the worker's row, so that the
// limit applies to all apps together and after a restart.

// balanceCheckInterval is the interval at which the app compares the numbers of sessions for a worker to which a
// session may move. A comparison costs two statements.
const balanceCheckInterval = 10 * time.Second

// errBalanced is the reason for which no session moves to a worker: another app chose one less than a minute ago.
var errBalanced = errors.New("a session was moved to the worker before")

// balance chooses sessions that move to workers which registered recently. checks has the time of the next check by
// worker.
func (f *Fleet) balance(
	ctx context.Context, known map[engine.WorkerKey]membership.TrackedWorker, checks map[engine.WorkerKey]time.Time,
) {
	now := f.storeTime()
	spaces := map[string]*candidates{}
	for k, h := range known {
		// The cached row may be out of date; prepare checks the stored one.
		if !h.Worker.MayBalance(now) || checks[k].After(now) || !h.Worker.MayPrepare() || !f.workers.ReceivesHeartbeats(h) {
			continue
		}
		if set, _ := f.FleetWide(k.Namespace); set.Rebalance == protocol.RebalanceOff {
			continue
		}
		checks[k] = now.Add(balanceCheckInterval)
		c := spaces[k.Namespace]
		if c == nil {
			var err error
			if c, err = f.candidates(ctx, k.Namespace); err != nil {
				f.warnBalance(ctx, k, err)
				return
			}
			spaces[k.Namespace] = c
		}
		h, ok := c.known[k]
		if !ok || !c.available(&h) {
			continue
		}
		moved, err := f.moveTo(ctx, c, h.Worker)
		if err != nil {
			f.warnBalance(ctx, k, err)
		}
		if moved {
			checks[k] = now.Add(engine.BalanceInterval)
		}
	}
	for k := range checks {
		if _, ok := known[k]; !ok {
			delete(checks, k)
		}
	}
}

func (f *Fleet) warnBalance(ctx context.Context, k engine.WorkerKey, err error) {
	if ctx.Err() == nil {
		store.Warn(&f.log, err).Str("worker_id", k.ID).Msg("failed to move a session to a new worker; retrying")
	}
}

// moveTo chooses a session of the worker with the most sessions and starts its preparation at w. Of workers with the
// same number, the one that registered first comes first: in a rolling restart it will drain next.
func (f *Fleet) moveTo(ctx context.Context, c *candidates, w *engine.Worker) (moved bool, err error) {
	if c.room(w) <= 0 {
		return false, nil
	}
	var owners []*engine.Worker
	for _, h := range c.known {
		if h.Worker.ID != w.ID && h.Worker.MayPrepare() && c.available(&h) &&
			(engine.Imbalanced(c.sessions(h.Worker), c.sessions(w)) || len(c.used(h.Worker)) > 0) {
			owners = append(owners, h.Worker)
		}
	}
	slices.SortFunc(owners, func(a, b *engine.Worker) int {
		return cmp.Or(
			cmp.Compare(c.sessions(b), c.sessions(a)), a.RegisteredAt.Compare(b.RegisteredAt.Time), cmp.Compare(a.ID, b.ID),
		)
	})
	for _, owner := range owners {
		c.owner = owner
		held, err := c.ownedBy(ctx, owner)
		if err != nil {
			return false, err
		}
		from, to := c.lessee(owner), c.lessee(w)
		held = slices.DeleteFunc(slices.Clone(held), func(s engine.Session) bool {
			return !s.Balances(owner, w, c.now) || !s.Evens(&from, &to) || !s.FitsAt(w, to.Used) || c.withheld(&s, w)
		})
		if len(held) == 0 {
			continue
		}
		s := slices.MinFunc(held, func(a, b engine.Session) int { // idle for the longest time
			return cmp.Or(a.IdleSince().Compare(b.IdleSince()), cmp.Compare(a.ID, b.ID))
		})
		moved, err := f.prepare(ctx, &s, owner, w, engine.PrepareSession{Balance: true})
		if moved {
			c.reserve(&s, w)
			delete(c.owned, owner.ID)
			f.log.Info().Str("session_id", s.ID).Str("worker_id", owner.ID).Str("successor", w.ID).
				Msg("idle session moves to a worker that registered recently and holds fewer sessions")
		}
		return moved, err
	}
	return false, nil
}

// ownedBy returns the sessions of an owner. They are read once for all workers that registered recently.
func (c *candidates) ownedBy(ctx context.Context, owner *engine.Worker) (held []engine.Session, err error) {
	held, ok := c.owned[owner.ID]
	if !ok {
		if held, err = transaction.SessionsOwnedBy(ctx, c.fleet.store, owner.Key()); err == nil {
			c.owned[owner.ID] = held
		}
	}
	return held, err
}
