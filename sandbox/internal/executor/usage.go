package executor

import (
	"runtime"
	"syscall"
	"time"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// resourcesUsed returns the processor time of the whole process and its maximum resident memory so far, in bytes.
func resourcesUsed() (cpu time.Duration, rss int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	rss = int64(u.Maxrss)         //nolint:unconvert // an int32 on some machines
	if runtime.GOOS != "darwin" { // other systems report kilobytes
		rss <<= 10
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), rss
}

// usageSince returns the usage of the process since cpu; calls that overlap each count the whole usage.
func usageSince(cpu time.Duration) *frame.Usage {
	now, rss := resourcesUsed()
	return &frame.Usage{CPUMS: float64((now - cpu).Microseconds()) / 1000, RSS: rss}
}
