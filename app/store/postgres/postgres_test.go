package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// server returns the URL of the server's administrative database.
func server(t testing.TB) string {
	t.Helper()
	return apptest.PostgresServer(t)
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
	return apptest.Postgres(t)
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
