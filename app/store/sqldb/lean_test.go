package sqldb

import (
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// An update that names a column of an index has SQLite write the index anew, also where nothing changed.
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
