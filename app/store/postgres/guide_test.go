package postgres

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowThePoolIsDivided(t *testing.T) {
	stated.In(t, "guide/operating.md", "the most connections an app opens to PostgreSQL, {} of them for writing and for hearing",
		others)
}
