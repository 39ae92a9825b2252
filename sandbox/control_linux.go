package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// control is the worker's end of the socket on which the worker and an executor exchange frames. It allows one
// concurrent reader and one concurrent writer.
//
// Go's netpoller always polls for both directions. Each time the executor reads a frame, the socket becomes writable
// and would wake a thread of the worker that has nothing to write. Therefore the netpoller polls an epoll descriptor
// that reports only readability of the socket.
type control struct {
	fd     int
	epoll  *os.File
	raw    syscall.RawConn // descriptor for epoll; its callbacks keep the socket open
	closed sync.Once

	readNow       func(uintptr) bool
	in            []byte
	got           int
	readErr       error
	writeNow      func(uintptr)
	out           [2][]byte
	sent          int
	writeErr      error
	writeDeadline time.Time // deadline of writes; zero: none
}

// newControl takes ownership of the descriptor of a socket.
func newControl(fd int) (*control, error) {
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("epoll: %w", err), unix.Close(fd))
	}
	err = errors.Join(
		unix.SetNonblock(fd, true), unix.SetNonblock(epfd, true),
		unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP}),
	)
	c := &control{fd: fd, epoll: os.NewFile(uintptr(epfd), "epoll")}
	if err == nil {
		err = c.epoll.SetReadDeadline(time.Time{}) // returns an error if the runtime cannot poll the descriptor
	}
	if err == nil {
		c.raw, err = c.epoll.SyscallConn()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("wait for socket: %w", err), c.Close())
	}
	c.readNow, c.writeNow = c.readAvailable, c.writeAll
	return c, nil
}

func (c *control) Read(b []byte) (int, error) {
	c.in, c.got, c.readErr = b, 0, nil
	err := c.raw.Read(c.readNow)
	c.in = nil
	if err == nil {
		err = c.readErr
	}
	if c.got == 0 && err == nil && len(b) > 0 {
		err = io.EOF
	}
	return c.got, err
}

// readAvailable returns false if no data is available yet.
func (c *control) readAvailable(uintptr) bool {
	for {
		n, err := readNonblocking(c.fd, c.in)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return false
		}
		c.got, c.readErr = max(n, 0), err
		return true
	}
}

func (c *control) Write(b []byte) (int, error) { return c.WriteBoth(b, nil) }

// WriteBoth writes two texts, one after the other.
func (c *control) WriteBoth(head, body []byte) (int, error) {
	c.out, c.sent, c.writeErr = [2][]byte{head, body}, 0, nil
	err := c.raw.Control(c.writeNow)
	c.out = [2][]byte{}
	if err == nil {
		err = c.writeErr
	}
	return c.sent, err
}

// writeAll writes both parts of the frame. The socket buffer usually has room for them; otherwise the call blocks a
// thread.
func (c *control) writeAll(uintptr) {
	for len(c.out[0])+len(c.out[1]) > 0 {
		var n int
		var err error
		switch {
		case len(c.out[0]) == 0:
			n, err = writeNonblocking(c.fd, c.out[1])
		case len(c.out[1]) == 0:
			n, err = writeNonblocking(c.fd, c.out[0])
		default:
			n, err = unix.Writev(c.fd, c.out[:])
		}
		if n > 0 {
			c.sent += n
			first := min(n, len(c.out[0]))
			c.out[0], c.out[1] = c.out[0][first:], c.out[1][n-first:]
		}
		if errors.Is(err, unix.EAGAIN) {
			err = c.awaitRoom()
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			c.writeErr = err
			return
		}
	}
}

// awaitRoom waits until the socket is writable or closed.
func (c *control) awaitRoom() error {
	wait := -1
	if !c.writeDeadline.IsZero() {
		if wait = int(time.Until(c.writeDeadline).Milliseconds()); wait <= 0 {
			return os.ErrDeadlineExceeded
		}
	}
	_, err := unix.Poll([]unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}, wait)
	return err
}

func (c *control) SetReadDeadline(t time.Time) error { return c.epoll.SetReadDeadline(t) }

// SetWriteDeadline applies to later writes.
func (c *control) SetWriteDeadline(t time.Time) error {
	c.writeDeadline = t
	return nil
}

// SetDeadline sets the deadlines for reads and writes.
func (c *control) SetDeadline(t time.Time) error {
	return errors.Join(c.SetWriteDeadline(t), c.SetReadDeadline(t))
}

// Close shuts the socket down, which ends pending reads and writes, and then closes its descriptor.
func (c *control) Close() (err error) {
	c.closed.Do(func() {
		_ = unix.Shutdown(c.fd, unix.SHUT_RDWR)
		err = errors.Join(c.epoll.Close(), unix.Close(c.fd)) // epoll.Close returns after all calls in raw have returned
	})
	return err
}
