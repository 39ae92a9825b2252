package view

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheNumbersOfViews(t *testing.T) {
	docnumbers.In(t, "guide/monitor.md", "read once {} for all callers; runs, sessions and waiting tasks of a queue are counted up to {} |",
		sharedFor, countedUpTo)
	docnumbers.In(t, "guide/monitor.md", "the runs by status, counted up to {} and read once a second", countedUpTo)
	docnumbers.In(t, "guide/monitor.md", "at most {} times a second and less often if a read takes long", int(time.Second/programPace.minAge))
	docnumbers.In(t, "guide/monitor.md", "before the request and may wait {} for that", programPace.maxAge)
	docnumbers.In(t, "guide/monitor.md", "the runs that wait for a repair, the newest {}, found", systemScan)
	docnumbers.In(t, "guide/http-api.md", "holds the request until there is more, for {} at most,", maxHistoryWait)
	docnumbers.In(t, "guide/debug.md", "for the tasks of a queue that wait for longest, {} of each kind", waitingShown)
	docnumbers.In(t, "guide/runs.md", "A search takes at most {}; then the list is rejected", wholeSearch)
	docnumbers.In(t, "guide/runs.md", "With `?partial=true` it ends after {} with what was found", partialSearch)
}
