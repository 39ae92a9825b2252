package auth_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// rerole stores other roles for a token, as another app does.
func rerole(t *testing.T, s auth.Store, id string, roles ...string) {
	t.Helper()
	_, err := s.Commit(t.Context(), store.Transaction{
		Needs: store.Keys{Tokens: []string{id}},
		Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
			row := *rows.Token(id)
			row.Roles = roles
			return store.Writes{Tokens: []store.Token{row}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
}

// cookied returns a request with a sign-in cookie.
func cookied(c *http.Cookie) *http.Request {
	r := request(http.MethodPost, nil)
	r.AddCookie(&http.Cookie{Name: auth.Cookie, Value: c.Value})
	return r
}

// A change of a token at one app applies at another app after a second, even without a notification.
func TestDecisionOfAnotherAppAppliesWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		here := auth.New(auth.Options{Store: s, Bootstrap: secret})
		there := auth.New(auth.Options{Store: s, Bootstrap: secret})
		root := admin(t, there)
		revoked := create(t, there, root, auth.TokenRequest{Roles: []auth.Role{auth.Viewer}})
		changed := create(t, there, root, auth.TokenRequest{Roles: []auth.Role{auth.Admin}})
		in := signIn(t, there, secret, nil)
		good := func(token string) *auth.Principal {
			t.Helper()
			p, err := here.Authenticate(t.Context(), token)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		good(revoked.Token)
		was := good(changed.Token)
		if _, err := here.Request(cookied(in)); err != nil {
			t.Fatal(err)
		}
		if _, err := there.Revoke(t.Context(), root, revoked.ID, false); err != nil {
			t.Fatal(err)
		}
		rerole(t, s, changed.ID, "viewer")
		if err := there.SignOut(httptest.NewRecorder(), cookied(in)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		_, err := here.Authenticate(t.Context(), revoked.Token)
		wantReason(t, "revoked", err, protocol.ReasonUnauthorized)
		if p := good(changed.Token); p.Has(auth.Writer) || !p.Has(auth.Viewer) {
			t.Errorf("changed to viewer: has %v", p.Roles)
		}
		wantReason(t, "let in as an admin", here.Revalidate(t.Context(), was), protocol.ReasonUnauthorized)
		_, err = here.Request(cookied(in))
		wantReason(t, "signed out", err, protocol.ReasonUnauthorized)
	})
}

// An app that receives no notifications of other apps reads the token for each request. A notification about a token
// invalidates its cache entry.
func TestWithoutNotificationsEveryRequestReadsTheToken(t *testing.T) {
	s := open(t)
	var hears atomic.Bool
	a := auth.New(auth.Options{Store: s, Bootstrap: secret, CacheFor: time.Hour, ReceivesNotices: hears.Load})
	n := create(t, a, admin(t, a), auth.TokenRequest{Roles: []auth.Role{auth.Viewer}})
	reads := func(requests int) int64 {
		before := s.reads.Load()
		for range requests {
			if _, err := a.Authenticate(t.Context(), n.Token); err != nil {
				t.Fatal(err)
			}
		}
		return s.reads.Load() - before
	}
	if got := reads(5); got != 5 {
		t.Errorf("deaf: %d reads of 5 requests", got)
	}
	hears.Store(true)
	if got := reads(5); got > 1 {
		t.Errorf("hearing: %d reads of 5 requests", got)
	}
	a.Changed(t.Context(), []string{n.ID}, false)
	if got := reads(5); got != 1 {
		t.Errorf("told of a change: %d reads of 5 requests", got)
	}
	hears.Store(false)
	before := s.reads.Load()
	p, err := a.Authenticate(t.Context(), n.Token)
	if err != nil {
		t.Fatal(err)
	}
	ctx := auth.WithLookupCache(t.Context())
	for range 5 {
		if err := a.Revalidate(ctx, p); err != nil {
			t.Error(err)
		}
	}
	if got := s.reads.Load() - before; got != 2 {
		t.Errorf("one check of five callers of one token: %d reads, want one besides the request's", got)
	}
}

func TestRevocationEndsOpenRequestsOfTheToken(t *testing.T) {
	a := auth.New(auth.Options{Store: open(t), Bootstrap: secret})
	root := admin(t, a)
	one := create(t, a, root, auth.TokenRequest{Roles: []auth.Role{auth.Worker}})
	two := create(t, a, root, auth.TokenRequest{Roles: []auth.Role{auth.Worker}})
	held := func(token string) context.Context {
		t.Helper()
		p, err := a.Authenticate(t.Context(), token)
		if err != nil {
			t.Fatal(err)
		}
		ctx, release := a.TrackRequest(t.Context(), p)
		t.Cleanup(release)
		return ctx
	}
	first, second, third := held(one.Token), held(two.Token), held(secret)
	if _, err := a.Revoke(t.Context(), root, one.ID, false); err != nil {
		t.Fatal(err)
	}
	wantReason(t, "whose token was revoked", auth.Revoked(first), protocol.ReasonUnauthorized)
	for _, ctx := range []context.Context{second, third} {
		if ctx.Err() != nil {
			t.Errorf("another's ended: %v", context.Cause(ctx))
		}
	}
	a.Changed(t.Context(), nil, true)
	if second.Err() != nil {
		t.Errorf("a token that is good: %v", context.Cause(second))
	}
}

func TestASignOutOutlivesTheApp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	app := func() (*auth.Auth, func()) {
		s, err := sqlite.Open(t.Context(), path, sqldb.Options{Dispatch: dispatch.New(dispatch.Options{})})
		if err != nil {
			t.Fatal(err)
		}
		return auth.New(auth.Options{Store: s, Bootstrap: secret}), func() { _ = s.Close() }
	}
	a, stop := app()
	out, stays := signIn(t, a, secret, nil), signIn(t, a, secret, nil)
	if err := a.SignOut(httptest.NewRecorder(), cookied(out)); err != nil {
		t.Fatal(err)
	}
	stop()
	a, stop = app()
	defer stop()
	_, err := a.Request(cookied(out))
	wantReason(t, "signed out before the restart", err, protocol.ReasonUnauthorized)
	if _, err := a.Request(cookied(stays)); err != nil {
		t.Errorf("another sign-in of the same token: %v", err)
	}
	list, err := a.List(t.Context(), admin(t, a))
	if err != nil || len(list) != 0 {
		t.Errorf("a sign-out is listed as a token: %v, %v", list, err)
	}
}

// The row that records a sign-out is deleted when its cookie would have expired, so repeated sign-ins do not fill the
// table.
func TestSignOutsAreDroppedInTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		a := auth.New(auth.Options{Store: s, Bootstrap: secret, CookieFor: time.Hour})
		for range 5 {
			if err := a.SignOut(httptest.NewRecorder(), cookied(signIn(t, a, secret, nil))); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
		}
		var kept []store.Token
		err := s.View(t.Context(), func(r store.Reader) (err error) {
			kept, err = r.Tokens(t.Context())
			return err
		})
		if err != nil || len(kept) != 1 {
			t.Errorf("kept %d, %v; want the last one", len(kept), err)
		}
	})
}
