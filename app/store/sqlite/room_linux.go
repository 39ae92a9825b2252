package sqlite

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// leastRoom is what a disk must have free after a write that failed before the store is taken for one that can write:
// as much as the log may grow to before SQLite itself checkpoints it.
const leastRoom = autocheckpointPages * 4 << 10

// room returns an error if the disk of a file has no room for the writes of a step.
func room(path string) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return fmt.Errorf("the disk of %s: %w", path, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < leastRoom {
		return fmt.Errorf("the disk of %s has %d KiB free", path, free>>10)
	}
	return nil
}
