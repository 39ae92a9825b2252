package sandbox

import (
	"fmt"
	"slices"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// minShared is the size in bytes from which a body is passed in the memory that worker and executor share. The socket
// would split it into parts of its buffer size, and each part wakes the reader.
const minShared = 16 << 10

// featureSharedMemory is the feature that an executor announces at its start if it supports shared memory.
const featureSharedMemory = "room"

// lend assigns the shared memory to a call unless another call uses it. The caller must hold the mutex.
func (ex *executor) lend(c *call) bool {
	if !ex.hasShared || ex.lent != nil {
		return false
	}
	ex.lent = c
	return true
}

// endedCall removes a call from those in flight. The caller must hold the mutex.
func (ex *executor) endedCall(c *call) {
	delete(ex.calls, c.id)
	if ex.lent == c {
		ex.lent = nil
	}
	if len(ex.calls) == 0 {
		ex.idle.Reset(idleAfter)
	}
}

// writeShared writes a large input into the shared memory that was assigned to its call, and records this in the
// header.
func (ex *executor) writeShared(h *frame.Header, input []byte) (rest []byte) {
	if !h.Lend || len(input) < minShared {
		return input
	}
	if err := ex.proc.shared.write(input); err != nil {
		return input // too large; sending it returns the error
	}
	h.Shared = len(input)
	return nil
}

// readShared returns the body of a frame from the frame or from shared memory. The executor can change shared memory at
// any time, so readShared copies it once before the worker examines it.
func (ex *executor) readShared(f *frame.Frame) ([]byte, error) {
	if f.Shared == 0 {
		return f.Body, nil
	}
	ex.mu.Lock()
	c := ex.lent
	ex.mu.Unlock()
	if c == nil || c.id != f.ID || f.Shared < 0 || f.Shared > frame.DefaultLimits.Body || len(f.Body) > 0 {
		return nil, fmt.Errorf("%d bytes in shared memory that was not assigned to the call: %w", f.Shared, frame.ErrMalformed)
	}
	body, err := ex.proc.shared.read(f.Shared)
	if err != nil {
		return nil, fmt.Errorf("%d bytes in shared memory: %w: %w", f.Shared, err, frame.ErrMalformed)
	}
	return body, nil
}

// supportsShared reports whether a started executor supports shared memory and has it.
func (ex *executor) supportsShared(ready frame.Header) bool {
	return ex.proc.shared != nil && slices.Contains(ready.Features, featureSharedMemory)
}
