package filter

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesHowLongAFilterMayBe(t *testing.T) {
	docnumbers.In(t, "guide/runs.md", "At most {} conditions, {} values in an `IN`.", maxConditions, maxChoice)
}
