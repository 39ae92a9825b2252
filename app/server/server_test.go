package server_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// migratedStore is a fake store that reports, on request, that a newer release migrated its database.
type migratedStore struct {
	store.Store
	unusable chan error
	closed   int
}

func (g *migratedStore) Unusable() <-chan error { return g.unusable }

func (g *migratedStore) Close() error { g.closed++; return g.Store.Close() }

func open(t *testing.T, o server.Options) (*server.Server, *migratedStore) {
	t.Helper()
	g := &migratedStore{unusable: make(chan error, 1)}
	path := filepath.Join(t.TempDir(), "test.db")
	o.Release, o.NoAuth, o.Log = "test", true, apptest.Log(t)
	o.Open = func(ctx context.Context, app string, d store.Dispatcher) (store.Store, error) {
		s, err := sqlite.Open(ctx, path, sqldb.Options{App: app, Dispatch: d})
		g.Store = s
		return g, err
	}
	p, err := server.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return p, g
}

// A failure ends Run, and callers get responses until Close, which closes the store once, however often it is called.
func TestFailedServerRespondsUntilItIsClosed(t *testing.T) {
	p, g := open(t, server.Options{})
	newer := errors.New("the database is of a newer release")
	g.unusable <- newer
	if err := p.Run(t.Context()); !errors.Is(err, newer) {
		t.Errorf("Run ended with %v", err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1/api/health", nil)
	r.RemoteAddr = "127.0.0.1:1"
	if p.Handler().ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("after Run: %d %s", w.Code, w.Body)
	}
	for range 2 {
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if g.closed != 1 {
		t.Errorf("the store was closed %d times", g.closed)
	}
	if err := p.Run(t.Context()); err != nil { // there is nothing to run any more
		t.Errorf("Run after Close: %v", err)
	}
}

// With Options.ManualTime the caller must run due work itself; otherwise the server runs due work in the background.
func TestDueWorkRunsUnlessTimeIsManual(t *testing.T) {
	for _, still := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := apptest.OpenServer(t, "", server.Options{ManualTime: still})
			a, err := p.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "wf", RunTimeout: 60})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			run, err := p.View().Describe(t.Context(), protocol.Target{RunID: a.RunID})
			if err != nil || (run.ClosedAt.Micros() > 0) == still {
				t.Errorf("still: %v: after its timeout the run is %s, %v", still, run.Status, err)
			}
		})
	}
}
