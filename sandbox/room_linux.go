package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// room is a file in memory that holds one body, and that an executor has too.
type room struct {
	file *os.File
	raw  syscall.RawConn
}

// newRoom makes one that will neither grow nor become a program.
func newRoom() (*room, error) {
	fd, err := unix.MemfdCreate("sojourn-room", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("sojourn-room", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("room: %w", err)
	}
	r := &room{file: os.NewFile(uintptr(fd), "room")}
	if r.raw, err = r.file.SyscallConn(); err == nil {
		err = r.file.Truncate(int64(frame.DefaultLimits.Body))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("room: %w", err), r.file.Close())
	}
	const seals = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("seal room: %w", err), r.file.Close())
	}
	return r, nil
}

// write puts a body into the room.
func (r *room) write(body []byte) error { return r.all(body, io.ErrShortWrite, writeAtOnceTo) }

// read copies into body what is in the room.
func (r *room) read(body []byte) error { return r.all(body, io.ErrUnexpectedEOF, readAtOnceFrom) }

// all does with the whole body what do does with some of it. The room is memory, and so there is nothing to wait for.
func (r *room) all(body []byte, none error, do func(fd int, b []byte, at int) (int, error)) error {
	var err error
	closed := r.raw.Control(func(fd uintptr) {
		for at := 0; at < len(body) && err == nil; {
			var n int
			if n, err = do(int(fd), body[at:], at); n > 0 {
				at += n
			} else if err == nil {
				err = none
			} else if errors.Is(err, unix.EINTR) {
				err = nil
			}
		}
	})
	return errors.Join(closed, err)
}

// empty gives back the memory that the room takes.
func (r *room) empty() {
	_ = r.raw.Control(func(fd uintptr) {
		_ = unix.Fallocate(
			int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, int64(frame.DefaultLimits.Body),
		)
	})
}
