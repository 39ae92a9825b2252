package clock

import (
	"time"

	"golang.org/x/sys/unix"
)

// suspended returns the time for which the machine was suspended since boot: CLOCK_BOOTTIME includes suspensions,
// CLOCK_MONOTONIC, which Go reads, does not.
func suspended() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - mono.Nano()).Truncate(time.Second)
}
