package workerapi

import (
	"testing"

	"github.com/sojourn-run/sojourn/internal/stated"
)

func TestTheGuideSaysHowLongPollsAreHeld(t *testing.T) {
	const page = "guide/http-api.md"
	stated.In(t, page, "Polls of workers are held for `timeout_seconds`, {} by default", defaultWait)
	stated.In(t, page, "(more than {} is treated as {})", maxWait, maxWait)
}
