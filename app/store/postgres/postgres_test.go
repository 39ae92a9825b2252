package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

var databases atomic.Int64

// server is the URL of a superuser's database. Without it the test is skipped, or fails where PostgreSQL is required.
func server(t testing.TB) string {
	t.Helper()
	at := os.Getenv("SOJOURN_TEST_POSTGRES")
	if at == "" {
		if strings.Contains(os.Getenv("SOJOURN_TEST_REQUIRE"), "postgres") {
			t.Fatal("SOJOURN_TEST_POSTGRES names no server, and SOJOURN_TEST_REQUIRE says there has to be one")
		}
		t.Skip("SOJOURN_TEST_POSTGRES names no server")
	}
	return at
}

// template is a database that was migrated once, for all others to be copied from.
var template struct {
	once sync.Once
	name string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if template.name != "" {
		if err := administer(context.Background(), "DROP DATABASE "+template.name+" WITH (FORCE)"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// administer runs one statement as the superuser.
func administer(ctx context.Context, statement string) error {
	c, err := pgx.Connect(ctx, os.Getenv("SOJOURN_TEST_POSTGRES"))
	if err != nil {
		return err
	}
	_, err = c.Exec(ctx, statement)
	return errors.Join(err, c.Close(ctx))
}

// copied creates a copy of a database and returns its URL.
func copied(t testing.TB, from string) string {
	t.Helper()
	at := server(t)
	name := fmt.Sprintf("sojourn_test_%d_%d", os.Getpid(), databases.Add(1))
	if err := administer(t.Context(), "CREATE DATABASE "+name+" TEMPLATE "+from); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := administer(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	return named(at, name)
}

func named(at, database string) string {
	u, err := url.Parse(at)
	if err != nil {
		panic(err)
	}
	u.Path = "/" + database
	return u.String()
}

// database creates a migrated database for the test and returns its URL.
func database(t testing.TB) string {
	t.Helper()
	at := server(t)
	template.once.Do(func() {
		name := fmt.Sprintf("sojourn_test_%d", os.Getpid())
		if template.err = administer(context.Background(), "CREATE DATABASE "+name); template.err != nil {
			return
		}
		template.name = name
		var s *sqldb.Store
		if s, template.err = postgres.Open(context.Background(), named(at, name), sqldb.Options{}); template.err == nil {
			template.err = s.Close()
		}
	})
	if template.err != nil {
		t.Fatal(template.err)
	}
	return copied(t, template.name)
}

func suite(t testing.TB) storetest.Suite {
	server(t)
	names := map[string]string{}
	return storetest.Suite{Statements: 8, Shared: true, Open: func(
		t testing.TB, name string, o storetest.Options,
	) store.Store {
		t.Helper()
		if names[name] == "" {
			names[name] = database(t)
		}
		s, err := postgres.Open(t.Context(), names[name], sqldb.Options{
			App: o.App, Dispatch: o.Dispatch, Shift: o.Shift, FewRuns: o.FewRuns,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}}
}

func TestStore(t *testing.T) { storetest.Run(t, suite(t)) }

func BenchmarkCompletions(b *testing.B) { storetest.Completions(b, suite(b)) }
func BenchmarkBurn(b *testing.B)        { storetest.Burn(b, suite(b)) }
func BenchmarkFlows(b *testing.B)       { storetest.Flows(b, suite(b)) }
func BenchmarkWide(b *testing.B)        { storetest.Wide(b, suite(b)) }

// counted reads a number from the superuser's database.
func counted(t *testing.T, query, about string, n *int) error {
	t.Helper()
	c, err := pgx.Connect(t.Context(), server(t))
	if err != nil {
		return err
	}
	return errors.Join(c.QueryRow(t.Context(), query, about).Scan(n), c.Close(t.Context()))
}
