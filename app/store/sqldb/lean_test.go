package sqldb

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// If an update sets a column of an index, SQLite writes the index entry again, even if the value is the same.
func TestStepDoesNotWriteColdColumns(t *testing.T) {
	for _, stmt := range newStatements(db.Dialect{}).moveRuns.Stmts {
		if stmt == nil {
			continue
		}
		_, set, ok := strings.Cut(stmt.SQL, "DO UPDATE SET ")
		if !ok {
			t.Fatalf("no update: %s", stmt.SQL)
		}
		for _, c := range []string{"status", "closed_at", "started_at", "type", "queue", "business_key"} {
			if strings.Contains(set, c+" =") {
				t.Errorf("%s is set: %s", c, set)
			}
		}
	}
}
