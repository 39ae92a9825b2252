//go:build unix

package connlimit

import (
	"math"
	"syscall"
)

// descriptorLimit returns the process's maximum number of open descriptors.
func descriptorLimit() int {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 0
	}
	return int(min(uint64(l.Cur), math.MaxInt32)) //nolint:unconvert // FreeBSD has an int64
}
