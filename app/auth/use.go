package auth

import (
	"context"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// useInterval is the minimum interval between two stored uses of a token.
const useInterval = time.Minute

// tokenUses collects the stored tokens that were used, until StoreLastUses stores the times. Requests do not wait for
// that.
type tokenUses struct {
	wake chan struct{} // has a value if fresh is not empty

	mu    sync.Mutex // guards the fields below
	seen  map[string]time.Time
	fresh []string
}

// RecordUse records that a caller was admitted, or is active on a connection. It only updates a map; StoreLastUses
// writes the time to the store later.
func (a *Auth) RecordUse(p *Principal) {
	if p == nil || p.TokenID == "" {
		return
	}
	u, now := &a.uses, time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if at, ok := u.seen[p.TokenID]; ok && now.Sub(at) < useInterval {
		return
	}
	if u.seen == nil || len(u.seen) >= maxKnown {
		u.seen, u.fresh = map[string]time.Time{}, nil
	}
	u.seen[p.TokenID] = now
	u.fresh = append(u.fresh, p.TokenID)
	select {
	case u.wake <- struct{}{}:
	default:
	}
}

// StoreLastUses stores the last-used times of tokens until ctx ends: at most once per minute and token over all apps,
// and not at all while no token is used. It sends no notifications, since the rights of the tokens do not change.
func (a *Auth) StoreLastUses(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.uses.wake:
		}
		a.uses.mu.Lock()
		ids := a.uses.fresh
		a.uses.fresh = nil
		a.uses.mu.Unlock()
		if len(ids) > 0 {
			a.storeUses(ctx, ids) // if the store is unavailable, only later uses are stored
		}
	}
}

func (a *Auth) storeUses(ctx context.Context, ids []string) {
	_, _ = a.opt.Store.Commit(ctx, store.Transaction{
		Needs: store.Keys{Tokens: ids},
		Decide: func(rows store.Rows, now time.Time) (w store.Writes, _ error) {
			for _, id := range ids {
				old := rows.Token(id)
				if old == nil || now.Sub(old.UsedAt.Time) < useInterval {
					continue
				}
				t := *old
				t.UsedAt = history.At(now)
				w.TokenUses = append(w.TokenUses, t)
			}
			return w, nil
		},
	})
}
