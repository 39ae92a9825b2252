package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
)

// newer is a database, a connection to it, and the schema that this binary knows.
func newer(t *testing.T) (url string, c *pgx.Conn, known int64) {
	t.Helper()
	url = database(t)
	schema, err := postgres.Inspect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	if c, err = pgx.Connect(t.Context(), url); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(t.Context()) })
	return url, c, schema.Required
}

func TestASchemaOneReleaseAheadIsServedAndLeftAlone(t *testing.T) {
	url, c, known := newer(t)
	storetest.NewerSchema(t, known, func() (store.Store, error) {
		return postgres.Open(t.Context(), url, sqldb.Options{})
	},
		func(statement string) {
			t.Helper()
			if _, err := c.Exec(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		},
		func(query string) (n int64) {
			t.Helper()
			if err := c.QueryRow(t.Context(), query).Scan(&n); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			return n
		})
}

// While a newer app migrates, an app that may serve the new schema continues, and any other app has to stop, also if
// the notice of the migration was lost with its connection.
func TestStoreIsNotifiedOfANewerSchema(t *testing.T) {
	for name, notify := range map[string]string{
		"told": `SELECT pg_notify('sojourn', '{"app":"","s":true}')`,
		"missed": `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'sojourn bus' AND query LIKE 'LISTEN%'`,
	} {
		t.Run(name, func(t *testing.T) {
			url, c, known := newer(t)
			s, err := postgres.Open(t.Context(), url, sqldb.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			next := known
			storetest.Outgrown(t, s, func(minReader int64) {
				next++
				for _, statement := range []string{
					fmt.Sprintf("INSERT INTO goose_db_version (version_id, is_applied) VALUES (%d, true)", next),
					fmt.Sprintf(
						"INSERT INTO schema_versions (version, release, min_reader) VALUES (%d, '99.1.0', %d)", next, minReader,
					),
					notify,
				} {
					if _, err := c.Exec(t.Context(), statement); err != nil {
						t.Fatalf("%s: %v", statement, err)
					}
				}
			}, known)
		})
	}
}
