package lockdown

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Offered returns the features that the kernel supports.
func Offered() Kernel {
	var k Kernel
	if abi, _, errno := unix.Syscall(
		unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION,
	); errno == 0 {
		k.Landlock = int(abi)
	}
	// A call without a program installs nothing; a kernel that supports filters returns EFAULT.
	const setFilter = unix.SECCOMP_SET_MODE_FILTER
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, setFilter, 0, 0)
	_, known := architectures[runtime.GOARCH]
	k.Filter = errno == unix.EFAULT && known
	return k
}

// Raise permanently restricts the calling thread. The caller must have locked its goroutine to it; see [OnOwnThread].
// After an error the thread may be partly restricted and must not start anything.
func Raise(r Rules) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if len(r.Ports) > 0 && (r.Landlock < abiNet || !r.Filter) {
		return fmt.Errorf("this kernel cannot restrict ports: it needs Landlock ABI 4 (here %d) and seccomp", r.Landlock)
	}
	if r.Landlock > 0 {
		if err := r.enclose(); err != nil {
			return fmt.Errorf("landlock: %w", err)
		}
	}
	if r.Filter {
		if err := r.install(); err != nil {
			return fmt.Errorf("seccomp: %w", err)
		}
	}
	return nil
}

// enclose restricts this thread by a new Landlock domain.
func (r Rules) enclose() error {
	set := r.ruleset()
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&set)), unsafe.Sizeof(set), 0)
	if errno != 0 {
		return fmt.Errorf("create the Landlock rules: %w", errno)
	}
	defer unix.Close(int(fd))
	for _, f := range r.fileRules() {
		if err := allow(int(fd), set, f); err != nil {
			return fmt.Errorf("Landlock rule for %s: %w", f.path, err)
		}
	}
	for _, port := range r.Ports {
		if err := allowPort(int(fd), port); err != nil {
			return fmt.Errorf("Landlock rule for port %d: %w", port, err)
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("apply the Landlock rules: %w", errno)
	}
	return nil
}

// allow adds a rule for the file or folder that currently exists at a path.
func allow(rules int, set ruleset, f fileRule) error {
	fd, err := unix.Open(f.path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		if f.needed ||
			!(errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.EACCES) ||
				errors.Is(err, unix.ELOOP)) {
			return err
		}
		return nil // an unreachable path needs no rule
	}
	// The kernel creates inodes under /proc on access and drops them, with the rule, when memory is scarce. The inode
	// of an open file is not dropped.
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

// install installs the seccomp filter for this thread.
func (r Rules) install() error {
	code, err := r.filter(runtime.GOARCH)
	if err != nil {
		return err
	}
	list := make([]unix.SockFilter, len(code))
	for i, c := range code {
		list[i] = unix.SockFilter{Code: c.code, Jt: c.jt, Jf: c.jf, K: c.k}
	}
	prog := unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]} //nolint:gosec // a few hundred
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(list)
	if errno != 0 {
		return errno
	}
	return nil
}

// OnOwnThread runs fn on a new thread that runs nothing else, and returns after fn. The thread is never the main thread
// of the process: permission checks for signals to the process use the main thread, so it must not be restricted by fn.
// The new thread lives as long as the process, because children started from it may use PDEATHSIG.
func OnOwnThread(fn func()) {
	done := make(chan struct{})
	go onOwnThread(fn, done)
	<-done
}

func onOwnThread(fn func(), done chan struct{}) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		go onOwnThread(fn, done) // this goroutine blocks the first thread until the other goroutine has its own thread
		<-done
		runtime.UnlockOSThread()
		return
	}
	fn()
	close(done)
	select {}
}
