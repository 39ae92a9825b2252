//go:build unix

package worker

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// linger is how long a lock is waited for. A process that was killed while it started another leaves the lock to that one for the moment until it is a
// program of its own; a worker that is restarted at once must not be turned away for that.
const linger = time.Second

// lockFile takes a lock that ends with the process.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	try := func() error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }
	err = try()
	for late := time.Now().Add(linger); errors.Is(err, syscall.EWOULDBLOCK) && time.Now().Before(late); err = try() {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		_ = f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s is locked by another process", path)
		}
		return nil, err
	}
	return f, nil
}
