package auth

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesHowExactTheLastUseIs(t *testing.T) {
	docnumbers.In(t, "guide/tokens-and-tls.md", "when each expires and when it was used last, to {}.", useInterval)
}
