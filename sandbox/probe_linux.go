package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	lib "github.com/sojourn-run/sojourn/sandbox/internal/executor"
)

// unwatched lists weaknesses of this system that no test of a probe detects.
var unwatched []string

// watches reports whether a supervisor enforces the limit of a resource.
func watches(string) bool { return true }

// probe is the main function of a probe process: it reads its aim, runs all tests, and reports each success.
func probe() {
	time.AfterFunc(probeTime, func() { os.Exit(1) })
	a, control := readAim()
	if len(a.Resources) > 0 {
		exceedLimits(a.Resources, control)
		return
	}
	found := outcome{}
	for try, fn := range probeTests {
		found[try] = fn(a) == nil
	}
	answer, _ := json.Marshal(found) // only strings and booleans: it cannot fail
	_, _ = control.Write(append(answer, '\n'))
}

// probeTests are the tests of a probe; an error means that the operation was denied.
var probeTests = map[string]func(aim) error{
	tryRead: func(a aim) error { return reads(a.Secret) },
	tryWrite: func(a aim) error {
		var err error
		for _, dir := range []string{a.Outside, "/tmp", "/var/tmp", "/dev/shm"} {
			path := filepath.Join(dir, fmt.Sprintf("sojourn-test-%d-%d", a.Worker, os.Getpid()))
			if err = os.WriteFile(path, nil, 0o600); err == nil {
				return os.Remove(path)
			}
		}
		return err
	},
	tryEnviron:   func(a aim) error { return reads(fmt.Sprintf("/proc/%d/environ", a.Worker)) },
	tryProcesses: func(a aim) error { return reads(fmt.Sprintf("/proc/%d/cmdline", a.Worker)) },
	tryTrace: func(a aim) error {
		const seize = 0x4206 // PTRACE_SEIZE: attaches without stopping the process, until this process ends
		if _, _, errno := unix.Syscall6(unix.SYS_PTRACE, seize, uintptr(a.Worker), 0, 0, 0, 0); errno != 0 {
			return errno
		}
		return nil
	},
	tryDescriptors: func(aim) error {
		for fd := lib.ControlFD + 1; fd < 256; fd++ {
			// Descriptors of this process are marked close-on-exec.
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
				return nil
			}
		}
		return errors.New("none")
	},
	tryCalls: func(aim) error {
		// With these arguments, none of the calls has an effect. An error other than a refusal shows that the call
		// reached the kernel.
		for _, nr := range []uintptr{
			unix.SYS_BPF, unix.SYS_IO_URING_SETUP, unix.SYS_KEYCTL, unix.SYS_UNSHARE, unix.SYS_OPEN_BY_HANDLE_AT,
		} {
			if _, _, errno := unix.Syscall6(nr, 0xffff, 0, 0, 0, 0, 0); !errors.Is(errno, unix.EPERM) &&
				!errors.Is(errno, unix.ENOSYS) {
				return nil
			}
		}
		return unix.EPERM
	},
	tryModes:    func(a aim) error { return os.Chmod(a.Secret, 0o600) },
	trySignal:   func(a aim) error { return unix.Kill(a.Worker, 0) },
	tryAbstract: func(a aim) error { return connects(a.Abstract) },
	tryNamed:    func(a aim) error { return connects(a.Named) },
	tryNetwork: func(a aim) error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			return unix.Close(fd)
		}
		if a.TCP == "" {
			return err
		}
		c, err := net.DialTimeout("tcp", a.TCP, time.Second)
		if err == nil {
			return c.Close()
		}
		return sendsAtOnce(a.TCP)
	},
	tryGroup: func(a aim) error {
		if a.Group == "" {
			return errors.New("no group")
		}
		f, err := os.OpenFile(a.Group, os.O_WRONLY, 0)
		if err == nil {
			err = f.Close()
		}
		return err
	},
	tryRoot: func(aim) error {
		if os.Geteuid() != 0 {
			return errors.New("another user")
		}
		return nil
	},
}

func reads(path string) error {
	_, err := os.ReadFile(path)
	return err
}

// sendsAtOnce sends data while it connects.
func sendsAtOnce(address string) error {
	to, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())})
}

func connects(address string) error {
	if address == "" {
		return errors.New("no socket")
	}
	c, err := net.DialTimeout("unix", address, time.Second) //nolint:noctx // a second at most
	if err == nil {
		_ = c.Close()
	}
	return err
}

// listen opens a listening socket and returns its address. It accepts no connections. If address is empty, it listens
// on TCP.
func listen(address string) (at string, stop func(), err error) {
	network := "unix"
	if address == "" {
		network, address = "tcp", "127.0.0.1:0"
	}
	l, err := net.Listen(network, address) //nolint:noctx // nothing waits to listen
	if err != nil {
		return "", nil, err
	}
	if network == "tcp" {
		address = l.Addr().String()
	}
	return address, func() { _ = l.Close() }, nil
}
