package supervisor

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheSupervisorsTimeouts(t *testing.T) {
	docnumbers.In(t, "security.md", "the supervisor samples: {} times a second while a call runs and twice that often when memory usage is high",
		int(time.Second/busyInterval))
	if 2*nearLimitInterval != busyInterval {
		t.Errorf("it looks every %s when memory runs high", nearLimitInterval)
	}
	const page = "guide/isolation.md"
	docnumbers.In(t, page, "exceed the limit by what the executor allocates in {}, and is then ended", nearLimitInterval)
	docnumbers.In(t, page, "(`oom_score_adj` {} and {}), and the worker after those", executorScore, supervisorScore)
}
