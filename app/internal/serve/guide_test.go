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

func TestGuideStatesWhichRequestsAreLimited(t *testing.T) {
	const page = "guide/quotas.md"
	docnumbers.In(t, page, "a request counts once more for each {} KiB of its body.", requestUnit>>10)
	docnumbers.In(t, page, "heartbeats and outcomes of up to {} KiB are not limited,", smallBody>>10)
}
