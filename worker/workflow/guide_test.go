package workflow

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func TestTheGuideSaysHowLongCodeMayTake(t *testing.T) {
	patience := NewMachine(&Definition{}, Options{}).patience
	const page = "guide/workflows-in-go.md"
	stated.In(t, page, "or blocks outside the package, fails its task after {} with its stack.", patience)
	stated.In(t, page, "fails it; so does more than {}.", patience)
	stated.In(t, page, "| code between two waits | {}; longer counts as a loop, and the workflow task fails |", patience)
	stated.In(t, page, "{} entries each |", protocol.MaxAttributes)
}
