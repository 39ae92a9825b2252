package serve

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysWhatAProxyHasToBear(t *testing.T) {
	if Held > 90*time.Second {
		t.Errorf("an answer may take %s", Held)
	}
	stated.In(t, "guide/operating.md", "a proxy has to let an answer take {};", 90*time.Second)
}
