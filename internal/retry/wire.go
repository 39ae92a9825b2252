package retry

import (
	"encoding/json"
	"math"
)

// Unlimited means "no limit" in members in which null means one attempt, such as max_attempts of a command.
const Unlimited = math.MaxInt32

// MarshalJSON writes all three members, and an empty list for a missing one: replays compare recorded policies member
// by member.
func (p Policy) MarshalJSON() ([]byte, error) {
	type members Policy // has no MarshalJSON, which would call itself
	p.BackoffSeconds = notNil(p.BackoffSeconds)
	p.NonRetryableErrorTypes = notNil(p.NonRetryableErrorTypes)
	return json.Marshal(members(p))
}

func notNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// ForCommand returns the policy in the form in which a worker sends it in a command: no limit becomes Unlimited. nil
// stays nil, which means one attempt.
func (p *Policy) ForCommand() *Policy { return p.limited(Unlimited) }

// Recorded returns the policy that history records for a command with the policy p: a missing max_attempts becomes 1.
// nil stays nil, which also means one attempt.
func (p *Policy) Recorded() *Policy { return p.limited(1) }

func (p *Policy) limited(absent int) *Policy {
	if p == nil {
		return nil
	}
	out := *p
	if out.MaxAttempts == nil {
		out.MaxAttempts = &absent
	}
	return &out
}
