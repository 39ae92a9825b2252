package auth

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// openRequest is a long request of a caller: a poll or a stream.
type openRequest struct {
	principal *Principal
	end       context.CancelCauseFunc
}

// TrackRequest returns the context of a long request. If the caller loses the rights that it had, the context ends with
// the refusal as its cause. The returned function releases the context.
func (a *Auth) TrackRequest(ctx context.Context, p *Principal) (context.Context, func()) {
	if p == nil || p.TokenID == "" && p.signIn == "" {
		return ctx, func() {}
	}
	ctx, end := context.WithCancelCause(ctx)
	h := &openRequest{p, end}
	a.mu.Lock()
	a.held[h] = struct{}{}
	a.mu.Unlock()
	return ctx, func() {
		a.mu.Lock()
		delete(a.held, h)
		a.mu.Unlock()
		end(nil)
	}
}

// Revoked returns the refusal that ended a context of TrackRequest, or nil.
func Revoked(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	var e *protocol.Error
	if errors.As(context.Cause(ctx), &e) && e.Reason == protocol.ReasonUnauthorized {
		return e
	}
	return nil
}

// Changed invalidates cached tokens after a change at this or another app; with all, every cached token. It ends the
// held requests of callers that are no longer allowed to continue.
func (a *Auth) Changed(ctx context.Context, ids []string, all bool) {
	var changed []*openRequest
	a.mu.Lock()
	a.news++
	if all {
		clear(a.known)
		clear(a.unknown)
	}
	for _, id := range ids {
		delete(a.known, id)
		delete(a.unknown, id)
	}
	for h := range a.held {
		if all || slices.Contains(ids, h.principal.TokenID) || slices.Contains(ids, h.principal.signIn) {
			changed = append(changed, h)
		}
	}
	a.mu.Unlock()
	for _, h := range changed {
		if err := a.Revalidate(ctx, h.principal); protocol.ReasonOf(err) == protocol.ReasonUnauthorized {
			h.end(err)
		}
	}
}

// Revalidate refuses an authenticated caller that has lost its rights: its token was revoked, has expired or was
// changed, or the user signed out. Any other error means that the check failed.
func (a *Auth) Revalidate(ctx context.Context, p *Principal) error {
	if p.signIn != "" {
		if _, out, err := a.lookup(ctx, p.signIn); err != nil {
			return err
		} else if out {
			return sessionEnded()
		}
	}
	if p.TokenID == "" {
		return nil
	}
	t, found, err := a.lookup(ctx, p.TokenID)
	switch {
	case err != nil:
		return err
	case !found:
		return unknown()
	}
	if err := usable(t, time.Now()); err != nil {
		return err
	}
	same := slices.Equal(p.Namespaces, t.Namespaces) && slices.Equal(p.Queues, t.Queues) && p.Group == t.Group &&
		slices.EqualFunc(p.Roles, t.Roles, func(a Role, b string) bool { return string(a) == b })
	if !same {
		return unknown()
	}
	return nil
}

// lookupCache is the cache for one check of many callers, so that each token is read once.
type lookupCache struct{ known map[string]lookup }

type lookupCacheKey struct{}

// WithLookupCache returns a context for one check of many callers by one goroutine: each token is read once.
func WithLookupCache(ctx context.Context) context.Context {
	return context.WithValue(ctx, lookupCacheKey{}, &lookupCache{map[string]lookup{}})
}

func (p *lookupCache) get(id string) (lookup, bool) {
	if p == nil {
		return lookup{}, false
	}
	l, ok := p.known[id]
	return l, ok
}

func (p *lookupCache) add(id string, l lookup) {
	if p != nil {
		p.known[id] = l
	}
}
