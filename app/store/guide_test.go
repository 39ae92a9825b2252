package store_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowLongRunsAreKept(t *testing.T) {
	stated.In(t, "guide/operating.md", "the namespace's `retention_days` ({} unless it says otherwise,", store.DefaultRetentionDays)
}
