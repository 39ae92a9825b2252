package sweep

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowOftenRetentionLooks(t *testing.T) {
	if PruneSeldom != 24*time.Hour {
		t.Errorf("it looks every %s, not once a day", PruneSeldom)
	}
	stated.In(t, "guide/operating.md", "it looks when the next run is past its time, and once a day.")
}
