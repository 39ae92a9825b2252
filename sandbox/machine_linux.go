package sandbox

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/sandbox/cgroup"
)

// machineMemory is how many bytes of memory there are to use: the machine's, or less when a cgroup says so.
func machineMemory() int64 {
	total := int64(4 << 30)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		total = int64(uint64(info.Totalram) * uint64(info.Unit)) //nolint:unconvert // 32 bits on some machines
	}
	if limit, ok := cgroup.MemoryLimit(); ok {
		total = min(total, limit)
	}
	return total
}

// Memory is how many bytes of memory there are to use; limited says that a control group allows fewer than the machine
// has.
func Memory() (total int64, limited bool) {
	total = machineMemory()
	limit, ok := cgroup.MemoryLimit()
	return total, ok && limit == total
}

// flush has what is in a folder written to the disk, so that a machine that loses its power keeps none of it by half.
func flush(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Syncfs(int(f.Fd())) //nolint:gosec // a descriptor
}
