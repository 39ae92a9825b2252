package sqlite

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// leastRoom is the free disk space that is needed after a failed write before the store counts as able to write: the
// size to which the write-ahead log may grow before SQLite checkpoints it.
const leastRoom = autocheckpointPages * 4 << 10

// room returns an error if the disk of a file has no room for the writes of a step.
func room(path string) error {
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return fmt.Errorf("free space of the disk of %s: %w", path, err)
	}
	if free := disk.Bavail * uint64(disk.Bsize); free < leastRoom {
		return fmt.Errorf("the disk of %s is full: %d KiB free", path, free>>10)
	}
	return nil
}
