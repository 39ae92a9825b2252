package apptest

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
)

// Databases runs a test on a new SQLite file, and on a new PostgreSQL database if a server is available. Both run at
// the same time, since most tests wait longer than they compute, and have ended when Databases returns.
func Databases(t *testing.T, test func(t *testing.T, database string)) {
	var both sync.WaitGroup
	both.Go(func() { t.Run("sqlite", func(t *testing.T) { test(t, SQLite(t)) }) })
	both.Go(func() { t.Run("postgres", func(t *testing.T) { test(t, Postgres(t)) }) })
	both.Wait()
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

// SQLite creates a migrated SQLite file for a test and returns its URL, sqlite:PATH.
func SQLite(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	if err := sqlite.WriteMigrated(path); err != nil {
		t.Fatal(err)
	}
	return "sqlite:" + path
}

// Postgres creates a migrated database for a test, on the server of SOJOURN_TEST_POSTGRES, and returns its URL.
func Postgres(t testing.TB) string {
	t.Helper()
	PostgresServer(t)
	template, err := migratedDatabase()
	if err != nil {
		t.Fatal(err)
	}
	return createDatabase(t, " TEMPLATE "+template)
}

// EmptyPostgres creates a database without tables for a test, on the server of SOJOURN_TEST_POSTGRES, and returns its
// URL.
func EmptyPostgres(t testing.TB) string {
	t.Helper()
	PostgresServer(t)
	return createDatabase(t, "")
}

// PostgresServer returns the URL of SOJOURN_TEST_POSTGRES, of a superuser. Without it the test is skipped, or fails if
// a server is required.
func PostgresServer(t testing.TB) string {
	t.Helper()
	server := os.Getenv("SOJOURN_TEST_POSTGRES")
	switch {
	case server != "":
	case strings.Contains(os.Getenv("SOJOURN_TEST_REQUIRE"), "postgres"):
		t.Fatal("SOJOURN_TEST_POSTGRES names no PostgreSQL server, and this run requires one")
	default:
		t.Skip("no postgres: SOJOURN_TEST_POSTGRES names no server")
	}
	return server
}

func createDatabase(t testing.TB, from string) string {
	t.Helper()
	name := "test_" + strings.ToLower(ulid.Make().String())
	do := func(statement string) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*time.Minute)
		defer cancel()
		if err := execute(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	do("CREATE DATABASE " + name + from)
	t.Cleanup(func() { do("DROP DATABASE IF EXISTS " + name + " WITH (FORCE)") })
	u, err := databaseURL(name)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// oldTemplates lists the templates of processes that ended long ago. It and templateName use the server's clock, since
// some tests run in virtual time.
const (
	oldTemplates = `SELECT datname FROM pg_database
		WHERE datname ~ '^sojourn_template_[0-9]+_' AND split_part(datname, '_', 3)::bigint < extract(epoch FROM now()) - 6 * 3600`
	templateName = `SELECT format('sojourn_template_%s_%s', extract(epoch FROM now())::bigint, pg_backend_pid())`
)

// migratedDatabase creates a database after all migrations, from which this process copies the databases of its tests:
// a copy takes half of the time of the migrations. A process cannot drop its template at its end, so the next process
// drops old ones.
var migratedDatabase = sync.OnceValues(func() (name string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, os.Getenv("SOJOURN_TEST_POSTGRES"))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close(ctx)) }()
	rows, err := c.Query(ctx, oldTemplates)
	if err != nil {
		return "", err
	}
	old, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return "", err
	}
	for _, name := range old {
		if _, err := c.Exec(ctx, "DROP DATABASE IF EXISTS "+name); err != nil {
			return "", err
		}
	}
	if err := c.QueryRow(ctx, templateName).Scan(&name); err != nil {
		return "", err
	}
	if _, err := c.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		return "", err
	}
	u, err := databaseURL(name)
	if err != nil {
		return "", err
	}
	s, err := postgres.Open(ctx, u, sqldb.Options{})
	if err != nil {
		return "", err
	}
	return name, s.Close()
})

// execute runs one statement as the superuser.
func execute(ctx context.Context, statement string) error {
	c, err := pgx.Connect(ctx, os.Getenv("SOJOURN_TEST_POSTGRES"))
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, statement)
	return errors.Join(err, c.Close(ctx))
}

func databaseURL(name string) (string, error) {
	u, err := url.Parse(os.Getenv("SOJOURN_TEST_POSTGRES"))
	if err != nil {
		return "", err
	}
	u.Path = "/" + name
	return u.String(), nil
}
