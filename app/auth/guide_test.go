package auth

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowExactTheLastUseIs(t *testing.T) {
	stated.In(t, "guide/operating.md", "when each expires and when it was used last, to {}.", useEvery)
}
