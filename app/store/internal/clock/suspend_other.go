//go:build !linux

package clock

import "time"

// suspended returns 0, since the time is not known on this system. If the monotonic clock stops during a suspension,
// that counts as a jump forward: leases that would have expired keep their remaining time.
func suspended() time.Duration { return 0 }
