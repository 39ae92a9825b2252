package postgres

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesThePostgresSettings(t *testing.T) {
	docnumbers.In(t, "guide/postgresql.md", "the maximum number of connections of an app to PostgreSQL, {} of them for writing and for notifications",
		otherConnections)
	docnumbers.In(t, "guide/postgresql.md", "**PostgreSQL** {} or newer lets several apps share the work", oldestVersion)
}
