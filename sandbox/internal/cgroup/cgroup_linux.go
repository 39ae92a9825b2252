package cgroup

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sojourn-run/sojourn/internal/filelock"
)

// prefix is the prefix of the folders in which workers create their groups.
const prefix = "sojourn-"

// controllers are the cgroup controllers that limit executors.
var controllers = []string{"memory", "pids", "cpu"}

// These are the weights by which workers and executors share the processors when all are busy.
const (
	workerWeight   = 1000
	executorWeight = 50
	executorShares = 256 // the same for version 1, where a worker has 1024
	period         = 100_000
)

// Tree is the part of the cgroup hierarchy in which this process creates groups.
type Tree struct {
	name    string
	parts   map[string]*Part // by controller; Dir is the folder of this worker
	dirs    []string         // folders of this worker, without duplicates
	locks   []*os.File       // mark the folders as in use
	users   int
	moved   string // previous group of this process; empty if it was not moved
	enabled bool   // this pool enabled the controllers for moved's groups
}

// tree is the tree of this process. It is shared by all pools, because a cgroup contains whole processes.
var tree struct {
	sync.Mutex
	*Tree
}

// Open creates a control group to find out whether this process may create groups. Each Open needs a [Tree.Close]. The
// error states why no resource can be limited.
func Open() (*Tree, error) {
	tree.Lock()
	defer tree.Unlock()
	if tree.Tree == nil {
		t, err := openTree()
		if err != nil {
			return nil, err
		}
		tree.Tree = t
	}
	tree.users++
	return tree.Tree, nil
}

// Close removes the groups when the last user of the tree closes it.
func (t *Tree) Close() {
	if t == nil {
		return
	}
	tree.Lock()
	defer tree.Unlock()
	if t.users--; t.users == 0 {
		tree.Tree = nil
		t.undo()
	}
}

func openTree() (_ *Tree, err error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	homes, two := places(string(own), string(mounts))
	t := &Tree{name: prefix + rand.Text()[:8], parts: map[string]*Part{}}
	defer func() {
		if err != nil {
			t.undo()
		}
	}()
	var why []string
	if two != "" && len(offered(two)) > 0 {
		if err := t.addV2(two); err != nil {
			why = append(why, err.Error())
		}
	}
	for _, c := range controllers {
		if home := homes[c]; home != "" && t.parts[c] == nil {
			if err := t.addV1(c, home); err != nil {
				why = append(why, err.Error())
			}
		}
	}
	switch {
	case len(t.parts) > 0:
		return t, nil
	case len(why) == 0:
		return nil, errors.New("no mounted control group has a memory, pids or cpu controller")
	}
	return nil, errors.New(strings.Join(slices.Compact(why), "; "))
}

// places returns the folders of the cgroups of this process: of v1 by controller, and of v2.
func places(own, mounts string) (homes map[string]string, two string) {
	paths := map[string]string{} // by controller; version 2 has an empty name
	for line := range strings.Lines(own) {
		if f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(f) == 3 {
			for _, c := range strings.Split(f[1], ",") {
				paths[c] = f[2]
			}
		}
	}
	homes = map[string]string{}
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(line, " - ")
		f, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(super) < 3 {
			continue
		}
		root, at := unescaped(f[3]), unescaped(f[4])
		within := func(path string) string {
			if strings.HasPrefix(path, "/..") {
				return "" // the group is outside of this process's cgroup namespace
			}
			if rel, err := filepath.Rel(root, path); err == nil && filepath.IsLocal(rel) {
				return filepath.Join(at, rel)
			}
			return "" // this mount shows another part of the hierarchy
		}
		switch super[0] {
		case "cgroup2":
			if path, there := paths[""]; there && two == "" {
				two = within(path)
			}
		case "cgroup":
			for _, c := range strings.Split(super[2], ",") {
				if path, there := paths[c]; there && homes[c] == "" {
					homes[c] = within(path)
				}
			}
		}
	}
	return homes, two
}

// unescaped returns a path without the escapes that mountinfo uses.
func unescaped(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// offered returns the subset of controllers that a cgroup v2 folder offers.
func offered(dir string) (have []string) {
	text, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	for _, c := range strings.Fields(string(text)) {
		if slices.Contains(controllers, c) {
			have = append(have, c)
		}
	}
	return have
}

// addV2 creates the folders of cgroup v2. A cgroup that contains processes cannot enable controllers for its children,
// so this process is first moved into a child.
func (t *Tree) addV2(home string) error {
	if os.Geteuid() == 0 { // root can write to every group, so write access does not show that the group is delegated
		if _, err := os.Stat("/run/systemd/system"); err == nil && !delegated(home) {
			return fmt.Errorf("%s belongs to systemd, which does not delegate it; set Delegate=yes", home)
		}
	}
	sweep(home)
	dir := filepath.Join(home, t.name)
	if err := t.folder(dir); err != nil {
		return err
	}
	worker := filepath.Join(dir, "worker")
	if err := os.Mkdir(worker, 0o755); err != nil {
		return err
	}
	have := offered(home)
	active, _ := os.ReadFile(filepath.Join(home, "cgroup.subtree_control"))
	missing := slices.DeleteFunc(slices.Clone(have), func(c string) bool {
		return slices.Contains(strings.Fields(string(active)), c)
	})
	if err := write(worker, "cgroup.procs", "0"); err != nil {
		return err
	}
	t.moved = home
	if len(missing) > 0 {
		t.enabled = true
		if err := enable(home, missing); err != nil {
			if errors.Is(err, syscall.EBUSY) {
				err = fmt.Errorf("%s has other processes in it: %s", home, processNames(home))
			}
			return err
		}
	}
	if err := enable(dir, have); err != nil {
		return err
	}
	_ = write(worker, "cpu.weight", strconv.Itoa(workerWeight)) // exists if the controller cpu is enabled
	for _, c := range have {
		t.parts[c] = &Part{By: Two, Dir: dir, Parent: worker}
	}
	return nil
}

// delegated reports whether systemd delegates a cgroup to the processes in it.
func delegated(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		var value [8]byte
		if n, err := unix.Getxattr(dir, name, value[:]); err == nil && string(value[:n]) == "1" {
			return true
		}
	}
	return false
}

// processNames returns the names of up to three processes in a group, for error messages.
func processNames(dir string) string {
	var names []string
	for _, pid := range pids(dir) {
		comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		names = append(names, fmt.Sprintf("%d (%s)", pid, bytes.TrimSpace(comm)))
		if len(names) == 3 {
			break
		}
	}
	return strings.Join(names, ", ")
}

func enable(dir string, have []string) error {
	return write(dir, "cgroup.subtree_control", "+"+strings.Join(have, " +"))
}

// addV1 creates the folder of a controller of cgroup v1.
func (t *Tree) addV1(controller, home string) error {
	dir := filepath.Join(home, t.name)
	if !slices.Contains(t.dirs, dir) { // several controllers may share a folder
		sweep(home)
		if err := t.folder(dir); err != nil {
			return err
		}
	}
	// With use_hierarchy a group also counts the memory of its descendants.
	_ = write(dir, "memory.use_hierarchy", "1")
	t.parts[controller] = &Part{By: One, Dir: dir, Parent: home}
	return nil
}

// folder creates a group's folder and locks it while this process lives.
func (t *Tree) folder(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	t.dirs = append(t.dirs, dir)
	lock, err := filelock.TakeFolder(dir)
	if err != nil {
		return err
	}
	t.locks = append(t.locks, lock)
	return nil
}

// sweep kills the processes in control groups of workers that ended, and removes these groups.
func sweep(home string) {
	all, _ := filepath.Glob(filepath.Join(home, prefix+"*"))
	for _, dir := range all {
		info, err := os.Stat(dir)
		// A group that is as new as this may have been created and not locked yet.
		if err != nil || time.Since(info.ModTime()) < time.Second {
			continue
		}
		if lock, err := filelock.TakeFolder(dir); err == nil {
			remove(dir)
			_ = lock.Close()
		}
	}
}

// undo undoes the changes of Open.
func (t *Tree) undo() {
	if t.moved != "" {
		for _, dir := range t.dirs {
			_ = write(dir, "cgroup.subtree_control", "-"+strings.Join(offered(dir), " -")) // version 1 has no such file
		}
		if t.enabled { // the kernel refuses this while another worker has groups there
			_ = write(t.moved, "cgroup.subtree_control", "-"+strings.Join(offered(t.moved), " -"))
		}
		_ = write(t.moved, "cgroup.procs", "0")
	}
	for _, dir := range t.dirs {
		remove(dir)
	}
	for _, lock := range t.locks {
		_ = lock.Close()
	}
}

// Holds returns the mechanisms that limit memory, processes and processor time; empty for resources without a limit.
func (t *Tree) Holds() (memory, processes, cpu string) {
	if t == nil {
		return "", "", ""
	}
	return t.parts["memory"].by(), t.parts["pids"].by(), t.parts["cpu"].by()
}

// ProcsFile returns the cgroup.procs file of the group that the worker is in, or "" if there is none.
func (t *Tree) ProcsFile() string {
	if t == nil {
		return ""
	}
	for _, c := range controllers {
		if p := t.parts[c]; p != nil {
			return filepath.Join(p.Parent, "cgroup.procs")
		}
	}
	return ""
}

// Make creates a group with limits.
func (t *Tree) Make(name string, l Limits) (*Group, error) {
	if t == nil {
		return nil, nil
	}
	part := func(controller string) *Part {
		p := t.parts[controller]
		if p == nil {
			return nil
		}
		return &Part{By: p.By, Dir: filepath.Join(p.Dir, name), Parent: p.Parent}
	}
	g := &Group{Memory: part("memory"), Processes: part("pids"), CPU: part("cpu")}
	for _, p := range g.parts() {
		if err := os.Mkdir(p.Dir, 0o755); err != nil {
			g.Remove()
			return nil, err
		}
	}
	if err := g.limit(l); err != nil {
		g.Remove()
		return nil, err
	}
	return g, nil
}

// limit sets the limits of the group. It ignores limits that the kernel does not support.
func (g *Group) limit(l Limits) error {
	var failed []error
	set := func(p *Part, file, value string) { failed = append(failed, write(p.Dir, file, value)) }
	if p := g.Memory; p != nil && l.Memory > 0 {
		bytes := strconv.FormatInt(l.Memory, 10)
		if p.By == Two {
			set(p, "memory.max", bytes)
			_ = write(p.Dir, "memory.swap.max", "0")  // otherwise swap would make the limit ineffective
			_ = write(p.Dir, "memory.oom.group", "1") // the processes share the memory, so all of them end
		} else {
			set(p, "memory.limit_in_bytes", bytes)
			_ = write(p.Dir, "memory.memsw.limit_in_bytes", bytes)
		}
	}
	if p := g.Processes; p != nil && l.Threads > 0 {
		set(p, "pids.max", strconv.Itoa(l.Threads))
	}
	if p := g.CPU; p != nil {
		_ = write(p.Dir, "cpu.weight", strconv.Itoa(executorWeight)) // version 2
		_ = write(p.Dir, "cpu.shares", strconv.Itoa(executorShares)) // version 1
		if l.Processors > 0 {
			failed = append(failed, g.SetProcessors(l.Processors))
		}
	}
	return errors.Join(failed...)
}

// SetProcessors sets how many processors may work for the group at once; 0 for all.
func (g *Group) SetProcessors(processors float64) error {
	if g == nil || g.CPU == nil {
		return nil
	}
	quota := strconv.FormatInt(int64(math.Ceil(processors*period)), 10)
	if g.CPU.By == Two {
		if processors == 0 {
			quota = "max"
		}
		return write(g.CPU.Dir, "cpu.max", quota+" "+strconv.Itoa(period))
	}
	if processors == 0 {
		quota = "-1"
	}
	_ = write(g.CPU.Dir, "cpu.cfs_period_us", strconv.Itoa(period))
	return write(g.CPU.Dir, "cpu.cfs_quota_us", quota)
}

// Second returns the folder of the cgroup v2 group in which a process can be started, or "".
func (g *Group) Second() string {
	for _, p := range g.parts() {
		if p.By == Two {
			return p.Dir
		}
	}
	return ""
}

// Enter moves this thread into the group, so that the processes it starts belong to the group. In cgroup v1 only the
// thread moves, and it stays there. In cgroup v2 the whole process moves, unless it was started in the group, and
// [Group.Return] moves it back.
func (g *Group) Enter() error {
	for _, p := range g.parts() {
		var err error
		switch {
		case p.By == One:
			err = write(p.Dir, "tasks", "0")
		case !slices.Contains(pids(p.Dir), os.Getpid()):
			err = write(p.Dir, "cgroup.procs", "0")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Return moves this process out of a cgroup v2 group. Its children stay in the group.
func (g *Group) Return() error {
	for _, p := range g.parts() {
		if p.By == Two {
			if err := write(p.Parent, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
				return err
			}
		}
	}
	return nil
}

// Kill kills all that is in the group but this process.
func (g *Group) Kill() {
	for _, p := range g.parts() {
		kill(p.Dir)
	}
}

// kill kills all processes in a group and its descendants. In cgroup v1, and in v2 before Linux 5.14, it forbids new
// processes and kills the listed ones; the caller must repeat it for processes that were created meanwhile.
func kill(dir string) {
	if write(dir, "cgroup.kill", "1") == nil {
		return
	}
	_ = write(dir, "pids.max", "0") // otherwise processes could be started faster than they are found
	for _, pid := range pids(dir) {
		if pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// pids returns the processes of a group.
func pids(dir string) (all []int) {
	text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
	for f := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(f); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

// Remove kills the processes of the group and removes it.
func (g *Group) Remove() {
	for _, p := range g.parts() {
		remove(p.Dir)
	}
}

// remove kills and removes a group and its descendants. Killed processes leave the group after a short delay.
func remove(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			remove(filepath.Join(dir, e.Name()))
		}
	}
	for pause := time.Duration(0); pause < 50*time.Millisecond; pause += time.Millisecond {
		if err := syscall.Rmdir(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		}
		kill(dir)
		time.Sleep(pause)
	}
}

// Use returns the memory of the group without the page cache that the kernel can drop. It returns false if no group
// limits memory.
func (g *Group) Use() (int64, bool) {
	if g == nil || g.Memory == nil {
		return 0, false
	}
	file, inactive := "memory.current", "inactive_file"
	if g.Memory.By == One {
		file, inactive = "memory.usage_in_bytes", "total_inactive_file"
	}
	n, ok := number(g.Memory.Dir, file)
	if dropped, there := field(g.Memory.Dir, "memory.stat", inactive); there {
		n = max(n-dropped, 0)
	}
	return n, ok
}

// chargeUnit is the maximum number of bytes that cgroup v1 charges at once: a huge page.
const chargeUnit = 2 << 20

// OutOfMemory returns the out-of-memory kills in the group.
func (g *Group) OutOfMemory() (k Killed) {
	if g == nil || g.Memory == nil {
		return k
	}
	dir := g.Memory.Dir
	if g.Memory.By == One {
		k.Processes, _ = field(dir, "memory.oom_control", "oom_kill")
		k.Peak, _ = number(dir, "memory.max_usage_in_bytes")
		// Not every kernel counts how often the limit was reached. Memory is charged in lots, so the peak may be one
		// lot below the limit.
		limit, ok := number(dir, "memory.limit_in_bytes")
		k.Own = ok && k.Peak >= limit-chargeUnit
		return k
	}
	k.Processes, _ = field(dir, "memory.events", "oom_kill")
	own, _ := field(dir, "memory.events", "oom")
	k.Own = own > 0
	if peak, ok := number(dir, "memory.peak"); ok { // since Linux 5.19
		k.Peak = peak
	} else if k.Own {
		k.Peak, _ = number(dir, "memory.max")
	}
	return k
}

// Count returns the number of threads in the group; 0 without a group that counts threads.
func (g *Group) Count() int64 {
	if g == nil || g.Processes == nil {
		return 0
	}
	n, _ := number(g.Processes.Dir, "pids.current")
	return n
}

// Throttled returns the number of periods in which the group exhausted its processor quota.
func (g *Group) Throttled() int64 {
	if g == nil || g.CPU == nil {
		return 0
	}
	n, _ := field(g.CPU.Dir, "cpu.stat", "nr_throttled")
	return n
}

// MemoryLimit returns the lowest memory limit of the cgroups that this process is in; limited is false if there is no
// limit.
func MemoryLimit() (least int64, ok bool) {
	own, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	homes, two := places(string(own), string(mounts))
	for _, at := range [][2]string{{two, "memory.max"}, {homes["memory"], "memory.limit_in_bytes"}} {
		// The root group has no such file.
		for dir := at[0]; len(dir) > 1; dir = filepath.Dir(dir) {
			if n, there := number(dir, at[1]); there && n > 0 && (!ok || n < least) {
				least, ok = n, true
			}
		}
	}
	return least, ok
}

func write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// number reads a file that contains one number; "max" counts as no number.
func number(dir, file string) (int64, bool) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil
}

// field reads one number from a file with lines of a name and a number.
func field(dir, file, name string) (int64, bool) {
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
