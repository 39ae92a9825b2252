package postgres

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysWhatIsAskedOfPostgres(t *testing.T) {
	stated.In(t, "guide/postgresql.md", "the maximum number of connections of an app to PostgreSQL, {} of them for writing and for notifications",
		others)
	stated.In(t, "guide/postgresql.md", "**PostgreSQL** {} or newer lets several apps share the work", oldest)
}
