package plane

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
)

// tellSessions tells the sweeper that something was done in sessions which nobody holds, so that it looks for what to
// clean up; while there is none it does not look. A session that is held is not cleaned up, and most are: a step in one
// wakes nobody.
func (p *Plane) tellSessions(ctx context.Context) {
	p.dispatch.Each(ctx, dispatch.TopicLoose, func(store.Changed, bool) { p.sweeper.SessionsMoved() })
}

// unheard is how often an app that does not hear the others looks whether those who are connected may still be.
const unheard = 500 * time.Millisecond

// tellTokens ends what continues in the name of tokens that were revoked or changed, here or at another app: when it
// hears of it, and while it hears nothing again and again.
func (p *Plane) tellTokens(ctx context.Context) {
	changed := func(ids []string, all bool) {
		ctx := auth.Pass(ctx)
		p.auth.Changed(ctx, ids, all)
		p.channel.Recheck(ctx)
	}
	if p.opt.Shared && !p.opt.NoAuth {
		watching := make(chan struct{})
		defer func() { <-watching }()
		go func() {
			defer close(watching)
			tick := time.NewTicker(unheard)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					if !p.store.Hears() {
						changed(nil, true)
					}
				}
			}
		}()
	}
	p.dispatch.Each(ctx, dispatch.TopicTokens, func(c store.Changed, overflow bool) { changed(c.Tokens, overflow) })
}
