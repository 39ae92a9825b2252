//go:build !linux

package sandbox

import (
	"errors"
	"os"
)

// sharedMemory is memory that worker and executor share, which this system does not support.
type sharedMemory struct{ file *os.File }

func newSharedMemory() (*sharedMemory, error) { return nil, errors.ErrUnsupported }

func (*sharedMemory) write([]byte) error { return errors.ErrUnsupported }

func (*sharedMemory) read(int) ([]byte, error) { return nil, errors.ErrUnsupported }

func (*sharedMemory) empty() {}

func (*sharedMemory) close() error { return nil }
