// Package apptest starts a complete app in a test: real store, real port, real transports. It compares every response
// with docs/openapi.json.
package apptest

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"
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
		o.Database = "sqlite:" + filepath.Join(t.TempDir(), "test.db")
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

// Databases runs a test on a new SQLite file, and on a new PostgreSQL database if a server is available.
func Databases(t *testing.T, test func(t *testing.T, database string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+filepath.Join(t.TempDir(), "test.db")) })
	t.Run("postgres", func(t *testing.T) { test(t, Postgres(t)) })
}

// Two starts two apps on the database of o, or one app if the database allows only one, as SQLite does.
func Two(t testing.TB, o Options) (a, b *App) {
	t.Helper()
	a = Start(t, o)
	if strings.HasPrefix(o.Database, "sqlite:") {
		return a, a
	}
	return a, Start(t, o)
}

// Postgres creates a database for a test, on the server of SOJOURN_TEST_POSTGRES.
func Postgres(t testing.TB) string {
	t.Helper()
	server := os.Getenv("SOJOURN_TEST_POSTGRES")
	if server == "" {
		if strings.Contains(os.Getenv("SOJOURN_TEST_REQUIRE"), "postgres") {
			t.Fatal("SOJOURN_TEST_POSTGRES names no PostgreSQL server, and this run requires one")
		}
		t.Skip("no postgres: SOJOURN_TEST_POSTGRES names no server")
	}
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	name := "test_" + strings.ToLower(ulid.Make().String())
	do := func(statement string) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
		defer cancel()
		c, err := pgx.Connect(ctx, server)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close(ctx)
		if _, err := c.Exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	do("CREATE DATABASE " + name)
	t.Cleanup(func() { do("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)") })
	u.Path = "/" + name
	return u.String()
}
