package egress

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesHowManyConnectionsExecutorsShare(t *testing.T) {
	docnumbers.In(t, "security.md", "(a quarter of the worker's descriptors, at most {}; {} for requests of one executor)", maxConns,
		maxPerPass)
}
