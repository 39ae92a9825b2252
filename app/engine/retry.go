package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
)

// retries says whether another attempt follows the used ones, and after how long. No policy means one attempt; a type listed as non-retryable ends
// it at once; the back-off list's last entry repeats.
func retries(p *history.RetryPolicy, used int, errType string, nonRetryable bool) (time.Duration, bool) {
	if p == nil || nonRetryable || p.MaxAttempts != nil && used >= *p.MaxAttempts || slices.Contains(p.NonRetryable, errType) {
		return 0, false
	}
	if len(p.Backoff) == 0 {
		return 0, true
	}
	return seconds(int64(p.Backoff[min(used-1, len(p.Backoff)-1)])), true
}

// recorded is a commanded policy as history keeps it: a command without max_attempts asks for one attempt, and replayers compare what is recorded.
func recorded(p *history.RetryPolicy) *history.RetryPolicy {
	if p == nil || p.MaxAttempts != nil {
		return p
	}
	one, r := 1, *p
	r.MaxAttempts = &one
	return &r
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
