package sandboxtest

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/sandbox/internal/executor"
	"github.com/sojourn-run/sojourn/shared/payload"
)

func init() {
	behaviours["leave"] = leaveFiles
	behaviours["leave_later"] = func(
		ctx context.Context, c *executor.Call, inv executor.Invocation, arg payload.Payload,
	) (any, error) {
		ended := make(chan error, 1)
		var found any
		go func() {
			var err error
			found, err = leaveFiles(ctx, c, inv, arg)
			ended <- err
		}()
		err := <-ended
		return found, err
	}
	behaviours["leave_and_fail"] = func(
		ctx context.Context, c *executor.Call, inv executor.Invocation, arg payload.Payload,
	) (any, error) {
		found, err := leaveFiles(ctx, c, inv, arg)
		text, _ := json.Marshal(found)
		return nil, errors.Join(errors.New(string(text)), err)
	}
	behaviours["leave_many"] = func(
		context.Context, *executor.Call, executor.Invocation, payload.Payload,
	) (any, error) {
		for range 100 {
			if _, err := syscall.Open(os.DevNull, syscall.O_RDONLY, 0); err != nil {
				return nil, err
			}
		}
		return os.Getpid(), nil
	}
}

// kept holds the state of the calls of leave in package variables.
var kept struct {
	calls   int
	fds     []int
	files   []*os.File
	conns   []net.Conn
	waiting atomic.Int64 // goroutines that read from a connection
}

// before is a connection whose two ends were open before any call, at numbers above the descriptors that rawWrite
// checks.
var before, beforeErr = connected()

func connected() (ends [2]int, err error) {
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return ends, err
	}
	for i, fd := range pair {
		end, dupErr := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 100)
		ends[i], err = end, errors.Join(err, dupErr, syscall.Close(fd))
	}
	return ends, err
}

// leaveFiles changes all state of the process that a call can change, and returns the changes of earlier calls that it
// found.
func leaveFiles(context.Context, *executor.Call, executor.Invocation, payload.Payload) (any, error) {
	mask := syscall.Umask(0)
	syscall.Umask(mask)
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	_, path := os.LookupEnv("PATH")
	files, open := []string{}, []int{}
	entries, err := os.ReadDir(os.Getenv("HOME"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		files = append(files, e.Name())
	}
	for _, fd := range kept.fds {
		var st syscall.Stat_t
		if err := syscall.Fstat(fd, &st); err == nil && st.Mode&syscall.S_IFMT == syscall.S_IFREG {
			open = append(open, fd)
		}
	}
	found := map[string]any{
		"env": os.Getenv("LEFT"), "path": path, "cwd": dir == os.Getenv("HOME"), "umask": mask != 0o013, "files": files,
		"globals": kept.calls, "open": open, "waiting": kept.waiting.Load(),
	}
	kept.calls++
	return found, leaveAll()
}

func leaveAll() error {
	err := errors.Join(
		os.Setenv("LEFT", "env"), os.Unsetenv("PATH"), os.MkdirAll("in/deeper", 0o700), os.Symlink("nowhere", "link"),
	)
	for _, name := range []string{"file", "in/deeper/file", "in/closed"} {
		err = errors.Join(err, os.WriteFile(name, []byte("left"), 0o600))
	}
	fd, openErr := syscall.Open("in/deeper/file", syscall.O_RDONLY, 0)
	file, fileErr := os.Open("file")
	second, dupErr := syscall.Dup(before[0])
	if err = errors.Join(err, os.Chmod("in/closed", 0), openErr, fileErr, beforeErr, dupErr); err != nil {
		return err
	}
	kept.fds = append(kept.fds, fd, int(file.Fd()))
	kept.files = append(kept.files, file)
	end := os.NewFile(uintptr(second), "connection")
	conn, err := net.FileConn(end)
	if err != nil {
		return err
	}
	kept.conns = append(kept.conns, conn)
	kept.waiting.Add(1)
	go func() { // like an HTTP client that keeps a connection for its next request
		defer kept.waiting.Add(-1)
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}()
	syscall.Umask(0o013)
	return errors.Join(end.Close(), os.Chdir("in"))
}
