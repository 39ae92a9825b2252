package lockdown

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// proberName is the first argument of a probe process.
const proberName = "lockdown-prober"

// foreignerName is the first argument of a child that makes one call by the wrong number.
const foreignerName = "lockdown-foreigner"

func TestMain(m *testing.M) {
	if os.Args[0] == foreignerName {
		_ = call(0x40000000 + 39)
		fmt.Println("alive")
		os.Exit(0)
	}
	if os.Args[0] == proberName {
		probe()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// aim describes the surroundings of a probe.
type aim struct {
	Parent                            int
	Allowed, Secret, Outside, Scratch string
	Abstract, Named, TCP, Ruled       string
}

// probe tries each restricted operation and prints the results by name: "open" if the operation succeeded, or its
// error.
func probe() {
	var a aim
	if err := json.Unmarshal([]byte(os.Args[1]), &a); err != nil {
		panic(err)
	}
	outcomes := map[string]string{}
	for name, try := range probes {
		outcomes[name] = "open"
		if err := try(a); err != nil {
			outcomes[name] = err.Error()
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(outcomes)
}

// call makes a system call that should be refused before the kernel checks its arguments.
func call(nr uintptr, args ...uintptr) error {
	args = append(args, make([]uintptr, 6)...)
	if _, _, errno := unix.RawSyscall6(nr, args[0], args[1], args[2], args[3], args[4], args[5]); errno != 0 {
		return errno
	}
	return nil
}

func socket(family, kind, protocol int) error {
	fd, err := unix.Socket(family, kind, protocol)
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func readAll(path string) error { _, err := os.ReadFile(path); return err }
func create(path string) error  { return os.WriteFile(path, []byte("x"), 0o600) }
func dial(network, addr string) error {
	c, err := net.Dial(network, addr)
	if err == nil {
		_ = c.Close()
	}
	return err
}

var probes = map[string]func(aim) error{
	// Operations that must work.
	"read allowed":      func(a aim) error { return readAll(a.Allowed) },
	"write scratch":     func(a aim) error { return create(filepath.Join(a.Scratch, "new")) },
	"rename in scratch": renames,
	"cut in scratch": func(a aim) error {
		path := filepath.Join(a.Scratch, "cut")
		return errors.Join(create(path), os.Truncate(path, 0))
	},
	"run":              func(aim) error { return exec.Command("/bin/sh", "-c", "exit 0").Run() },
	"device":           func(aim) error { return create(os.DevNull) },
	"signal own child": signalsChild,
	"goroutines":       func(aim) error { _ = runtime.NumGoroutine(); go func() {}(); return nil },
	"unix socket pair": func(aim) error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err },
	"cpuinfo":          func(aim) error { return readAll("/proc/cpuinfo") },
	"own limits":       func(aim) error { var l unix.Rlimit; return unix.Getrlimit(unix.RLIMIT_NOFILE, &l) },
	// Files.
	"read secret":       func(a aim) error { return readAll(a.Secret) },
	"read shadow":       func(aim) error { return readAll("/etc/shadow") },
	"list root":         func(aim) error { _, err := os.ReadDir("/"); return err },
	"write allowed":     func(a aim) error { f, err := os.OpenFile(a.Allowed, os.O_WRONLY, 0); _ = f.Close(); return err },
	"cut allowed":       func(a aim) error { return unix.Truncate(a.Allowed, 0) },
	"remove allowed":    func(a aim) error { return os.Remove(a.Allowed) },
	"write outside":     func(a aim) error { return create(filepath.Join(a.Outside, "left")) },
	"write /tmp":        func(aim) error { return leaveFile("/tmp") },
	"write /dev/shm":    func(aim) error { return leaveFile("/dev/shm") },
	"link secret":       func(a aim) error { return os.Link(a.Secret, filepath.Join(a.Scratch, "link")) },
	"through a symlink": throughSymlink,
	"another device":    func(aim) error { f, err := os.Open("/dev/kmsg"); _ = f.Close(); return err },
	"kernel settings": func(aim) error {
		f, err := os.OpenFile("/proc/sys/kernel/core_pattern", os.O_WRONLY, 0)
		_ = f.Close()
		return err
	},
	// Other processes.
	"parent environ": func(a aim) error { return readAll(fmt.Sprintf("/proc/%d/environ", a.Parent)) },
	"parent cmdline": func(a aim) error { return readAll(fmt.Sprintf("/proc/%d/cmdline", a.Parent)) },
	"parent root":    func(a aim) error { return readAll(fmt.Sprintf("/proc/%d/root%s", a.Parent, a.Secret)) },
	"parent memory": func(a aim) error {
		f, err := os.Open(fmt.Sprintf("/proc/%d/mem", a.Parent))
		_ = f.Close()
		return err
	},
	"parent ptrace":      func(a aim) error { return call(unix.SYS_PTRACE, 0x4206, uintptr(a.Parent)) }, // seize
	"parent vm_readv":    func(a aim) error { return call(unix.SYS_PROCESS_VM_READV, uintptr(a.Parent)) },
	"parent descriptors": stealDescriptor,
	"parent limits":      func(a aim) error { return call(unix.SYS_PRLIMIT64, uintptr(a.Parent), unix.RLIMIT_NOFILE) },
	"parent signal":      func(a aim) error { return unix.Kill(a.Parent, 0) },
	"abstract socket":    func(a aim) error { return dial("unix", a.Abstract) },
	"named socket":       func(a aim) error { return dial("unix", a.Named) },
	// The kernel.
	"mount":          func(a aim) error { return unix.Mount("none", a.Scratch, "tmpfs", 0, "") },
	"user namespace": func(aim) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	// EINVAL without a signal if it got there
	"cloned namespace": func(aim) error { return call(unix.SYS_CLONE, unix.CLONE_NEWUSER) },
	"clone3":           func(aim) error { return call(unix.SYS_CLONE3) },
	"bpf":              func(aim) error { return call(unix.SYS_BPF, 999) },
	"perf":             func(aim) error { return call(unix.SYS_PERF_EVENT_OPEN) },
	"io_uring":         func(aim) error { return call(unix.SYS_IO_URING_SETUP, 1) },
	"keyctl":           func(aim) error { return call(unix.SYS_KEYCTL, 0, ^uintptr(2)) },
	"userfaultfd":      func(aim) error { return call(unix.SYS_USERFAULTFD, 1) },
	"open by handle":   func(aim) error { return call(unix.SYS_OPEN_BY_HANDLE_AT) },
	"terminal input":   func(aim) error { return call(unix.SYS_IOCTL, 0, ttyInput) },
	"x32":              foreignCall,
	"listen":           func(aim) error { return call(unix.SYS_LISTEN, ^uintptr(0)) },
	// The network.
	"tcp":   func(a aim) error { return dial("tcp", a.TCP) },
	"ruled": func(a aim) error { return dial("tcp", a.Ruled) },
	"fast open": func(a aim) error {
		to, err := net.ResolveTCPAddr("tcp", a.TCP)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, &unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())})
	},
	"mptcp":  func(aim) error { return socket(unix.AF_INET, unix.SOCK_STREAM, unix.IPPROTO_MPTCP) },
	"udp":    func(aim) error { return socket(unix.AF_INET, unix.SOCK_DGRAM, 0) },
	"tcp6":   func(aim) error { return socket(unix.AF_INET6, unix.SOCK_STREAM, 0) },
	"raw":    func(aim) error { return socket(unix.AF_INET, unix.SOCK_RAW, 1) },
	"packet": func(aim) error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) },
	"vsock":  func(aim) error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0) },
	"alg":    func(aim) error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) },
}

// leaveFile creates a file where the next user of the folder would find it, and removes it again.
func leaveFile(dir string) error {
	path := filepath.Join(dir, fmt.Sprintf("left-%d", os.Getpid()))
	defer os.Remove(path)
	return create(path)
}

func renames(a aim) error {
	in := func(name string) string { return filepath.Join(a.Scratch, name) }
	return errors.Join(create(in("a")), os.Rename(in("a"), in("b")), os.Mkdir(in("d"), 0o700), os.Symlink("b", in("s")),
		os.Remove(in("b")))
}

func signalsChild(aim) error {
	c := exec.Command("/bin/sleep", "60")
	if err := c.Start(); err != nil {
		return err
	}
	err := c.Process.Kill()
	_ = c.Wait()
	return err
}

func throughSymlink(a aim) error {
	link := filepath.Join(a.Scratch, "out")
	return errors.Join(os.Symlink(a.Secret, link), readAll(link))
}

func stealDescriptor(a aim) error {
	fd, err := unix.PidfdOpen(a.Parent, 0)
	if err != nil {
		return err
	}
	return call(unix.SYS_PIDFD_GETFD, uintptr(fd))
}

// foreignCall makes an x32 system call on amd64 in a child, which the filter must kill; other architectures have no
// such calls.
func foreignCall(aim) error {
	if runtime.GOARCH != "amd64" {
		return errors.New("none")
	}
	c := exec.Command("/proc/self/exe")
	c.Args = []string{foreignerName}
	out, err := c.CombinedOutput()
	if len(out) > 0 {
		return nil
	}
	return err
}

// behind runs a probe under a lockdown and returns its output.
func behind(t *testing.T, change func(*Rules)) (map[string]string, Rules) {
	t.Helper()
	offered := Offered()
	if offered.Landlock == 0 || !offered.Filter {
		t.Skipf("this kernel offers %+v to this process", offered)
	}
	dir := t.TempDir()
	a := aim{
		Parent: os.Getpid(), Allowed: filepath.Join(dir, "code", "allowed"), Secret: filepath.Join(
			dir, "secret",
		), Outside: filepath.Join(dir, "outside"),
		Scratch: filepath.Join(dir, "scratch"), Abstract: "@lockdown-" + filepath.Base(filepath.Dir(dir)),
		Named: filepath.Join(dir, "outside", "s"),
	}
	for _, d := range []string{"code", "outside", "scratch"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(create(a.Allowed), create(a.Secret)); err != nil {
		t.Fatal(err)
	}
	listen := func(network, addr string) net.Listener {
		l, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	listen("unix", a.Abstract)
	listen("unix", a.Named)
	a.TCP = listen("tcp", "127.0.0.1:0").Addr().String()
	a.Ruled = listen("tcp", "127.0.0.1:0").Addr().String()

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	rules := Rules{
		Read: []string{
			"/usr", "/lib", "/lib64", "/bin", "/proc/cpuinfo", exe, filepath.Dir(a.Allowed), filepath.Join(dir, "missing"),
		},
		Write: []string{a.Scratch}, Devices: []string{os.DevNull}, Landlock: offered.Landlock, Filter: true,
	}
	if change != nil {
		change(&rules)
	}
	if len(rules.Ports) > 0 {
		_, port, _ := net.SplitHostPort(a.Ruled)
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			t.Fatal(err)
		}
		rules.Ports = []uint16{uint16(n)}
	}
	encoded, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var pid int
	OnOwnThread(func() {
		if err = Raise(rules); err == nil {
			pid, err = syscall.ForkExec(exe, []string{proberName, string(encoded)}, &syscall.ProcAttr{
				Dir: a.Scratch, Env: []string{}, Files: []uintptr{0, in.Fd(), 2},
			})
		}
	})
	_ = in.Close()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(out)
	var status syscall.WaitStatus
	if _, werr := syscall.Wait4(pid, &status, 0, nil); err != nil || werr != nil || status != 0 {
		t.Fatalf("%v, %v, status %#x", err, werr, status)
	}
	outcomes := map[string]string{}
	if err := json.Unmarshal(text, &outcomes); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return outcomes, rules
}

var mustWork = []string{
	"read allowed", "write scratch", "rename in scratch", "run", "device", "signal own child", "goroutines",
	"unix socket pair", "cpuinfo", "own limits",
}

// want fails the test unless exactly these are open.
func want(t *testing.T, outcomes map[string]string, open ...string) {
	t.Helper()
	for name, what := range outcomes {
		if (what == "open") != slices.Contains(open, name) {
			t.Errorf("%s: %s", name, what)
		}
	}
}

// leftOpen lists the operations that rules of an ABI cannot deny.
func leftOpen(r Rules) []string {
	var open []string
	if r.HoldsTruncate() {
		open = append(open, "cut in scratch") // else no file can be cut by its name, so that none outside is
	}
	if !r.HoldsSignals() {
		open = append(open, "parent signal", "abstract socket")
	}
	if !r.HoldsNamedSockets() {
		open = append(open, "named socket")
	}
	return open
}

func TestNothingEscapesTheLockdown(t *testing.T) {
	outcomes, rules := behind(t, nil)
	want(t, outcomes, append(leftOpen(rules), mustWork...)...)
	for _, name := range []string{
		"parent ptrace", "parent vm_readv", "parent descriptors", "parent limits", "mount", "user namespace",
		"cloned namespace", "bpf",
		"perf", "io_uring", "keyctl", "userfaultfd", "open by handle", "terminal input", "listen",
	} {
		if outcomes[name] != unix.EPERM.Error() { // another error would be what the call itself says to such arguments
			t.Errorf("%s: %s", name, outcomes[name])
		}
	}
	if !strings.Contains(outcomes["clone3"], "not implemented") {
		t.Errorf("clone3: %s: libraries would not fall back", outcomes["clone3"])
	}
}

func TestInetIsTheNetworkAndNoMore(t *testing.T) {
	outcomes, rules := behind(t, func(r *Rules) { r.Inet = true })
	open := append(append(leftOpen(rules), mustWork...), "tcp", "ruled", "udp", "tcp6")
	for _, may := range []string{"fast open", "mptcp"} { // which a kernel may be without
		if outcomes[may] == "open" {
			open = append(open, may)
		}
	}
	want(t, outcomes, open...)
}

func TestOnlyTheListedPortsAreReachable(t *testing.T) {
	outcomes, rules := behind(t, func(r *Rules) {
		if !(Kernel{Landlock: r.Landlock, Filter: true}).HoldsPorts() {
			t.Skipf("this kernel has ABI %d", r.Landlock)
		}
		r.Inet, r.Ports = true, []uint16{1}
	})
	want(t, outcomes, append(append(leftOpen(rules), mustWork...), "ruled", "tcp6")...)
}

// Rules that cannot be kept are no rules.
func TestPortsAreNotLeftOpenForWantOfRules(t *testing.T) {
	for _, r := range []Rules{{Ports: []uint16{1}, Filter: true, Landlock: 3}, {Ports: []uint16{1}, Landlock: 4}} {
		var err error
		OnOwnThread(func() { err = Raise(r) })
		if err == nil {
			t.Errorf("%+v: raised", r)
		}
	}
}

// Older kernels deny less, and the missing protections are known in advance.
func TestOlderABIsEnforceTheirRules(t *testing.T) {
	for _, abi := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(abi), func(t *testing.T) {
			outcomes, rules := behind(t, func(r *Rules) {
				if r.Landlock < abi {
					t.Skipf("this kernel has ABI %d", r.Landlock)
				}
				r.Landlock = abi
			})
			want(t, outcomes, append(leftOpen(rules), mustWork...)...)
		})
	}
}

// Without Landlock the system call filter still works.
func TestFilterHasNoDependencies(t *testing.T) {
	outcomes, _ := behind(t, func(r *Rules) { r.Landlock = 0 })
	for _, name := range []string{
		"mount", "user namespace", "cloned namespace", "bpf", "parent ptrace", "parent vm_readv", "parent descriptors", "tcp",
		"raw",
	} {
		if outcomes[name] == "open" {
			t.Errorf("%s: open", name)
		}
	}
	if outcomes["read secret"] != "open" {
		t.Errorf(
			"read secret: %s: something else than Landlock held it, so the other tests show nothing", outcomes["read secret"],
		)
	}
}

// Restricting one thread does not restrict the other threads of the process.
func TestTheRestOfTheProcessStaysFree(t *testing.T) {
	behind(t, nil)
	for range 20 {
		if err := create(filepath.Join(t.TempDir(), "file")); err != nil {
			t.Fatal(err)
		}
	}
	var at int
	OnOwnThread(func() { at = unix.Gettid() })
	if at == os.Getpid() {
		t.Error("on the first thread")
	}
}
