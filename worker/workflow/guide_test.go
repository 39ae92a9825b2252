package workflow

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestGuideStatesTheDeadlockTimeout(t *testing.T) {
	patience := newMachine(&Definition{}, replay.Options{}).patience
	const page = "guide/workflows-in-go.md"
	docnumbers.In(t, page, "or blocks outside the package, fails its task after {} with its stack.", patience)
	docnumbers.In(t, page, "fails it; so does more than {}.", patience)
	docnumbers.In(t, page, "| code between two waits | {}; longer counts as a loop, and the workflow task fails |", patience)
	docnumbers.In(t, page, "{} entries each |", protocol.MaxAttributes)
}
