package executor

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowOftenSignsOfLifeArePassedOn(t *testing.T) {
	stated.In(t, "guide/activities.md", "| heartbeats | passed on every {} at most |", throttle)
}
