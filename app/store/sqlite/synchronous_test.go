package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// The committer's connection syncs every commit to disk. A test cannot cut the power, so it reads the pragmas.
func TestCommitsAreWrittenThrough(t *testing.T) {
	c := &conn{dsn: dsn(filepath.Join(t.TempDir(), "test.db"), tempStoreInMemory)}
	if err := c.openFile(); err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for pragma, want := range map[string]any{"synchronous": int64(2), "journal_mode": "wal"} {
		var got any
		if err := c.run(&db.Call{Stmt: &db.Stmt{SQL: "PRAGMA " + pragma}, Row: func(v []any) error {
			got = v[0]
			return nil
		}}); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s is %v, want %v", pragma, got, want)
		}
	}
}
