package httpapi

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheNumbersOfTheAPI(t *testing.T) {
	docnumbers.In(t, "guide/tokens-and-tls.md", "The app delays the response to a wrong token by {}.", failedSignIn)
	docnumbers.In(t, "guide/tokens-and-tls.md", "At most {} responses to one address and {} in all are delayed at a time;", maxFailedPerAddress, maxFailedPerApp)
	docnumbers.In(t, "guide/runs.md", "An app has at most {} searches under way;", maxSearches)
	docnumbers.In(t, "guide/client.md", "result?wait_seconds={}`, which is held open until the run has closed, for {} at most;",
		mostResultWait, mostResultWait*time.Second)
	docnumbers.In(t, "guide/runs.md", "`POST workflows/import/bundle`, up to {})", maxBundle)
}
