package sandbox

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/sandbox/internal/cgroup"
)

// Memory returns the bytes of memory that this process may use; limited is true if a cgroup sets the limit, and not the
// size of the machine.
func Memory() (total int64, limited bool) {
	total = 4 << 30
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		total = int64(uint64(info.Totalram) * uint64(info.Unit)) //nolint:unconvert // 32 bits on some machines
	}
	if limit, ok := cgroup.MemoryLimit(); ok && limit <= total {
		return limit, true
	}
	return total, false
}

// syncFolder writes the content of a folder to disk, so that a power failure leaves no partial files.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd())) //nolint:gosec // a descriptor
}
