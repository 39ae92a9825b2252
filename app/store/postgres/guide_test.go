package postgres

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysWhatIsAskedOfPostgres(t *testing.T) {
	stated.In(t, "guide/operating.md", "the most connections an app opens to PostgreSQL, {} of them for writing and for hearing",
		others)
	stated.In(t, "guide/operating.md", "**PostgreSQL** {} or newer lets several apps share the work", oldest)
}
