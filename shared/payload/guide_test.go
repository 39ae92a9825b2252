package payload

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesHowLargeValuesMayBe(t *testing.T) {
	docnumbers.In(t, "guide/workflows-in-go.md", "| arguments, a result, a signal | {} encoded (base64 text), {} levels deep |",
		MaxBytes, MaxDepth)
	docnumbers.In(t, "guide/workers-in-any-language.md", "| 413 | `payload_too_large` | a value has at most {} |", MaxBytes)
}
