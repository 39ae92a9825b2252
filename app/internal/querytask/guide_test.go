package querytask

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheHedgeDelay(t *testing.T) {
	docnumbers.In(
		t, "guide/workflows-in-go.md", "after {} the app also asks a second worker, if there is one, {} later a third",
		hedgeAfter, 2*hedgeAfter,
	)
	docnumbers.In(t, "guide/workers-in-any-language.md", "A worker with a query for more than {} is not", hedgeAfter)
}
