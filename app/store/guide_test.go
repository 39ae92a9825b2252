package store_test

import (
	"testing"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesHowLongRunsAreKept(t *testing.T) {
	docnumbers.In(t, "guide/runs.md", "the namespace's `retention_days` ({} by default,", store.DefaultRetentionDays)
}
