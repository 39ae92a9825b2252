package httpjson

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesTheRequestLimits(t *testing.T) {
	const page = "guide/http-api.md"
	docnumbers.In(t, page, "bodies are UTF-8 and at most {}, where", MaxBody)
	docnumbers.In(t, page, "responses from {} on are compressed", compressFrom)
	docnumbers.In(t, "guide/sizing.md", "The body of a request has {} to arrive, and one more second for each {} of its `Content-Length`.",
		bodyTime, bodyRate)
}
