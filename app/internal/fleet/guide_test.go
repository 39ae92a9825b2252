package fleet

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowLongAnEvictedWorkerHas(t *testing.T) {
	stated.In(t, "guide/fleets.md", "One that does not leave within {} is removed from the list", leaveTime)
}
