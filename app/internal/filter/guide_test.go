package filter

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowLongAFilterMayBe(t *testing.T) {
	stated.In(t, "guide/runs.md", "At most {} conditions, {} values in an `IN`.", maxConditions, maxChoice)
}
