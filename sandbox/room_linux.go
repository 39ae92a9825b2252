package sandbox

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// newRoom makes a file in memory that holds one body, and will neither grow nor become a program.
func newRoom() (*os.File, error) {
	fd, err := unix.MemfdCreate("sojourn-room", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("sojourn-room", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("room: %w", err)
	}
	room := os.NewFile(uintptr(fd), "room")
	if err := room.Truncate(int64(frame.DefaultLimits.Body)); err != nil {
		return nil, errors.Join(fmt.Errorf("room: %w", err), room.Close())
	}
	const seals = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("seal room: %w", err), room.Close())
	}
	return room, nil
}

// empty gives back the memory that a room takes.
func empty(room *os.File) {
	_ = unix.Fallocate(
		int(room.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(frame.DefaultLimits.Body),
	)
}
