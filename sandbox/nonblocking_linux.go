package sandbox

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The functions in this file make system calls that never block, with RawSyscall, which does not notify Go's scheduler.
// In an idle process, such as a worker that waits for its executor, an ordinary Syscall wakes the sysmon thread, which
// then polls for long system calls. That costs more CPU time than the rest of a short call. A call in this file must
// not block, because a garbage collection would wait for it.

// readNonblocking reads from a descriptor that does not block.
func readNonblocking(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(
		unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
	)
	return done(n, errno)
}

// writeNonblocking writes to a descriptor that does not block.
func writeNonblocking(fd int, b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(
		unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)),
	)
	return done(n, errno)
}

func done(n uintptr, errno unix.Errno) (int, error) {
	if errno != 0 {
		return -1, errno
	}
	return int(n), nil
}

// place is the path of a file or folder that is checked often.
type place struct {
	path string
	name *byte // the same with a terminating zero; nil if the call may block
}

func placeAt(path string) place {
	var at unix.Statfs_t
	if unix.Statfs(path, &at) == nil {
		switch at.Type { // other file systems may access another machine
		case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC,
			unix.OVERLAYFS_SUPER_MAGIC:
			name, _ := unix.BytePtrFromString(path)
			return place{path, name}
		}
	}
	return place{path: path}
}

// stat returns the current stamp.
func (p *place) stat() (fileStamp, bool) {
	if p.name != nil {
		var at unix.Statx_t
		_, _, errno := unix.RawSyscall6(
			unix.SYS_STATX, ^uintptr(-unix.AT_FDCWD-1), uintptr(unsafe.Pointer(p.name)), 0, unix.STATX_SIZE|unix.STATX_MTIME,
			uintptr(unsafe.Pointer(&at)), 0,
		)
		if errno == 0 {
			return fileStamp{int64(at.Size), at.Mtime.Sec*1e9 + int64(at.Mtime.Nsec)}, true
		}
	}
	return stampAt(p.path)
}
