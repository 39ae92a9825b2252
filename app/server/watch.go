package server

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
)

// watchUnownedSessions notifies the sweeper of changes to sessions without an owner, so that it checks for sessions to
// clean up. Without such changes it does not check. A session with an owner is not cleaned up, so its steps send no
// notification.
func (p *Server) watchUnownedSessions(ctx context.Context) {
	p.dispatch.Each(ctx, dispatch.TopicLoose, func(store.Changed, bool) { p.sweeper.SessionsChanged() })
}

// tokenPollInterval is the interval at which an app without notifications checks the tokens of connected callers.
const tokenPollInterval = 500 * time.Millisecond

// watchTokenChanges ends connections and requests of tokens that were revoked or changed at any app: after each
// notification, and repeatedly while this app receives no notifications of other apps.
func (p *Server) watchTokenChanges(ctx context.Context) {
	changed := func(ids []string, all bool) {
		ctx := auth.WithLookupCache(ctx)
		p.auth.Changed(ctx, ids, all)
		p.channel.Recheck(ctx)
	}
	if p.opt.Shared && !p.opt.NoAuth {
		watching := make(chan struct{})
		defer func() { <-watching }()
		go func() {
			defer close(watching)
			tick := time.NewTicker(tokenPollInterval)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					if !p.store.ReceivesNotices() {
						changed(nil, true)
					}
				}
			}
		}()
	}
	p.dispatch.Each(ctx, dispatch.TopicTokens, func(c store.Changed, overflow bool) { changed(c.Tokens, overflow) })
}
