package admission

import (
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheLimitsOfRequestsInProgress(t *testing.T) {
	const page = "guide/quotas.md"
	docnumbers.In(t, page, "goroutines of the app wait longer than {} ms for a processor (90th percentile)",
		fmt.Sprint(maxDelay.Seconds()*1000))
	if perProcessor != 2 {
		t.Errorf("the smallest limit is %d requests per processor, the guide says two", perProcessor)
	}
	docnumbers.In(t, page, "A request that waits longer than {}, or behind {} others of its namespace,", maxWait, maxWaiting)
}
