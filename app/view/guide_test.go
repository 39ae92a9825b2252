package view

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysTheNumbersOfViews(t *testing.T) {
	const page = "guide/operating.md"
	stated.In(t, page, "read once {} for all who look, runs, sessions and the tasks that wait in a queue counted up to {} |",
		sharedFor, countedUpTo)
	stated.In(t, page, "the runs by status, counted up to {} and read once a second", countedUpTo)
	stated.In(t, page, "{} times a second at most and less often where it takes long", int(time.Second/promptly.least))
	stated.In(t, page, "before the question and may wait {} for that", promptly.most)
	stated.In(t, page, "the runs that wait for a repair, the newest {}, found", systemScan)
	stated.In(t, "guide/http-api.md", "holds the request until there is more, for {} at most,", maxHistoryWait)
	stated.In(t, page, "for the tasks of a queue that wait for longest, {} of each kind", waitingShown)
	stated.In(t, page, "{} of that are the most: then the listing is refused", wholeSearch)
	stated.In(t, page, "With `?partial=true` it ends after {} with what was found", partialSearch)
}
