//go:build !linux

package clock

import "time"

// suspended is not known here: where the monotonic clock stops while the machine is suspended, that looks like a jump
// forward, and leases that would have ended meanwhile get the rest of their time.
func suspended() time.Duration { return 0 }
