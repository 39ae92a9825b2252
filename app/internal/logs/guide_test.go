package logs

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheLogLimitOfAnOutcome(t *testing.T) {
	docnumbers.In(t, "guide/activities.md", "the last that come with the outcome may be {} more", uncheckedLines)
}
