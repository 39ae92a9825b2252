package membership

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesHowLongWorkersAreListed(t *testing.T) {
	const page = "guide/fleets.md"
	docnumbers.In(t, page, "{} after it the worker is removed from the list", silencesKept*time.Minute)
	docnumbers.In(t, page, "may be silent while they work. They stay for {}.", removedUnbeating)
	docnumbers.In(t, "guide/runs.md", "Workers without heartbeats that sent no request for {} are removed", removedUnbeating)
}
