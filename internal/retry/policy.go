// Package retry computes delays: the stored retry policy of activities, and exponential backoff with jitter for
// reconnecting loops.
package retry

import (
	"fmt"
	"slices"
	"time"
)

// MaxBackoffSeconds bounds one delay: ten years, far from where durations overflow.
const MaxBackoffSeconds = 10 * 365 * 24 * 3600

// MaxBackoffEntries and MaxErrorTypes bound the lists of a policy.
const (
	MaxBackoffEntries = 1000
	MaxErrorTypes     = 1000
)

// Policy is the retry policy of an activity, child or schedule, on the wire and in the store. It is never changed after
// its first use: replayers compare the recorded policy with their own.
type Policy struct {
	// MaxAttempts is the maximum number of attempts, including the first; nil: unlimited.
	MaxAttempts *int `json:"max_attempts" minimum:"1"`
	// BackoffSeconds are the delays before the second, third, … attempt; the last one repeats; an empty list means no
	// delay.
	BackoffSeconds []int `json:"backoff_seconds" maxItems:"1000"`
	// NonRetryableErrorTypes are error types after which no attempt follows, compared as exact strings.
	NonRetryableErrorTypes []string `json:"non_retryable_error_types" maxItems:"1000"`
}

// Next reports whether another attempt follows after attemptsUsed attempts (1 after the first), the last of which
// failed with errType, and the delay before it. nonRetryable reports that the failure excludes retries. A nil policy
// allows one attempt.
func (p *Policy) Next(attemptsUsed int, errType string, nonRetryable bool) (delay time.Duration, retry bool) {
	if p == nil || nonRetryable || slices.Contains(p.NonRetryableErrorTypes, errType) {
		return 0, false
	}
	if p.MaxAttempts != nil && attemptsUsed >= *p.MaxAttempts {
		return 0, false
	}
	if len(p.BackoffSeconds) == 0 {
		return 0, true
	}
	i := min(max(attemptsUsed-1, 0), len(p.BackoffSeconds)-1)
	return time.Duration(p.BackoffSeconds[i]) * time.Second, true
}

// FieldError names the member of a policy that is wrong, as it is named in JSON: "backoff_seconds[1]".
type FieldError struct {
	Field  string
	Reason string
}

func (e *FieldError) Error() string { return e.Field + " " + e.Reason }

// Validate checks a policy of a request; a nil policy is valid. The error is a *FieldError whose field begins with
// path, the path of the policy in its document ("retry_policy"; empty for the document itself).
func (p *Policy) Validate(path string) error {
	if p == nil {
		return nil
	}
	if path != "" {
		path += "."
	}
	if p.MaxAttempts != nil && *p.MaxAttempts < 1 {
		return &FieldError{path + "max_attempts", fmt.Sprintf("must be at least 1, got %d", *p.MaxAttempts)}
	}
	if len(p.BackoffSeconds) > MaxBackoffEntries {
		return &FieldError{path + "backoff_seconds", fmt.Sprintf("must have at most %d entries", MaxBackoffEntries)}
	}
	for i, s := range p.BackoffSeconds {
		if s < 0 || s > MaxBackoffSeconds {
			return &FieldError{
				fmt.Sprintf("%sbackoff_seconds[%d]", path, i), fmt.Sprintf("must be 0 to %d, got %d", MaxBackoffSeconds, s),
			}
		}
	}
	if len(p.NonRetryableErrorTypes) > MaxErrorTypes {
		return &FieldError{path + "non_retryable_error_types", fmt.Sprintf("must have at most %d entries", MaxErrorTypes)}
	}
	for i, name := range p.NonRetryableErrorTypes {
		if name == "" {
			return &FieldError{fmt.Sprintf("%snon_retryable_error_types[%d]", path, i), "must not be empty"}
		}
	}
	return nil
}
