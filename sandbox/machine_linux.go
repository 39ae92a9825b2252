package sandbox

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machineMemory is how many bytes of memory there are to use: the machine's, or less when a cgroup says so.
func machineMemory() int64 {
	total := int64(4 << 30)
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		total = int64(uint64(info.Totalram) * uint64(info.Unit)) //nolint:unconvert // 32 bits on some machines
	}
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if text, err := os.ReadFile(file); err == nil {
			if limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && limit > 0 {
				total = min(total, limit)
			}
		}
	}
	return total
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
