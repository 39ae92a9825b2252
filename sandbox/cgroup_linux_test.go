package sandbox_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/internal/cgroup"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

// grouped skips a test if this process may not create control groups.
func grouped(t *testing.T, r sandbox.Report) {
	t.Helper()
	if r.Cgroup != "" {
		t.Skip("no control group: ", r.Cgroup)
	}
}

func isGroup(by string) bool { return by == "cgroup1" || by == "cgroup2" }

// groupsOf returns the folders of the cgroups of a process that belong to an executor, by controller; the controller of
// cgroup v2 is "".
func groupsOf(t *testing.T, pid int) map[string]string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 || !strings.Contains(f[2], "/sojourn-") || strings.HasSuffix(f[2], "/worker") {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			found := ""
			_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() && strings.HasSuffix(path, f[2]) {
					at := strings.TrimSuffix(path, f[2])
					_, second := os.Stat(filepath.Join(path, "cgroup.events"))
					if (c == "") == (second == nil) && (c == "" || slices.Contains(strings.Split(filepath.Base(at), ","), c)) {
						found = path
						return fs.SkipAll
					}
				}
				return nil
			})
			if found == "" {
				t.Fatalf("no folder for %s", line)
			}
			all[c] = found
		}
	}
	return all
}

func inGroup(t *testing.T, group map[string]string, controller, file string) string {
	t.Helper()
	dir := group[controller]
	if dir == "" {
		dir = group[""]
	}
	text, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The mechanism in the report ends code that exceeds its memory limit, in each runtime, with and without control
// groups. The error contains the used and the allowed memory, and the group is removed.
func TestMemoryIsLimitedByTheReportedMechanism(t *testing.T) {
	for _, cgroup := range []string{sandbox.CgroupAuto, sandbox.CgroupNone} {
		for _, target := range Targets {
			t.Run(cgroup+"/"+target.Runtime, func(t *testing.T) {
				t.Parallel()
				const limit = 128 << 20
				b := Open(t, target, sandbox.Options{
					Blank: -1, Cgroup: cgroup,
					Limits: map[string]sandbox.Limits{target.Runtime: {Memory: limit, Data: -1}},
				})
				r := b.Report()
				if cgroup == sandbox.CgroupAuto {
					grouped(t, r)
				}
				if isGroup(r.Memory) != (cgroup == sandbox.CgroupAuto) || r.Disk != "watchdog" {
					t.Fatalf("limits %s", r.Limits())
				}
				pid := Got[int](t, b.Run(In("s", 1, b.Call("pid"))))
				group := groupsOf(t, pid)
				e := WantType(t, b.Fail(In("s", 1, b.Call("hog"))), sandbox.OutOfMemory)
				var details struct {
					Peak  int64  `json:"peak_bytes"`
					Limit int64  `json:"limit_bytes"`
					By    string `json:"by"`
				}
				if err := json.Unmarshal(e.Details, &details); err != nil || details.By != r.Memory || details.Limit != limit ||
					details.Peak < limit*9/10 || !strings.Contains(e.Message, "limit of 128 MiB") {
					t.Errorf("failed with %s, details %s: %v", e.Message, e.Details, err)
				}
				WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseOutOfMemory)
				if cgroup == sandbox.CgroupAuto && len(group) == 0 || cgroup == sandbox.CgroupNone && len(group) > 0 {
					t.Errorf("the executor was in %v", group)
				}
				for _, dir := range group {
					if _, err := os.Stat(dir); err == nil {
						t.Errorf("%s stays", dir)
					}
				}
			})
		}
	}
}

// The worker reads the out-of-memory events of a control group itself if the supervisor cannot report them.
func TestTheWorkerDetectsTheKillWhenTheSupervisorIsStopped(t *testing.T) {
	b := python(t, sandbox.Options{
		Blank: -1, Limits: map[string]sandbox.Limits{sandbox.RuntimePython: {Memory: 128 << 20, Data: -1}},
	})
	grouped(t, b.Report())
	supervisorPID := parent(t, Got[int](t, b.Run(In("s", 1, b.Call("pid")))))
	if err := syscall.Kill(supervisorPID, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	WantType(t, b.Fail(In("s", 1, b.Call("hog"))), sandbox.OutOfMemory)
	WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseOutOfMemory)
}

// If the control group around the worker runs out of memory, the error does not claim that the executor exceeded its
// own limit.
func TestOutOfMemoryOfTheParentGroupIsReported(t *testing.T) {
	dir := pathsAround(t, 300<<20)
	// The kernel may choose a second victim before the memory of the first is freed. If it kills the supervisor and
	// then this process, no process can report the cause, so the test is repeated.
	for try := 1; ; try++ {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestAProcessThatExceedsTheMemoryOfItsCgroup$", "-test.v")
		cmd.Env = append(os.Environ(), "SOJOURN_TEST_AROUND="+dir)
		out, err := cmd.CombinedOutput()
		var end *exec.ExitError
		if errors.As(err, &end) && end.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL && try < 4 {
			continue
		}
		if err != nil || !strings.Contains(string(out), "--- PASS: TestAProcessThatExceedsTheMemoryOfItsCgroup") {
			t.Errorf("%v:\n%s", err, out)
		}
		return
	}
}

func TestAProcessThatExceedsTheMemoryOfItsCgroup(t *testing.T) {
	around := os.Getenv("SOJOURN_TEST_AROUND")
	if around == "" {
		t.Skip("runs in TestOutOfMemoryOfTheParentGroupIsReported")
	}
	if err := os.WriteFile(filepath.Join(around, "cgroup.procs"), []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	b := native(t, sandbox.Options{
		Blank: -1, Limits: map[string]sandbox.Limits{sandbox.RuntimeNative: {Memory: 1 << 30, Data: -1}},
	})
	if r := b.Report(); !isGroup(r.Memory) {
		t.Fatalf("limits %s", r.Limits())
	}
	for i := range 4 {
		e := WantType(t, b.Fail(In(fmt.Sprint("s", i), 1, b.Call("hog"))), sandbox.OutOfMemory)
		if !strings.Contains(e.Message, "the control group that the worker is in, ran out of memory") {
			t.Errorf("failed with %s", e.Message)
		}
	}
}

// pathsAround creates a cgroup with a memory limit in which a worker runs.
func pathsAround(t *testing.T, limit int64) string {
	t.Helper()
	tree, err := cgroup.Open()
	if err != nil {
		t.Skip("no control group: ", err)
	}
	t.Cleanup(tree.Close)
	g, err := tree.Make("around", cgroup.Limits{Memory: limit})
	if err != nil || g.Memory == nil {
		t.Fatalf("%+v: %v", g, err)
	}
	t.Cleanup(g.Remove)
	// The worker in the group must survive.
	if err := os.WriteFile(filepath.Join(g.Memory.Dir, "memory.oom.group"), []byte("0"), 0); g.Memory.By == cgroup.Two &&
		err != nil {
		t.Fatal(err)
	}
	return g.Memory.Dir
}

// An executor is in its group from its first instruction, but its supervisor is not, so that the supervisor survives
// out-of-memory kills in the group and can report them.
func TestTheSupervisorIsOutsideOfTheGroup(t *testing.T) {
	everyRuntime(t, sandbox.Options{Blank: -1}, func(t *testing.T, b *Bench) {
		grouped(t, b.Report())
		pid := Got[int](t, b.Run(In("s", 1, b.Call("pid"))))
		group, around := groupsOf(t, pid), groupsOf(t, parent(t, pid))
		if len(group) == 0 || len(around) > 0 {
			t.Errorf("executor in %v, supervisor in %v", group, around)
		}
	})
}

// A group refuses threads over its limit, and shares the processors.
func TestGroupsHoldThreadsAndProcessors(t *testing.T) {
	b := python(t, sandbox.Options{
		Blank:  -1,
		Limits: map[string]sandbox.Limits{sandbox.RuntimePython: {Processes: 1000, Threads: 20, Processors: 0.2}},
	})
	r := b.Report()
	grouped(t, r)
	if !isGroup(r.Processes) || !isGroup(r.CPU) {
		t.Fatalf("limits %s", r.Limits())
	}
	group := groupsOf(t, Got[int](t, b.Run(In("s", 1, b.Call("pid")))))
	e := WantType(t, b.Fail(In("s", 1, b.Call("children", 40))), sandbox.UserError)
	if e.Class != "BlockingIOError" || !strings.Contains(inGroup(t, group, "pids", "pids.max"), "20") {
		t.Errorf("40 children failed with %s: %s", e.Class, e.Message)
	}
	cancel, ended := hold(t, b, In("s", 1, b.Call("spin")))
	Eventually(t, "the group has waited for processors", func() bool {
		for line := range strings.Lines(inGroup(t, group, "cpu", "cpu.stat")) {
			if rest, ok := strings.CutPrefix(line, "nr_throttled "); ok && strings.TrimSpace(rest) != "0" {
				return true
			}
		}
		return false
	})
	cancel()
	Receive(t, "the end of the call", ended)
}

// Without a control group the report claims no limits that the kernel enforces. It also states if code could leave its
// group.
func TestMissingControlGroupsAreReported(t *testing.T) {
	lists := func(r sandbox.Report, words string) bool {
		return slices.ContainsFunc(r.Missing, func(m string) bool { return strings.Contains(m, words) })
	}
	none := native(t, sandbox.Options{Cgroup: sandbox.CgroupNone}).Report()
	if !lists(none, "memory is watched, not capped by the kernel; the number of processes is watched") ||
		!lists(none, "processor time is not limited (no control group: the setting executor-cgroup is none)") ||
		lists(none, "leave its control group") || none.CPU != "none" || none.Memory != "watchdog" {
		t.Errorf("without: %+v", none)
	}
	confined := native(t, sandbox.Options{}).Report()
	grouped(t, confined)
	if lists(confined, "watched") || lists(confined, "processor time") || lists(confined, "leave its control group") {
		t.Errorf("with: %+v", confined)
	}
	open := native(t, sandbox.Options{Level: sandbox.LevelProcess, Users: sandbox.UsersNone}).Report()
	if !lists(open, "leave its control group") {
		t.Errorf("unconfined: %+v", open)
	}
}

// startHelper starts a worker that is there to be killed, and waits until it holds its sessions; it returns the pids of
// their executors.
func startHelper(t *testing.T, dir string, attr *syscall.SysProcAttr) (worker *exec.Cmd, executors []int) {
	t.Helper()
	worker = &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{helperName, dir, HandlersDir(t)}, Stderr: os.Stderr, Env: os.Environ(),
		SysProcAttr: attr,
	}
	out, err := worker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = worker.Process.Kill(), worker.Wait() })
	for s := bufio.NewScanner(out); s.Scan(); {
		var word, name, scratch string
		var pid, daemon int
		if _, err := fmt.Sscan(s.Text(), &word, &name, &pid, &daemon, &scratch); err != nil {
			t.Fatal(s.Text())
		}
		if word == "ready" {
			return worker, executors
		}
		executors = append(executors, pid, daemon)
	}
	t.Fatal("the worker said nothing more")
	return nil, nil
}

// A worker that was killed with all its supervisors leaves groups with processes in them. The next worker ends the
// processes and removes the groups, but not the groups of a live worker.
func TestGroupsOfADeadWorkerAreRemovedByTheNext(t *testing.T) {
	grouped(t, native(t, sandbox.Options{Blank: -1}).Report())
	_, executors := startHelper(t, t.TempDir(), nil)
	living := groupsOf(t, executors[0])
	dies, doomed := startHelper(t, t.TempDir(), nil)
	dead := groupsOf(t, doomed[0])
	if len(living) == 0 || len(dead) == 0 {
		t.Fatalf("groups %v and %v", living, dead)
	}
	supervisors := map[int]bool{}
	for _, pid := range doomed {
		supervisors[parent(t, pid)] = true
	}
	// Supervisors that are stopped first cannot react to the end of another supervisor.
	for _, signal := range []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL} {
		for pid := range supervisors {
			if err := syscall.Kill(pid, signal); err != nil {
				t.Fatal(err)
			}
		}
		if err := dies.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	_ = dies.Wait()
	for _, dir := range dead {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("the dead worker left nothing: %v", err)
		}
		// It must be older than a group that is being created.
		Eventually(t, dir+" has aged", func() bool {
			info, err := os.Stat(filepath.Dir(dir))
			return err == nil && time.Since(info.ModTime()) > time.Second
		})
	}
	startHelper(t, t.TempDir(), nil)
	for _, dir := range dead {
		if _, err := os.Stat(filepath.Dir(dir)); err == nil {
			t.Errorf("%s stays", filepath.Dir(dir))
		}
	}
	for _, pid := range doomed {
		Eventually(t, "the dead worker's processes are gone", func() bool { return Gone(pid) })
	}
	for _, dir := range living {
		if _, err := os.Stat(dir); err != nil || Gone(executors[0]) {
			t.Errorf("the living worker's group: %v", err)
		}
	}
}
