package auth_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The last use of a token is stored at most once a minute over all apps, and never during a request; while no token is
// used, nothing is written.
func TestWhenATokenWasUsedIsStoredOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t)
		here, there := auth.New(auth.Options{Store: s, Bootstrap: secret}), auth.New(auth.Options{Store: s})
		root := admin(t, here)
		token := create(t, here, root, auth.TokenRequest{Roles: []auth.Role{auth.Viewer}})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go here.StoreLastUses(ctx)
		go there.StoreLastUses(ctx)
		last := func() (at time.Time) {
			t.Helper()
			views, err := here.List(ctx, root)
			if err != nil || len(views) != 1 {
				t.Fatalf("the tokens: %+v, %v", views, err)
			}
			return views[0].LastUsedAt.Time
		}
		if at := last(); !at.IsZero() {
			t.Errorf("used before it was: %s", at)
		}
		var used time.Time
		for minute := range 3 {
			before := s.Stats()
			used = time.Now()
			for range 100 {
				for _, a := range []*auth.Auth{here, there} {
					if _, err := a.Authenticate(ctx, token.Token); err != nil {
						t.Fatal(err)
					}
				}
			}
			synctest.Wait()
			if n := s.Stats().Commits - before.Commits; n != 1 {
				t.Errorf("minute %d: 200 uses at two apps made %d commits", minute, n)
			}
			if at := last(); at.Sub(used).Abs() > time.Second {
				t.Errorf("minute %d: used at %s, shown %s", minute, used, at)
			}
			time.Sleep(61 * time.Second)
		}
		before := s.Stats()
		time.Sleep(24 * time.Hour)
		if after := s.Stats(); after != before {
			t.Errorf("a day without a use cost %+v after %+v", after, before)
		}
		if _, err := here.Revoke(ctx, root, token.ID, false); err != nil {
			t.Fatal(err)
		}
		_, err := here.Authenticate(ctx, token.Token)
		wantReason(t, "revoked", err, protocol.ReasonUnauthorized)
		synctest.Wait()
		if at := last(); at.After(used.Add(time.Second)) {
			t.Errorf("a refused token counts as used at %s", at)
		}
	})
}
