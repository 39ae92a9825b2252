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
	stated.In(t, "guide/runs.md", "it checks when the retention of the next run ends, and once a day.")
}
