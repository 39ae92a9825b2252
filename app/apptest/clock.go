package apptest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
)

// Clock sets the clock of a test's database. A SQLite store reads it through Options.Wall; in PostgreSQL the function
// public.clock_timestamp replaces the built-in one.
type Clock struct {
	t        testing.TB
	database string
	by       atomic.Int64
}

// NewClock prepares the clock of a database. Call it before an app opens the database.
func NewClock(t testing.TB, database string) *Clock {
	t.Helper()
	c := &Clock{t: t, database: database}
	if !c.file() {
		c.exec(`CREATE TABLE test_clock (by INTERVAL NOT NULL); INSERT INTO test_clock VALUES ('0');
			CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
			'SELECT pg_catalog.clock_timestamp() + (SELECT by FROM public.test_clock)';
			DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = public, pg_catalog', current_database()); END $$`)
	}
	return c
}

func (c *Clock) file() bool { return strings.HasPrefix(c.database, "sqlite:") }

func (c *Clock) exec(sql string) {
	c.t.Helper()
	ctx := context.WithoutCancel(c.t.Context())
	db, err := pgx.Connect(ctx, c.database)
	if err != nil {
		c.t.Fatal(err)
	}
	defer db.Close(ctx)
	if _, err := db.Exec(ctx, sql); err != nil {
		c.t.Fatal(err)
	}
}

// Set sets the difference between the database's clock and the machine's clock.
func (c *Clock) Set(by time.Duration) {
	c.t.Helper()
	c.by.Store(int64(by))
	if !c.file() {
		c.exec(fmt.Sprintf("UPDATE test_clock SET by = interval '1 microsecond' * %d", by.Microseconds()))
	}
}

// Now returns the time of the database's clock.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

// Change makes an app open its store with this clock.
func (c *Clock) Change(o *server.Options) {
	o.Open = func(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
		so := sqldb.Options{App: id, Dispatch: d}
		if path, ok := strings.CutPrefix(c.database, "sqlite:"); ok {
			so.App, so.Wall = "app", c.Now
			return sqlite.Open(ctx, path, so)
		}
		return postgres.Open(ctx, c.database, so)
	}
}
