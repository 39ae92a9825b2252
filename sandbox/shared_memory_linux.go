package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// sharedMemory is a memory file that worker and executor share and that holds one body. The worker maps it: the
// executor can change its bytes at any time, but not its size.
type sharedMemory struct {
	file *os.File

	mu     sync.RWMutex // held while memory is in use
	memory []byte       // nil once closed
}

// newSharedMemory creates a memory file that can neither grow nor be executed.
func newSharedMemory() (*sharedMemory, error) {
	fd, err := unix.MemfdCreate("sojourn-room", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("sojourn-room", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	r := &sharedMemory{file: os.NewFile(uintptr(fd), "room")}
	if err := r.file.Truncate(int64(frame.DefaultLimits.Body)); err != nil {
		return nil, errors.Join(fmt.Errorf("shared memory: %w", err), r.close())
	}
	const seals = unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, errors.Join(fmt.Errorf("seal shared memory: %w", err), r.close())
	}
	r.memory, err = unix.Mmap(fd, 0, frame.DefaultLimits.Body, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map shared memory: %w", err), r.close())
	}
	return r, nil
}

// write copies a body into the memory.
func (r *sharedMemory) write(body []byte) error {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(body) > len(r.memory) {
		return io.ErrShortWrite
	}
	copy(r.memory, body)
	return nil
}

// read returns a copy of the first size bytes, without clearing the destination first.
func (r *sharedMemory) read(size int) ([]byte, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if size > len(r.memory) {
		return nil, io.ErrUnexpectedEOF
	}
	return append([]byte(nil), r.memory[:size]...), nil
}

// empty returns the pages of the shared memory to the kernel.
func (r *sharedMemory) empty() {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if r.memory != nil {
		_ = unix.Madvise(r.memory, unix.MADV_REMOVE)
	}
}

// close unmaps the shared memory and closes its file.
func (r *sharedMemory) close() (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.memory != nil {
		err = unix.Munmap(r.memory)
		r.memory = nil
	}
	return errors.Join(err, r.file.Close())
}
