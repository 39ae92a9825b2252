package wall

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offered asks the kernel what it has.
func Offered() Kernel {
	var k Kernel
	if abi, _, errno := unix.Syscall(
		unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION,
	); errno == 0 {
		k.Landlock = int(abi)
	}
	// With no program there is nothing to install: a kernel that has filters says that the address is bad.
	const setFilter = unix.SECCOMP_SET_MODE_FILTER
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, setFilter, 0, 0)
	_, known := architectures[runtime.GOARCH]
	k.Filter = errno == unix.EFAULT && known
	return k
}

// Raise restricts the calling thread, for good. The caller has locked its goroutine to it; see [Apart]. After an error
// the thread may be restricted in part and must not start anything.
func Raise(r Rules) error { _, err := r.raise(0); return err }

// RaiseAsking is [Raise], but that whoever is behind the wall starts a process only when [Births.Answer] says so, and
// waits as long as nobody does. Births is nil where the kernel, or a filter with the same around this process, does not
// let that be: then processes are started as ever.
func RaiseAsking(r Rules) (*Births, error) {
	r.births = r.Filter
	fd, err := r.raise(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	if err != nil || fd < 0 {
		return nil, err
	}
	return &Births{fd}, nil
}

// raise does it; the listener is -1 where there is none.
func (r Rules) raise(flags uintptr) (listener int, err error) {
	listener = -1
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return listener, fmt.Errorf("no new privileges: %w", err)
	}
	if len(r.Ports) > 0 && (r.Landlock < abiNet || !r.Filter) {
		return listener, fmt.Errorf("no rules for ports: Landlock has ABI %d here, or there is no filter", r.Landlock)
	}
	if r.Landlock > 0 {
		if err := r.enclose(); err != nil {
			return listener, fmt.Errorf("landlock: %w", err)
		}
	}
	if r.Filter {
		if listener, err = r.install(flags); err != nil && flags != 0 {
			r.births = false
			listener, err = r.install(0)
		}
		if err != nil {
			return listener, fmt.Errorf("seccomp: %w", err)
		}
	}
	return listener, nil
}

// enclose puts this thread into a Landlock domain of its own.
func (r Rules) enclose() error {
	set := r.ruleset()
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&set)), unsafe.Sizeof(set), 0)
	if errno != 0 {
		return fmt.Errorf("make rules: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, f := range r.fileRules() {
		if err := allow(int(fd), set, f); err != nil {
			return fmt.Errorf("rule for %s: %w", f.path, err)
		}
	}
	for _, port := range r.Ports {
		if err := allowPort(int(fd), port); err != nil {
			return fmt.Errorf("rule for port %d: %w", port, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("apply rules: %w", errno)
	}
	return nil
}

// allow adds a rule for what is at a path now.
func allow(rules int, set ruleset, f fileRule) error {
	fd, err := unix.Open(f.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		if f.needed ||
			!(errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES) ||
				errors.Is(err, unix.ELOOP)) {
			return err
		}
		return nil // who cannot be reached needs no rule
	}
	// The kernel makes up the files under /proc as they are asked for and forgets them when memory is scarce, and the rule
	// with them. One that is held open is not forgotten.
	if !strings.HasPrefix(f.path, "/proc/") {
		defer unix.Close(fd)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	beneath := unix.LandlockPathBeneathAttr{Allowed_access: f.on(set, st.Mode&unix.S_IFMT == unix.S_IFDIR), Parent_fd: int32(fd)} //nolint:gosec // a descriptor
	_, _, errno := unix.Syscall6(
		unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&beneath)), 0, 0,
		0,
	)
	if errno != 0 {
		return errno
	}
	return nil
}

// allowPort adds a rule for connections to a port.
func allowPort(rules int, port uint16) error {
	rule := portRule{rights: connectPort, port: uint64(port)}
	_, _, errno := unix.Syscall6(
		unix.SYS_LANDLOCK_ADD_RULE, uintptr(rules), ofPort, uintptr(unsafe.Pointer(&rule)), 0, 0, 0,
	)
	if errno != 0 {
		return errno
	}
	return nil
}

// install puts the filter on this thread. With flags that ask for one it returns a listener, else -1.
func (r Rules) install(flags uintptr) (listener int, err error) {
	code, err := r.filter(runtime.GOARCH)
	if err != nil {
		return -1, err
	}
	list := make([]unix.SockFilter, len(code))
	for i, c := range code {
		list[i] = unix.SockFilter{Code: c.code, Jt: c.jt, Jf: c.jf, K: c.k}
	}
	prog := unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]} //nolint:gosec // a few hundred
	const set = unix.SECCOMP_SET_MODE_FILTER
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, set, flags, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(list)
	switch {
	case errno != 0:
		return -1, errno
	case flags&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER == 0:
		return -1, nil
	}
	return int(fd), nil
}

// Births is where the kernel asks whether somebody behind a wall may start a process. It is not passed on to programs.
type Births struct{ fd int }

// question and answer are those of the kernel's interface: of a question only its id is looked at here, as the filter
// asks of nothing else.
type question struct {
	id   uint64
	rest [72]byte
}

type answer struct {
	id    uint64
	value int64
	err   int32
	flags uint32
}

const (
	receive = 0xc0502100 // SECCOMP_IOCTL_NOTIF_RECV
	send    = 0xc0182101 // SECCOMP_IOCTL_NOTIF_SEND
)

// Answer asks may about one process after the other, for as long as this one lives. Who may not is told to try again.
func (b *Births) Answer(may func() bool) {
	for {
		var q question
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(b.fd), receive, uintptr(unsafe.Pointer(&q)))
		switch errno {
		case 0:
		case unix.EINTR, unix.ENOENT: // who asked is gone, or was interrupted and asks anew
			continue
		default:
			_ = unix.Close(b.fd) // then nobody starts anything
			return
		}
		a := answer{id: q.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
		if !may() {
			a = answer{id: q.id, err: -int32(unix.EAGAIN)}
		}
		_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(b.fd), send, uintptr(unsafe.Pointer(&a)))
	}
}

// Apart runs fn on a thread that runs nothing else, before and after, and returns when fn has. The thread is not the
// process's first: that one stands for the process when somebody sends it a signal, so it must stay outside of what fn
// shuts itself into. It lives as long as the process, because children started from it may be tied to it.
func Apart(fn func()) {
	done := make(chan struct{})
	go apart(fn, done)
	<-done
}

func apart(fn func(), done chan struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		go apart(fn, done) // this goroutine holds the first thread until the other has found its own
		<-done
		runtime.UnlockOSThread()
		return
	}
	fn()
	close(done)
	select {}
}
