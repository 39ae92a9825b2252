package workerapi

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/docnumbers"
)

func TestGuideStatesHowLongPollsAreHeld(t *testing.T) {
	const page = "guide/http-api.md"
	docnumbers.In(t, page, "Polls of workers are held for `timeout_seconds`, {} by default", defaultWait)
	docnumbers.In(t, page, "(more than {} is treated as {})", maxWait, maxWait)
}
