package serve

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheRequirementsForProxies(t *testing.T) {
	if Held > 90*time.Second {
		t.Errorf("an answer may take %s", Held)
	}
	docnumbers.In(t, "guide/deploy.md", "a proxy must allow responses that take {};", 90*time.Second)
}
