package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/storetest"
)

var databases atomic.Int64

// server is the URL of a superuser's database; without one the test is skipped, or fails where PostgreSQL is required.
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

// database makes a database for the test and returns its URL.
func database(t testing.TB) string {
	t.Helper()
	at := server(t)
	admin, err := pgx.Connect(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("sojourn_test_%d_%d", os.Getpid(), databases.Add(1))
	if _, err := admin.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(context.Background(), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
		_ = admin.Close(context.Background())
	})
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

func suite(t testing.TB) storetest.Suite {
	server(t)
	names := map[string]string{}
	return storetest.Suite{Statements: 8, Shared: true, Open: func(t testing.TB, name string, o storetest.Options) store.Store {
		t.Helper()
		if names[name] == "" {
			names[name] = database(t)
		}
		s, err := postgres.Open(t.Context(), names[name], sqldb.Options{App: o.App, Dispatch: o.Dispatch, Shift: o.Shift})
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
