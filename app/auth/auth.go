package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Store is the part of the store that authentication needs.
type Store interface {
	Commit(ctx context.Context, c store.Transaction) (any, error)
	View(ctx context.Context, fn func(store.Reader) error) error
}

// Options of authentication.
type Options struct {
	Store           Store
	Bootstrap       string        // the token with every role; see Bootstrap
	None            bool          // no token is required: every caller is Local. The app must listen on loopback only.
	CacheFor        time.Duration // how long a cached token is used without a notification: 500 ms
	ReceivesNotices func() bool   // whether notifications of other apps arrive; if not, every request reads. nil: they do
	CookieFor       time.Duration // how long a sign-in to the dashboard lasts: 24 h

	TrustedProxies Proxies // proxies whose X-Forwarded-For header is trusted; see Address
}

// Auth authenticates callers. All methods may be called from any goroutine.
type Auth struct {
	opt       Options
	bootstrap [sha256.Size]byte
	cookieKey [sha256.Size]byte

	mu    sync.Mutex // guards the fields below
	known map[string]lookup
	// IDs that no stored token has, until tokens change. They are separate from known, so that guesses do not evict a
	// valid token.
	unknown map[string]struct{}
	news    int64 // number of invalidations: a token that was read before an invalidation is not cached after it
	held    map[*openRequest]struct{}

	uses tokenUses
}

type lookup struct {
	token store.Token
	found bool
	at    time.Time // time at which the token was read
	err   error     // reason why the token was rejected
}

// lookupTimeout limits the read of a token. If the read fails, a cached token may be used up to the age of stale; the
// verb then reports the unavailable database itself.
const (
	lookupTimeout = 2 * time.Second
	stale         = 10 * time.Second
)

// maxKnown limits the cache of tokens, and maxUnknown the cache of unknown IDs; a full cache is cleared.
const (
	maxKnown   = 10_000
	maxUnknown = 10_000
)

// New returns an Auth. Without a bootstrap token only stored tokens are valid.
func New(o Options) *Auth {
	if o.CacheFor == 0 {
		o.CacheFor = 500 * time.Millisecond
	}
	if o.CookieFor == 0 {
		o.CookieFor = 24 * time.Hour
	}
	a := &Auth{opt: o, known: map[string]lookup{}, unknown: map[string]struct{}{}, held: map[*openRequest]struct{}{}}
	a.uses.wake = make(chan struct{}, 1)
	a.bootstrap = sha256.Sum256([]byte(o.Bootstrap))
	// All apps of a deployment have the same bootstrap token, so a cookie of one app is valid at all apps, also after a
	// restart.
	a.cookieKey = sha256.Sum256([]byte("sojourn dashboard cookie\x00" + o.Bootstrap))
	if o.Bootstrap == "" {
		_, _ = rand.Read(a.cookieKey[:]) // never fails
	}
	return a
}

// None reports whether authentication is off.
func (a *Auth) None() bool { return a.opt.None }

// Authenticate returns the principal of a token. The error does not reveal why the token is invalid.
func (a *Auth) Authenticate(ctx context.Context, bearer string) (*Principal, error) {
	if a.opt.None {
		return Local(), nil
	}
	if bearer == "" {
		return nil, protocol.Refuse(protocol.ReasonUnauthorized, "a token is needed: Authorization: Bearer TOKEN")
	}
	sum := sha256.Sum256([]byte(bearer))
	if subtle.ConstantTimeCompare(sum[:], a.bootstrap[:]) == 1 && a.opt.Bootstrap != "" {
		return a.bootstrapPrincipal(ByToken), nil
	}
	id, secret, ok := split(bearer)
	if !ok {
		return nil, unknown()
	}
	t, found, err := a.lookup(ctx, id)
	if err != nil {
		return nil, err
	}
	given := sha256.Sum256([]byte(secret))
	if subtle.ConstantTimeCompare(given[:], t.Hash) != 1 || !found {
		return nil, unknown()
	}
	p, err := principalOf(t, ByToken, time.Now())
	if err == nil {
		a.RecordUse(p)
	}
	return p, err
}

func unknown() error {
	return protocol.Refuse(protocol.ReasonUnauthorized, "the token is unknown, expired or revoked")
}

func (a *Auth) bootstrapPrincipal(m Method) *Principal {
	return &Principal{Name: "bootstrap", Roles: Roles, Method: m}
}

// usable rejects a stored token that was revoked or has expired.
func usable(t store.Token, now time.Time) error {
	if !t.RevokedAt.IsZero() || !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt.Time) {
		return unknown()
	}
	return nil
}

// principalOf returns the principal of a stored token that is neither revoked nor expired.
func principalOf(t store.Token, m Method, now time.Time) (*Principal, error) {
	if err := usable(t, now); err != nil {
		return nil, err
	}
	p := &Principal{TokenID: t.ID, Name: t.Name, Namespaces: t.Namespaces, Queues: t.Queues, Group: t.Group, Method: m}
	if p.Name == "" {
		p.Name = t.ID
	}
	for _, r := range t.Roles {
		p.Roles = append(p.Roles, Role(r))
	}
	return p, nil
}

// lookup returns a stored token: from the cache if the entry is so recent that every app applies a revocation within a
// second, else from the store.
func (a *Auth) lookup(ctx context.Context, id string) (store.Token, bool, error) {
	a.mu.Lock()
	known, ok := a.known[id]
	_, missing := a.unknown[id]
	news := a.news
	a.mu.Unlock()
	if hears := a.opt.ReceivesNotices == nil || a.opt.ReceivesNotices(); hears {
		if missing {
			return store.Token{}, false, nil
		}
		if ok && time.Since(known.at) < a.opt.CacheFor {
			return known.token, known.found, nil
		}
	}
	pass, _ := ctx.Value(lookupCacheKey{}).(*lookupCache)
	if l, ok := pass.get(id); ok {
		return l.token, l.found, l.err
	}
	l := lookup{at: time.Now()}
	looking, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	err := a.opt.Store.View(looking, func(r store.Reader) (err error) {
		l.token, err = r.Token(looking, id)
		return err
	})
	switch {
	case err == nil:
		l.found = true
	case errors.Is(err, store.ErrNotFound):
	case ctx.Err() == nil && ok && time.Since(known.at) < stale:
		pass.add(id, known)
		return known.token, known.found, nil
	default:
		pass.add(id, lookup{err: err})
		return store.Token{}, false, err
	}
	pass.add(id, l)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.news != news {
		return l.token, l.found, nil
	}
	if !l.found && !strings.HasPrefix(id, signedOut) {
		delete(a.known, id)
		for other := range a.unknown {
			if len(a.unknown) < maxUnknown {
				break
			}
			delete(a.unknown, other)
		}
		a.unknown[id] = struct{}{}
		return l.token, l.found, nil
	}
	delete(a.unknown, id)
	if len(a.known) >= maxKnown {
		clear(a.known)
	}
	a.known[id] = l
	return l.token, l.found, nil
}

const prefix = "sjn_"

// split parses a token of the form sjn_ID_SECRET.
func split(bearer string) (id, secret string, ok bool) {
	rest, ok := strings.CutPrefix(bearer, prefix)
	if !ok || len(rest) > protocol.MaxName {
		return "", "", false
	}
	id, secret, ok = strings.Cut(rest, "_")
	for _, c := range id {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9')
	}
	return id, secret, ok && id != "" && secret != ""
}
