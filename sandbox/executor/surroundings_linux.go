package executor

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// mostDescriptors are looked at one by one; those above are closed without a look.
	mostDescriptors = 4096
	// leftOpen are the descriptors that calls may leave before the executor is not used again.
	leftOpen = 64
)

// process is what calls find of the process itself.
type process struct {
	umask  int
	polled []unix.PollFd
	open   []bool // by descriptor
	closed int    // a descriptor that leads nowhere: reading and writing it fail as if it were closed
}

func (p *process) note() (err error) {
	p.umask = unix.Umask(0o077)
	unix.Umask(p.umask)
	if p.closed, err = unix.Open("/dev/null", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("descriptor that leads nowhere: %w", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("limit of descriptors: %w", err)
	}
	p.polled = make([]unix.PollFd, min(limit.Cur, mostDescriptors))
	p.open, err = p.descriptors()
	return err
}

// descriptors says with one system call which descriptors are open: a confined process may not list its own.
func (p *process) descriptors() ([]bool, error) {
	for i := range p.polled {
		p.polled[i] = unix.PollFd{Fd: int32(i)}
	}
	for {
		_, err := unix.Poll(p.polled, 0)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return nil, fmt.Errorf("open descriptors: %w", err)
		}
	}
	open := make([]bool, len(p.polled))
	for i, fd := range p.polled {
		open[i] = fd.Revents&unix.POLLNVAL == 0
	}
	return open, nil
}

// restore closes what calls opened. A number stays taken by a descriptor that leads nowhere: an os.File or a connection
// that still has it, and closes it when it is collected, must not close another file. Sockets are shut down instead,
// since the goroutines that wait for them would not notice that they were closed: those see the end, and close them.
func (p *process) restore() error {
	unix.Umask(p.umask)
	open, err := p.descriptors()
	if err != nil {
		return err
	}
	if slices.Equal(open, p.open) {
		return nil
	}
	left := 0
	for fd := range open {
		if !open[fd] || p.open[fd] {
			continue
		}
		if left++; left > leftOpen {
			return errors.New("calls left too many descriptors open")
		}
		if unix.Shutdown(fd, unix.SHUT_RDWR) == nil {
			continue
		}
		if err := unix.Dup3(p.closed, fd, unix.O_CLOEXEC); err != nil {
			return fmt.Errorf("close descriptor %d: %w", fd, err)
		}
	}
	_ = unix.CloseRange(uint(len(open)), math.MaxUint32, 0)
	return nil
}
