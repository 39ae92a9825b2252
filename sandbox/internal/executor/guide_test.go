package executor

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheIntervalOfForwardedHeartbeats(t *testing.T) {
	docnumbers.In(t, "guide/activities.md", "| heartbeats | passed on every {} at most |", throttle)
}
