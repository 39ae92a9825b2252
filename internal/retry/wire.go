package retry

import (
	"encoding/json"
	"math"
)

// Unlimited means no limit in members where null means one attempt, such as max_attempts of a command.
const Unlimited = math.MaxInt32

// MarshalJSON writes all three members, absent lists as empty ones: readers compare recorded policies member by member.
func (p Policy) MarshalJSON() ([]byte, error) {
	type members Policy // without this method
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

// ForCommand is p as an author sends it in a command: no limit becomes Unlimited. Nil stays nil, one attempt.
func (p *Policy) ForCommand() *Policy { return p.limited(Unlimited) }

// Recorded is the policy a command's p comes to in history: no max_attempts means 1. Nil stays nil, one attempt too.
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
