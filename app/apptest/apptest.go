// Package apptest starts a complete app in a test: real store, real port, real transports. It compares every response
// with docs/openapi.json.
package apptest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
)

// Options configure Start; the zero value is an app of release "test" on a new SQLite file, without tokens.
type Options struct {
	Database string // sqlite:PATH or postgres://…; empty: a new SQLite file
	Change   func(*app.Options)
}

// App is a running app. It ends with the test, or before by Stop.
type App struct {
	*app.App
	Database string // the database's URL
	t        testing.TB
	stop     context.CancelFunc
	done     chan error
}

// Start starts an app and returns when its port is open. Every JSON response is checked against the published API
// description.
func Start(t testing.TB, o Options) *App {
	t.Helper()
	if o.Database == "" {
		o.Database = SQLite(t)
	}
	ao := app.Options{
		Options: server.Options{
			Open: openFunc(o.Database), Shared: !strings.HasPrefix(o.Database, "sqlite:"), Release: "test", NoAuth: true,
			Metrics: true, Log: Log(t),
		},
		Addr: "127.0.0.1:0", Drain: 10 * time.Second, Around: checkDescribed(t),
	}
	if o.Change != nil {
		o.Change(&ao)
	}
	a, err := app.New(t.Context(), ao)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &App{App: a, Database: o.Database, t: t, stop: stop, done: make(chan error, 1)}
	go func() { r.done <- a.Run(ctx) }()
	t.Cleanup(r.Stop)
	return r
}

// openFunc returns the function with which a server opens a database: sqlite:PATH or postgres://….
func openFunc(database string) func(context.Context, string, store.Dispatcher) (store.Store, error) {
	return func(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
		if path, ok := strings.CutPrefix(database, "sqlite:"); ok {
			return sqlite.Open(ctx, path, sqldb.Options{App: "app", Dispatch: d})
		}
		return postgres.Open(ctx, database, sqldb.Options{App: id, Dispatch: d})
	}
}

// Stop drains the app and waits for its end; further calls have no effect.
func (a *App) Stop() {
	a.stop()
	select {
	case err, running := <-a.done:
		if running {
			close(a.done)
		}
		if err != nil {
			a.t.Errorf("the app ended with: %v", err)
		}
	case <-time.After(2 * time.Minute):
		a.t.Error("the app did not end within 2 min")
	}
}

// Log returns a logger that writes warnings and errors to the test's log.
func Log(t testing.TB) zerolog.Logger {
	return zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
}
