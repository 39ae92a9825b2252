package httpjson

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysTheNumbersOfRequests(t *testing.T) {
	const page = "guide/http-api.md"
	stated.In(t, page, "bodies are UTF-8 and at most {}, where", MaxBody)
	stated.In(t, page, "responses from {} on are compressed", compressFrom)
	stated.In(t, "guide/sizing.md", "The body of a request has {} to arrive, and one more second for each {} of its `Content-Length`.",
		bodyTime, bodyRate)
}
