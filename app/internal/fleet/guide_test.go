package fleet

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesHowLongAnEvictedWorkerHas(t *testing.T) {
	docnumbers.In(t, "guide/fleets.md", "One that does not leave within {} is removed from the list", exitTimeout)
}
