package presence

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowLongWorkersAreListed(t *testing.T) {
	const page = "guide/fleets.md"
	stated.In(t, page, "{} after it the worker is removed from the list", silencesKept*time.Minute)
	stated.In(t, page, "may be silent while they work. They stay for {}.", removedUnbeating)
	stated.In(t, "guide/operating.md", "Workers without heartbeats that were not heard of for {} are removed", removedUnbeating)
}
