package supervisor

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/sandbox/internal/lockdown"
)

// closeInherited closes descriptors above keep that were inherited from the worker. Descriptors of this process are
// marked close-on-exec; inherited ones are not.
func closeInherited(keep int) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil { // without /proc, mark all as close-on-exec: at least the executor does not inherit them
		_ = unix.CloseRange(uint(keep+1), ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= keep {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// becomeSubreaper makes every orphan among the descendants a child of this process.
func becomeSubreaper() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become subreaper: %w", err)
	}
	return nil
}

// dropPrivileges drops all capabilities of this thread, and so of the executor, prevents it from gaining privileges,
// and switches it to another user.
func dropPrivileges(user int) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		// Fails if this process lacks CAP_SETPCAP; then it has no capabilities to pass on.
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}
	_ = unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
	if user > 0 {
		if err := switchUser(user); err != nil {
			return fmt.Errorf("become user %d: %w", user, err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// switchUser switches only this thread to a user, whose only group has the same number.
func switchUser(user int) error {
	id := uintptr(user)
	for _, call := range [][4]uintptr{
		{unix.SYS_SETGROUPS}, {unix.SYS_SETRESGID, id, id, id}, {unix.SYS_SETRESUID, id, id, id},
	} {
		if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
			return errno
		}
	}
	return nil
}

// asUser runs fn on this goroutine with a user's file system UID and GID. The kernel shows memory maps of a process to
// its user; root needs CAP_SYS_PTRACE, which containers lack.
func asUser(user int, fn func()) {
	if user <= 0 {
		fn()
		return
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, id := range []int{user, 0} {
		// These calls return the previous ID and no error. If they fail, fn can read fewer files.
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, uintptr(id), 0, 0)
		_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(id), 0, 0)
		if id == user {
			fn()
		}
	}
}

// maxThreads is RLIMIT_NPROC, which limits the threads of a user.
const maxThreads = unix.RLIMIT_NPROC

// killUser kills all processes of an executor's separate user in one system call, so that none can fork meanwhile, as
// they could while they are killed one by one.
func killUser(user int) {
	if user <= 0 {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		if switchUser(user) == nil {
			_ = syscall.Kill(-1, syscall.SIGKILL)
		}
	}()
	<-done
}

// childAttr makes the executor a session leader that does not outlive this process.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}

// setOOMScoreAdj sets the oom_score_adj of a process, from 0 (like other processes) to 1000 (killed first).
func setOOMScoreAdj(pid, score int) {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(score)), 0)
}

func dup(from, to int) error { return unix.Dup3(from, to, 0) }

// tasks returns the number of processes and threads on this machine.
func tasks() int {
	var info unix.Sysinfo_t
	_ = unix.Sysinfo(&info)
	return int(info.Procs)
}

// hasChildren reports whether the kernel provides /proc/PID/task/TID/children.
var hasChildren = func() bool {
	_, err := os.Stat("/proc/thread-self/children")
	return err == nil
}()

// descendants returns the live processes under this process, including the executor. It stops after it has found more
// than most; 0: no limit.
func descendants(_, most int) []int { return below(os.Getpid(), most) }

// End kills a supervisor that does not react, and all its descendants. It kills the descendants first, while they still
// have this ancestor, and repeats the search for processes that they create meanwhile.
func End(supervisor int) {
	for range 10 {
		for _, pid := range below(supervisor, 0) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(5 * time.Millisecond) // a stopped supervisor reaps nothing: killed processes stay in the list
	}
	_ = syscall.Kill(supervisor, syscall.SIGKILL)
}

// KillOrphans kills the descendants of a killed supervisor, which have been reparented: processes of the executor's
// separate user, and processes whose HOME or current directory is the scratch folder. It repeats the search until it
// finds none, at most ten times.
func KillOrphans(scratch string, user int) {
	for range 10 {
		left := false
		for pid := range processes() {
			if pid != os.Getpid() && belongs(pid, scratch, user) {
				left = true
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		if !left {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// EndAll ends the processes that a dead worker left, by the parent of its scratch folders. Supervisors end themselves
// when their worker ends, but one that has been stopped since needs SIGCONT. EndAll also kills the executors of
// supervisors that were killed.
func EndAll(dir string) {
	for try := range 10 {
		left := false
		for pid := range processes() {
			switch supervises := isSupervisor(pid, dir); {
			case supervises && try < 8:
				_ = syscall.Kill(pid, syscall.SIGCONT)
			case supervises:
				End(pid)
			// a process with such a current directory may be a user's shell
			case pid != os.Getpid() && hasHome(pid, dir+"/"):
				_ = syscall.Kill(pid, syscall.SIGKILL)
			default:
				continue
			}
			left = true
		}
		if !left {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// isSupervisor reports whether a process is a supervisor of the worker with this folder.
func isSupervisor(pid int, dir string) bool {
	args, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && string(args) == Name+"\x00"+dir+"\x00"
}

// ReapOrphans reaps orphans of killed supervisors if this process is PID 1 of a container. Orphans become children of
// PID 1 and remain zombies until they are reaped. Children of the worker are reaped at once by the code that started
// them, so a zombie that is older than a second is an orphan.
func ReapOrphans() {
	if os.Getpid() != 1 {
		return
	}
	before := deadChildren()
	if len(before) == 0 {
		return
	}
	time.Sleep(time.Second)
	for _, pid := range deadChildren() {
		if slices.Contains(before, pid) {
			_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		}
	}
}

// deadChildren returns the children of this process that have ended and were not waited for.
func deadChildren() (dead []int) {
	for pid, p := range processes() {
		if p.parent == os.Getpid() && p.state == "Z" {
			dead = append(dead, pid)
		}
	}
	return dead
}

// belongs reports whether a live process was part of an executor.
func belongs(pid int, scratch string, user int) bool {
	dir := fmt.Sprintf("/proc/%d", pid)
	if info, err := os.Stat(dir); err != nil {
		return false
	} else if st, ok := info.Sys().(*syscall.Stat_t); ok && user > 0 && int(st.Uid) == user {
		return true
	}
	if cwd, err := os.Readlink(dir + "/cwd"); err == nil && lockdown.Below(cwd, scratch) {
		return true
	}
	return hasHome(pid, scratch+"\x00")
}

// hasHome reports whether the HOME of a process begins with a prefix.
func hasHome(pid int, with string) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && bytes.Contains(append([]byte{0}, environ...), []byte("\x00HOME="+with))
}

// below returns the descendants of a process, including zombies. It stops after it has found more than most; 0: no
// limit.
func below(parent, most int) []int {
	if !hasChildren {
		return belowByParent(parent)
	}
	var all []int
	next := childrenOf(nil, parent)
	for len(next) > 0 {
		all = append(all, next...)
		var deeper []int
		for _, pid := range next {
			if most > 0 && len(all)+len(deeper) > most {
				return append(all, deeper...)
			}
			deeper = childrenOf(deeper, pid)
		}
		next = deeper
	}
	return all
}

func childrenOf(dst []int, pid int) []int {
	base := fmt.Sprintf("/proc/%d/task/", pid)
	dir, err := os.Open(base)
	if err != nil {
		return dst
	}
	threads, _ := dir.Readdirnames(-1)
	_ = dir.Close()
	for _, tid := range threads {
		list, err := os.ReadFile(base + tid + "/children")
		if err != nil {
			continue
		}
		for _, f := range bytes.Fields(list) {
			if child, err := strconv.Atoi(string(f)); err == nil {
				dst = append(dst, child)
			}
		}
	}
	return dst
}

// process holds the fields of /proc/PID/stat that are readable by all users.
type process struct {
	state  string // T: stopped; Z: zombie
	parent int
}

// processes returns all processes of the machine or container by PID.
func processes() map[int]process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := map[int]process{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, ok := readStat(pid); ok {
			all[pid] = p
		}
	}
	return all
}

// readStat reads /proc/PID/stat of one process. It returns false if the process does not exist.
func readStat(pid int) (process, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	// The name in parentheses may contain any characters; state and parent follow it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 {
		return process{}, false
	}
	parent, err := strconv.Atoi(fields[1])
	return process{fields[0], parent}, err == nil
}

// Stopped reports whether a process was stopped by a signal.
func Stopped(pid int) bool {
	p, ok := readStat(pid)
	return ok && p.state == "T"
}

// belowByParent finds descendants by the parent of every process.
func belowByParent(parent int) []int {
	children := map[int][]int{}
	for pid, p := range processes() {
		children[p.parent] = append(children[p.parent], pid)
	}
	var all []int
	next := children[parent]
	for len(next) > 0 {
		all = append(all, next...)
		var deeper []int
		for _, pid := range next {
			deeper = append(deeper, children[pid]...)
		}
		next = deeper
	}
	return all
}

// usageOf returns the resources of a process that are limited: resident memory, page tables, which are never shared and
// can be larger, and threads.
func usageOf(pid int) (u usage) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u
	}
	for line := range bytes.Lines(status) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		number, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" ")) // the unit kB follows
		switch string(name) {
		case "VmRSS":
			u.resident, _ = strconv.ParseInt(string(number), 10, 64)
		case "VmPTE":
			u.tables, _ = strconv.ParseInt(string(number), 10, 64)
		case "Threads":
			u.threads, _ = strconv.Atoi(string(number))
		}
	}
	u.resident, u.tables = u.resident<<10, u.tables<<10
	return u
}

// proportionalBytes returns the proportional set size of a process: a page that n processes share counts with 1/n of
// its size. It is 0 for a process that has ended.
func proportionalBytes(pid int) (int64, bool) {
	rollup, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
	}
	for line := range bytes.Lines(rollup) {
		if rest, ok := bytes.CutPrefix(line, []byte("Pss:")); ok {
			fields := bytes.Fields(rest) // the number and its unit, kB
			if len(fields) == 0 {
				return 0, false
			}
			kilobytes, err := strconv.ParseInt(string(fields[0]), 10, 64)
			return kilobytes << 10, err == nil
		}
	}
	return 0, false
}

// unlinkedFileSizes returns the sizes of open files without a name, in memory and on disk. A walk of the folder does
// not find them.
func unlinkedFileSizes(pids []int) (memory, disk int64) {
	type file struct{ dev, ino uint64 }
	seen := map[file]bool{}
	for _, pid := range pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		open, err := os.Open(dir)
		if err != nil {
			continue // the process has ended
		}
		names, _ := open.Readdirnames(-1)
		_ = open.Close()
		for _, name := range names {
			var st syscall.Stat_t
			path := dir + "/" + name
			if syscall.Stat(path, &st) != nil || st.Nlink > 0 || st.Mode&syscall.S_IFMT != syscall.S_IFREG ||
				seen[file{st.Dev, st.Ino}] {
				continue
			}
			seen[file{st.Dev, st.Ino}] = true
			if link, err := os.Readlink(path); err == nil && strings.HasPrefix(link, "/memfd:") {
				memory += st.Blocks * 512
			} else {
				disk += st.Blocks * 512
			}
		}
	}
	return memory, disk
}

// allocated returns the size of a file on disk, which is smaller than its length for sparse files.
func allocated(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return info.Size()
}
