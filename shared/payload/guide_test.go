package payload

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowLargeValuesMayBe(t *testing.T) {
	stated.In(t, "guide/workflows-in-go.md", "| arguments, a result, a signal | {} encoded (base64 text), {} levels deep |",
		MaxBytes, MaxDepth)
	stated.In(t, "guide/workers-in-any-language.md", "| 413 | `payload_too_large` | a value has at most {} |", MaxBytes)
}
