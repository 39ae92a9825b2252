package runner

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheTimesOfAWorker(t *testing.T) {
	docnumbers.In(t, "guide/monitor.md", "503 if a polling loop has made no progress for {}:", stuckAfter)
	if logInterval != time.Second {
		t.Errorf("log lines are sent every %s, not once a second", logInterval)
	}
	docnumbers.In(t, "guide/activities.md", "While an activity runs, its worker uploads log lines once a second;")
	docnumbers.In(t, "guide/activities.md", "up to {} before the kill are stored.", logInterval)
}
