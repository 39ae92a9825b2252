// Package sessiontest contains the acceptance cases of worker sessions, which run against the real components.
package sessiontest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/dispatch"
	app "github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/app/view"
)

// release is the release of apps and workers, unless a case sets another.
const release = "test"

// testServer is a control plane without a listener, with helpers for the cases.
type testServer struct {
	*broker.Broker
	*view.View
	t        testing.TB
	server   *app.Server
	store    store.Store
	dispatch *dispatch.Dispatch
}

// serverOptions are options of open; the zero value is an app on a new SQLite file without clean-up.
type serverOptions struct {
	Database   string               // sqlite:PATH or postgres://…
	Shift      func() time.Duration // added to the store's clock
	ManualTime bool                 // only the test advances time and runs due work
	Cleanup    time.Duration        // 0: never
	Release    string
	Metrics    bool
}

// open starts a control plane that ends with the test, or earlier by close.
func open(t testing.TB, o serverOptions) *testServer {
	t.Helper()
	if o.Database == "" {
		o.Database = apptest.SQLite(t)
	}
	if o.Cleanup == 0 {
		o.Cleanup = -1
	}
	p := apptest.OpenServer(t, o.Database, app.Options{
		Release: o.Release, ManualTime: o.ManualTime, Cleanup: o.Cleanup, Metrics: o.Metrics,
		Open: func(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
			so := sqldb.Options{App: id, Dispatch: d, Shift: o.Shift}
			if path, file := strings.CutPrefix(o.Database, "sqlite:"); file {
				return sqlite.Open(ctx, path, so)
			}
			return postgres.Open(ctx, o.Database, so)
		},
	})
	return &testServer{
		Broker: p.Broker(), View: p.View(), t: t, server: p, store: p.Store(), dispatch: p.Dispatch(),
	}
}

// close shuts down the server of the control plane; further calls have no effect.
func (p *testServer) close() { apptest.Close(p.t, p.server) }
