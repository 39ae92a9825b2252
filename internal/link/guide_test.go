package link

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheHeartbeatIntervalOverHTTP(t *testing.T) {
	docnumbers.In(t, "guide/workers-in-any-language.md", "the worker sends a heartbeat every {} that names all it holds", quietBeat)
	docnumbers.In(t, "guide/deploy.md", "each worker returns to it at a random moment within\n{}", returnWithin)
	docnumbers.In(t, "guide/fleets.md", "the response to its next heartbeat, at most {} later", quietBeat)
}
