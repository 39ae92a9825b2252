package logs

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowMuchComesBesideWhatIsKept(t *testing.T) {
	stated.In(t, "guide/activities.md", "the last that come with the outcome may be {} more", fewLines)
}
