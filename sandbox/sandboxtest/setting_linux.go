package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Setting is an environment in which a worker may run.
type Setting struct {
	Name string
	// run as root, or as a user without privileges
	Root bool
	// in an imitation of a container with the default settings of container engines
	Container bool
}

var known = []Setting{
	{Name: "root", Root: true},
	{Name: "user"},
	{Name: "container as root", Root: true, Container: true},
	{Name: "container as user", Container: true},
}

// Settings returns all settings except the one in which the test process already runs.
func Settings() []Setting {
	var all []Setting
	for _, s := range known {
		if s.Container || s.Root != (os.Geteuid() == 0) {
			all = append(all, s)
		}
	}
	return all
}

const (
	// settingName is the first argument of a process that runs tests in another setting.
	settingName = "sandboxtest-setting"
	// settingUser is the user ID of tests that do not run as root.
	settingUser = 10_000
	// settingVariable names the setting to tests that run in one.
	settingVariable = "SOJOURN_TEST_SETTING"
)

// Enter enters another setting if this process was started for it, and then never returns. Call it in TestMain, after
// the setup for executors of this binary.
func Enter() {
	if len(os.Args) < 3 || os.Args[0] != settingName {
		return
	}
	runtime.LockOSThread() // the following calls change this thread, which then executes the new program
	err := enter(os.Args[1])
	if err == nil {
		err = unix.Exec(os.Args[2], append([]string{os.Args[2]}, os.Args[3:]...), os.Environ())
	}
	fmt.Fprintln(os.Stderr, "setting:", err)
	os.Exit(3)
}

// Rerun runs the named tests of this binary again in a setting, and fails t if one fails. A test that skips logs the
// reason in t. t is skipped if this process cannot create the setting.
func (s Setting) Rerun(t *testing.T, tests []string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skipf("this process is not root, which %q needs to be made", s.Name)
	}
	dir, err := os.MkdirTemp("", "setting")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	binary, own := filepath.Join(dir, "test"), filepath.Join(dir, "own")
	if err := errors.Join(
		os.Chmod(dir, 0o755), copyProgram(binary), os.Mkdir(own, 0o755),
	); err != nil {
		t.Fatal(err)
	}
	id := settingUser
	if s.Root {
		id = 0
	}
	if err := os.Chown(own, id, id); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 12*Ceiling)
	defer cancel()
	c := exec.CommandContext(ctx, binary)
	c.Args = []string{
		settingName, s.Name, binary, "-test.v", "-test.count=1", "-test.run=^" + strings.Join(tests, "$|^") + "$",
	}
	c.Dir = own
	c.Env = []string{settingVariable + "=" + s.Name, "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + own, "TMPDIR=" + own, "LANG=C.UTF-8"}
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if s.Container {
		c.SysProcAttr.Cloneflags = unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS |
			unix.CLONE_NEWNET
	}
	out, err := c.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("this process may not make namespaces: %v", err)
	}
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	for _, name := range tests {
		ran := regexp.MustCompile("^ *--- (PASS|SKIP): " + name + " ")
		above, _, _ := strings.Cut(name, "/")
		if err == nil && !slices.ContainsFunc(lines, ran.MatchString) &&
			!slices.ContainsFunc(lines, regexp.MustCompile("^--- SKIP: "+above+" ").MatchString) {
			t.Errorf("%s did not run", name)
		}
	}
	for i, line := range lines[1:] {
		if strings.Contains(line, "--- SKIP") { // the previous line contains the reason
			t.Log(strings.TrimSpace(line), strings.TrimSpace(lines[i]))
		}
	}
}

// Here returns the setting that the test runs in, or the zero value outside a setting.
func Here() Setting {
	for _, s := range known {
		if s.Name == os.Getenv(settingVariable) {
			return s
		}
	}
	return Setting{}
}

// copyProgram copies this program to a place where all users can run it. No process may be started meanwhile: a child
// that inherited the open file would make starting the copy fail until it calls exec.
func copyProgram(to string) error {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer from.Close()
	f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// enter restricts this thread to a setting.
func enter(name string) error {
	for _, s := range known {
		if s.Name != name {
			continue
		}
		if s.Container {
			if err := errors.Join(upLoopback(), mounts()); err != nil {
				return err
			}
			// Before the change of user, so that it is allowed without no_new_privs.
			if err := filterAsEngines(); err != nil {
				return fmt.Errorf("filter: %w", err)
			}
			if err := dropCapabilities(); err != nil {
				return fmt.Errorf("capabilities: %w", err)
			}
		}
		if !s.Root {
			return becomeUser()
		}
		return nil
	}
	return fmt.Errorf("no setting %q", name)
}

// becomeUser changes the user of this thread only, unlike the functions of package syscall. The other threads end when
// this thread executes a program.
func becomeUser() error {
	for _, c := range []struct{ nr, a, b, c uintptr }{
		{nr: unix.SYS_SETGROUPS},
		{nr: unix.SYS_SETRESGID, a: settingUser, b: settingUser, c: settingUser},
		{nr: unix.SYS_SETRESUID, a: settingUser, b: settingUser, c: settingUser},
	} {
		if _, _, errno := unix.RawSyscall(c.nr, c.a, c.b, c.c); errno != 0 {
			return fmt.Errorf("become a user: %w", errno)
		}
	}
	return nil
}

// upLoopback enables the loopback interface of a new network namespace.
func upLoopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

// mounts gives this process the /proc, /dev and /sys of a container, with the same hidden and read-only paths as
// container engines.
func mounts() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts apart: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	for _, path := range []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger", "/sys"} {
		if err := readOnly(path); err != nil {
			return err
		}
	}
	for _, path := range []string{
		"/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/proc/interrupts", "/sys/firmware",
		"/sys/devices/virtual/powercap",
	} {
		if err := hide(path); err != nil {
			return err
		}
	}
	return devices()
}

func there(path string) (fs.FileInfo, bool) {
	info, err := os.Stat(path)
	return info, err == nil
}

func readOnly(path string) error {
	if _, ok := there(path); !ok {
		return nil
	}
	err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, "")
	if err == nil {
		err = unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	}
	if err != nil {
		return fmt.Errorf("%s read-only: %w", path, err)
	}
	return nil
}

func hide(path string) error {
	info, ok := there(path)
	var err error
	switch {
	case !ok:
	case info.IsDir():
		err = unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY, "size=0k")
	default:
		err = unix.Mount("/dev/null", path, "", unix.MS_BIND, "")
	}
	if err != nil {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	return nil
}

// devices mounts a /dev with six nodes and separate devpts and shm file systems.
func devices() error {
	made := []error{unix.Mount("tmpfs", "/dev", "tmpfs", unix.MS_NOSUID|unix.MS_STRICTATIME, "mode=755,size=65536k")}
	old := unix.Umask(0)
	defer unix.Umask(old)
	for name, minor := range map[string]uint32{"null": 3, "zero": 5, "full": 7, "random": 8, "urandom": 9} {
		made = append(made, unix.Mknod("/dev/"+name, unix.S_IFCHR|0o666, int(unix.Mkdev(1, minor)))) //nolint:gosec // small
	}
	made = append(made,
		unix.Mknod("/dev/tty", unix.S_IFCHR|0o666, int(unix.Mkdev(5, 0))), //nolint:gosec // small
		os.Mkdir("/dev/pts", 0o755), os.Mkdir("/dev/shm", 0o755),
		unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"),
		unix.Mount("shm", "/dev/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=1777,size=65536k"),
		os.Symlink("pts/ptmx", "/dev/ptmx"), os.Symlink("/proc/self/fd", "/dev/fd"),
		os.Symlink("/proc/self/fd/0", "/dev/stdin"), os.Symlink("/proc/self/fd/1", "/dev/stdout"),
		os.Symlink("/proc/self/fd/2", "/dev/stderr"),
	)
	if err := errors.Join(made...); err != nil {
		return fmt.Errorf("/dev: %w", err)
	}
	return nil
}

// dropCapabilities keeps only the default capabilities of containers.
func dropCapabilities() error {
	var keep uint64
	for _, c := range []uint{
		unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FSETID, unix.CAP_FOWNER, unix.CAP_MKNOD, unix.CAP_NET_RAW,
		unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETFCAP, unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SYS_CHROOT,
		unix.CAP_KILL, unix.CAP_AUDIT_WRITE,
	} {
		keep |= 1 << c
	}
	for c := range uintptr(64) {
		if keep&(1<<c) == 0 {
			err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
			if errors.Is(err, unix.EINVAL) {
				break // there are no more
			}
			if err != nil {
				return err
			}
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	sets := [2]unix.CapUserData{
		{Effective: uint32(keep), Permitted: uint32(keep)}, //nolint:gosec // the lower half
		{Effective: uint32(keep >> 32), Permitted: uint32(keep >> 32)},
	}
	return unix.Capset(&header, &sets[0])
}

// withheld are the system calls that the profile of container engines denies without the capabilities above, according
// to its documentation.
var withheld = []uintptr{
	unix.SYS_ACCT, unix.SYS_ADD_KEY, unix.SYS_ADJTIMEX, unix.SYS_BPF, unix.SYS_CLOCK_ADJTIME, unix.SYS_CLOCK_SETTIME,
	unix.SYS_DELETE_MODULE, unix.SYS_FANOTIFY_INIT, unix.SYS_FINIT_MODULE, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT,
	unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_GET_MEMPOLICY, unix.SYS_INIT_MODULE, unix.SYS_IO_URING_ENTER,
	unix.SYS_IO_URING_REGISTER, unix.SYS_IO_URING_SETUP, unix.SYS_KCMP, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_KEXEC_LOAD,
	unix.SYS_KEYCTL, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_MBIND, unix.SYS_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_MOVE_MOUNT,
	unix.SYS_MOVE_PAGES, unix.SYS_NFSSERVCTL, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_OPEN_TREE, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_PIDFD_GETFD, unix.SYS_PIVOT_ROOT, unix.SYS_PROCESS_MADVISE, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD,
	unix.SYS_REBOOT, unix.SYS_REQUEST_KEY, unix.SYS_SET_MEMPOLICY, unix.SYS_SETDOMAINNAME, unix.SYS_SETHOSTNAME,
	unix.SYS_SETNS, unix.SYS_SETTIMEOFDAY, unix.SYS_SWAPOFF, unix.SYS_SWAPON, unix.SYS_SYSLOG, unix.SYS_UMOUNT2,
	unix.SYS_UNSHARE, unix.SYS_USERFAULTFD, unix.SYS_VHANGUP,
}

// filterAsEngines installs a seccomp filter that denies what the default profiles of container engines deny: the system
// calls above, new namespaces, clone3 (seccomp cannot read its flags), and AF_VSOCK and AF_ALG sockets.
func filterAsEngines() error {
	const (
		load, equal, anySet, answer = 0x20, 0x15, 0x45, 0x06
		number, argument            = 0, 16
		allow, refuse               = 0x7fff0000, 0x00050000
		namespaces                  = 0x7e020000
	)
	var code []unix.SockFilter
	add := func(op uint16, k uint32, onTrue, onFalse uint8) {
		code = append(code, unix.SockFilter{Code: op, K: k, Jt: onTrue, Jf: onFalse})
	}
	add(load, number, 0, 0)
	for _, nr := range withheld {
		add(equal, uint32(nr), 0, 1) //nolint:gosec // a small number
		add(answer, refuse|uint32(unix.EPERM), 0, 0)
	}
	add(equal, unix.SYS_CLONE3, 0, 1)
	add(answer, refuse|uint32(unix.ENOSYS), 0, 0)
	add(equal, unix.SYS_CLONE, 0, 4)
	add(load, argument, 0, 0)
	add(anySet, namespaces, 0, 1)
	add(answer, refuse|uint32(unix.EPERM), 0, 0)
	add(answer, allow, 0, 0)
	add(equal, unix.SYS_SOCKET, 0, 5)
	add(load, argument, 0, 0)
	add(equal, unix.AF_VSOCK, 2, 0)
	add(equal, unix.AF_ALG, 1, 0)
	add(answer, allow, 0, 0)
	add(answer, refuse|uint32(unix.EPERM), 0, 0)
	add(answer, allow, 0, 0)
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]} //nolint:gosec // a few hundred
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(code)
	if errno != 0 {
		return errno
	}
	return nil
}
