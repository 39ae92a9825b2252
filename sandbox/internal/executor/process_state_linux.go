package executor

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// maxDescriptors is the number of descriptors that are checked; descriptors above are closed unchecked.
	maxDescriptors = 4096
	// maxLeakedDescriptors is the number of descriptors that calls may leave open; with more the executor is not used
	// again.
	maxLeakedDescriptors = 64
)

// process is the part of processState that differs between operating systems.
type process struct {
	umask  int
	polled []unix.PollFd
	open   []bool // whether a descriptor was open, by its number
	closed int    // /dev/null with O_PATH: reads and writes fail as on a closed descriptor
}

func (p *process) record() (err error) {
	p.umask = unix.Umask(0o077)
	unix.Umask(p.umask)
	if p.closed, err = unix.Open("/dev/null", unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open the placeholder for closed descriptors: %w", err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("read the limit of descriptors: %w", err)
	}
	p.polled = make([]unix.PollFd, min(limit.Cur, maxDescriptors))
	p.open, err = p.descriptors()
	return err
}

// descriptors returns which descriptors are open. It uses one poll, since a confined process may not list its
// descriptors.
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
			return nil, fmt.Errorf("list the open descriptors: %w", err)
		}
	}
	open := make([]bool, len(p.polled))
	for i, fd := range p.polled {
		open[i] = fd.Revents&unix.POLLNVAL == 0
	}
	return open, nil
}

// restore closes the descriptors that calls opened. It replaces each of them by the descriptor closed: an os.File that
// still has the number, and closes it when it is collected, must not close another file. Sockets are shut down instead,
// since a goroutine that reads from one would not notice the replacement: it reads EOF and closes the socket.
func (p *process) restore() error {
	unix.Umask(p.umask)
	open, err := p.descriptors()
	if err != nil {
		return err
	}
	if slices.Equal(open, p.open) {
		return nil
	}
	leaked := 0
	for fd := range open {
		if !open[fd] || p.open[fd] {
			continue
		}
		if leaked++; leaked > maxLeakedDescriptors {
			return fmt.Errorf("calls left more than %d descriptors open", maxLeakedDescriptors)
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
