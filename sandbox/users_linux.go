package sandbox

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// mayChangeUsers returns an error if this process cannot start, watch and kill processes of other users, or cannot
// remove their files.
func mayChangeUsers() error {
	if os.Geteuid() != 0 {
		return errors.New("the worker is not root")
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("read the capabilities of the worker: %w", err)
	}
	for name, c := range map[string]uint{
		"CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_FOWNER": unix.CAP_FOWNER,
		"CAP_KILL": unix.CAP_KILL, "CAP_SETUID": unix.CAP_SETUID, "CAP_SETGID": unix.CAP_SETGID,
	} {
		if sets[c/32].Effective&(1<<(c%32)) == 0 {
			return fmt.Errorf("the worker is root without %s", name)
		}
	}
	return nil
}

// ours returns an error if dir is not a folder owned by this process's user. F
func ours(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not a folder that belongs to this user", dir)
	}
	return nil
}

// announce reserves a user ID by an abstract socket, whose name all workers of the network namespace share, even if
// services with a private /run or /tmp use different lock folders and the same range of users. The kernel removes the
// socket when its process ends. held reports that another worker has the ID. If code of another user bound the name,
// only the lock file counts.
func announce(id int) (name *os.File, held bool, err error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, false, fmt.Errorf("reserve a user ID for an executor: %w", err)
	}
	socket := os.NewFile(uintptr(fd), "user of an executor")
	address := &unix.SockaddrUnix{Name: fmt.Sprintf("@sojourn-user-%d", id)}
	if err = unix.Bind(fd, address); err == nil {
		err = unix.Listen(fd, 1) // other workers connect to find the owner
	}
	if err == nil {
		return socket, false, nil
	}
	defer socket.Close()
	if !errors.Is(err, unix.EADDRINUSE) {
		return nil, false, fmt.Errorf("reserve a user ID for an executor: %w", err)
	}
	switch err := unix.Connect(fd, address); {
	case errors.Is(err, unix.EAGAIN): // the backlog is full of other workers' checks
		return nil, true, nil
	case err != nil:
		return nil, false, nil // no process listens, so it is not the socket of a worker
	}
	owner, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return nil, err == nil && int(owner.Uid) == os.Geteuid(), nil
}
