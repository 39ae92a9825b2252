package egress

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowManyConnectionsExecutorsShare(t *testing.T) {
	stated.In(t, "security.md", "(a quarter of the worker's descriptors, at most {}; {} for requests of one executor)", maxConns,
		maxPerPass)
}
