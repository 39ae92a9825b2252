package sweep

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheRetentionInterval(t *testing.T) {
	if PruneSeldom != 24*time.Hour {
		t.Errorf("it looks every %s, not once a day", PruneSeldom)
	}
	docnumbers.In(t, "guide/runs.md", "it checks when the retention of the next run ends, and once a day.")
}
