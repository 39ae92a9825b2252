package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/sojourn-run/sojourn/app/internal/storetest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
)

func TestASchemaOneReleaseAheadIsServedAndLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "newer.db")
	known, err := sqlite.Inspect(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	storetest.NewerSchema(t, known.Required, func() (store.Store, error) {
		return sqlite.Open(t.Context(), path, sqldb.Options{})
	},
		func(statement string) {
			t.Helper()
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		},
		func(query string) (n int64) {
			t.Helper()
			if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
				t.Fatalf("%s: %v", query, err)
			}
			return n
		})
}
