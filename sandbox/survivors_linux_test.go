package sandbox_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
	. "github.com/sojourn-run/sojourn/sandbox/sandboxtest"
)

func TestNothingSurvivesAKilledWorker(t *testing.T) {
	dir := t.TempDir()
	worker := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{helperName, dir, HandlersDir(t)}, Stderr: os.Stderr, Env: os.Environ(),
	}
	out, err := worker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer worker.Wait()
	defer worker.Process.Kill()
	type held struct {
		what    string
		pid     int
		daemon  int
		scratch string
	}
	var all []held
	for {
		var word, name, scratch string
		var pid, daemon int
		if _, err := fmt.Fscan(out, &word, &name, &pid, &daemon, &scratch); err != nil {
			t.Fatalf("the worker said nothing more: %v", err)
		}
		if word == "ready" {
			break
		}
		if word != "held" || Gone(pid) || Gone(daemon) {
			t.Fatalf("%s %s %d %d %s", word, name, pid, daemon, scratch)
		}
		all = append(
			all, held{name, pid, daemon, scratch},
			held{what: name + " supervisor", pid: parent(t, pid), daemon: pid, scratch: scratch},
		)
	}
	killed := time.Now()
	if err := worker.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for _, h := range all {
		Eventually(t, h.what+" is gone", func() bool { return dead(h.pid) && dead(h.daemon) })
		Eventually(t, h.what+"'s scratch folder is wiped", func() bool {
			_, err := os.Stat(h.scratch)
			return errors.Is(err, fs.ErrNotExist)
		})
	}
	t.Logf("nothing left %s after the kill", time.Since(killed).Round(time.Millisecond))

	// The next worker removes the folder of the old pool after the kernel has released its lock.
	_ = worker.Wait()
	Open(t, Targets[0], sandbox.Options{Dir: dir})
	Eventually(t, "the new pool's folder is the only one", func() bool {
		left, err := os.ReadDir(dir)
		return err == nil && len(left) == 1
	})
}

// The next worker of a folder ends processes that a previous worker left running: a supervisor that was stopped after
// the end of its worker and then continued, which code without signal isolation can do, and the executor of a killed
// supervisor.
func TestNextWorkerEndsProcessesOfADeadWorker(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pool := filepath.Join(dir, "pool-gone")
	if err := errors.Join(
		os.Mkdir(pool, 0o700), os.WriteFile(filepath.Join(pool, "lock"), nil, 0o600),
	); err != nil {
		t.Fatal(err)
	}
	worker, line, err := os.Pipe() // the worker's end is closed, as when it ends
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	stopped := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{supervisor.Name, pool}, Env: []string{},
		ExtraFiles: []*os.File{null, worker, null},
	}
	left := &exec.Cmd{
		Path: "/bin/sleep", Args: []string{"sleep", "300"}, Env: []string{"HOME=" + filepath.Join(pool, "sb-left")},
	}
	stays := &exec.Cmd{ // a user's process in the folder
		Path: "/bin/sleep", Args: []string{"sleep", "300"}, Env: []string{}, Dir: pool,
	}
	for _, c := range []*exec.Cmd{stopped, left, stays} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = c.Process.Kill(), c.Wait() }()
	}
	if err := errors.Join(stopped.Process.Signal(syscall.SIGSTOP), line.Close()); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the supervisor is stopped", func() bool { return supervisor.Stopped(stopped.Process.Pid) })
	Open(t, Targets[0], sandbox.Options{Dir: dir})
	for _, c := range []*exec.Cmd{stopped, left} {
		if !dead(c.Process.Pid) {
			t.Errorf("%s is still there", c.Args)
		}
	}
	if dead(stays.Process.Pid) {
		t.Error("who was in the folder has been killed")
	}
}

// dead reports whether a process has ended. A zombie counts as ended.
func dead(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return bytes.HasPrefix(rest, []byte("Z")) || bytes.HasPrefix(rest, []byte("X"))
}

func TestDaemonsDieWithTheirExecutor(t *testing.T) {
	everyRuntime(t, sandbox.Options{}, func(t *testing.T, b *Bench) {
		daemon := Got[int](t, b.Run(In("s", 1, b.Call("daemon", 300))))
		if Gone(daemon) {
			t.Fatal("there is no daemon")
		}
		about := Got[map[string]any](t, b.Run(In("s", 1, b.Call("about"))))
		if err := syscall.Kill(int(about["pid"].(int64)), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if lost := Receive(t, "OnLost", b.Lost); lost.Cause != sandbox.CauseCrash {
			t.Errorf("told %+v", lost)
		}
		if !Gone(daemon) {
			t.Error("the daemon outlived its executor")
		}
		if _, err := os.Stat(about["dir"].(string)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("scratch folder: %v", err)
		}
	})
}

func TestLeftoverChildrenForbidReuse(t *testing.T) {
	everyRuntime(t, sandbox.Options{Blank: -1}, func(t *testing.T, b *Bench) {
		daemon := Got[int](t, b.Run(b.Call("daemon", 300)))
		Eventually(t, "the executor is retired with its daemon", func() bool {
			return Gone(daemon) && len(b.Snapshot()) == 0
		})
	})
}

func TestOrphansAreReaped(t *testing.T) {
	b := Open(t, Targets[0], sandbox.Options{})
	for range 20 {
		b.Run(In("s", 1, b.Call("daemon", 0)))
	}
	supervisorPID := 0
	for _, e := range b.Snapshot() {
		if e.SessionID == "s" {
			supervisorPID = parent(t, e.PID)
		}
	}
	Eventually(t, "the supervisor has one child, the executor", func() bool {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", supervisorPID))
		if err != nil || len(threads) == 0 {
			t.Skip("this kernel does not list children")
		}
		n := 0
		for _, f := range threads {
			list, _ := os.ReadFile(f)
			n += len(strings.Fields(string(list)))
		}
		return n == 1
	})
}

func TestAKilledSupervisorIsACrashAndEndsItsExecutor(t *testing.T) {
	everyRuntime(t, sandbox.Options{}, func(t *testing.T, b *Bench) {
		about := Got[map[string]any](t, b.Run(In("s", 1, b.Call("about"))))
		pid := int(about["pid"].(int64))
		if err := syscall.Kill(parent(t, pid), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		Receive(t, "OnLost", b.Lost)
		Eventually(t, "the executor has exited", func() bool { return dead(pid) })
		WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseCrash)
	})
}

// Memory that forked processes share counts once towards the memory limit.
func TestForksOverOneModelAreNotCountedEach(t *testing.T) {
	t.Parallel()
	for _, cgroup := range []string{sandbox.CgroupAuto, sandbox.CgroupNone} {
		t.Run(cgroup, func(t *testing.T) {
			b := python(t, sandbox.Options{
				Blank: -1, Cgroup: cgroup,
				Limits: map[string]sandbox.Limits{sandbox.RuntimePython: {Memory: 256 << 20, Data: -1}},
			})
			if got := Got[int](t, b.Run(In("s", 1, b.Call("forks", []int{100, 4})))); got != 100<<20 {
				t.Errorf("held %d bytes", got)
			}
			WantType(t, b.Fail(In("s", 1, b.Call("forks", []int{300, 1}))), sandbox.OutOfMemory)
		})
	}
}

func TestAStoppedSupervisorDelaysNothing(t *testing.T) {
	everyRuntime(t, sandbox.Options{}, func(t *testing.T, b *Bench) {
		about := Got[map[string]any](t, b.Run(In("s", 1, b.Call("about"))))
		daemon := Got[int](t, b.Run(In("s", 1, b.Call("daemon", 300))))
		pid := int(about["pid"].(int64))
		supervisorPID := parent(t, pid)
		if err := syscall.Kill(supervisorPID, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		if err := b.CloseSession(t.Context(), sandbox.Session{ID: "s", Epoch: 1}, "done"); err != nil {
			t.Fatal(err)
		}
		for _, gone := range []int{pid, supervisorPID, daemon} {
			Eventually(t, fmt.Sprintf("process %d is gone", gone), func() bool { return dead(gone) })
		}
		if _, err := os.Stat(about["dir"].(string)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("scratch folder: %v", err)
		}
	})
}

// A worker that was stopped for longer than the timeout of its supervisors reads their buffered messages and ends no
// executor.
func TestResumedWorkerKeepsItsExecutors(t *testing.T) {
	t.Parallel()
	worker := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{busyName, t.TempDir(), HandlersDir(t)}, Stderr: os.Stderr, Env: os.Environ(),
	}
	in, err := worker.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := worker.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	defer worker.Wait()
	defer worker.Process.Kill()
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "busy" {
		t.Fatalf("the worker said %q", lines.Text())
	}
	if err := worker.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(13 * time.Second) // a silence longer than the allowed 10 s
	if err := worker.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "kept" {
		t.Errorf("the worker said %q", lines.Text())
	}
}

func TestCallEndsIfItsSupervisorIsFrozen(t *testing.T) {
	t.Parallel()
	b := Open(t, Targets[0], sandbox.Options{})
	about := Got[map[string]any](t, b.Run(In("s", 1, b.Call("about"))))
	pid := int(about["pid"].(int64))
	if err := syscall.Kill(parent(t, pid), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	WantType(t, b.Fail(In("s", 1, b.Call("spin"))), sandbox.Crashed)
	if !dead(pid) {
		t.Error("the executor is still there")
	}
	WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseCrash)
}

func TestExceededLimitsAreDistinguished(t *testing.T) {
	limits := func(l sandbox.Limits) sandbox.Options {
		return sandbox.Options{Blank: -1, Limits: map[string]sandbox.Limits{sandbox.RuntimePython: l}}
	}
	for _, c := range []struct {
		name  string
		o     sandbox.Options
		entry string
		arg   any
		want  sandbox.ErrorType
		cause sandbox.Cause // empty when the executor lives on
	}{
		{
			"a child takes the memory", limits(sandbox.Limits{Memory: 128 << 20, Data: -1}), "child_hog", nil,
			sandbox.OutOfMemory, sandbox.CauseOutOfMemory,
		},
		{
			"a child takes the memory without a group",
			sandbox.Options{
				Blank: -1, Cgroup: sandbox.CgroupNone,
				Limits: map[string]sandbox.Limits{sandbox.RuntimePython: {Memory: 128 << 20, Data: -1}},
			},
			"child_hog", nil,
			sandbox.OutOfMemory, sandbox.CauseOutOfMemory,
		},
		{
			"the heap limit is an exception in Python", limits(sandbox.Limits{Memory: 1 << 30, Data: 128 << 20}), "hog", nil,
			sandbox.OutOfMemory, "",
		},
		{
			"too many processes", limits(sandbox.Limits{Processes: 10}), "children", 40, sandbox.QuotaExceeded,
			sandbox.CauseQuota,
		},
		{
			"too many threads without a group",
			sandbox.Options{
				Blank: -1, Cgroup: sandbox.CgroupNone, Limits: map[string]sandbox.Limits{sandbox.RuntimePython: {Threads: 30}},
			},
			"threads", 45, sandbox.QuotaExceeded, sandbox.CauseQuota,
		},
		{"one large file", limits(sandbox.Limits{FileSize: 8 << 20}), "one_file", 16, sandbox.UserError, ""},
		{
			"many files", limits(sandbox.Limits{ScratchFiles: 100}), "many_files",
			[]int{200, 1},
			sandbox.QuotaExceeded,
			sandbox.CauseQuota,
		},
		{
			"many bytes", limits(sandbox.Limits{ScratchBytes: 8 << 20}), "many_files",
			[]int{20, 1024},
			sandbox.QuotaExceeded,
			sandbox.CauseQuota,
		},
		{
			"files that were removed and are open", limits(sandbox.Limits{ScratchBytes: 8 << 20}), "removed_files", 20,
			sandbox.QuotaExceeded, sandbox.CauseQuota,
		},
		{
			"files in a folder that cannot be listed", limits(sandbox.Limits{ScratchBytes: 8 << 20}), "closed_folder", 20,
			sandbox.QuotaExceeded, sandbox.CauseQuota,
		},
		{
			"files in a scratch folder that cannot be listed", limits(sandbox.Limits{ScratchBytes: 8 << 20}),
			"closed_scratch", 20,
			sandbox.QuotaExceeded, sandbox.CauseQuota,
		},
		{
			"files deeper than any path", limits(sandbox.Limits{ScratchBytes: 8 << 20}), "deep_files", 20,
			sandbox.QuotaExceeded, sandbox.CauseQuota,
		},
		{
			"tables of pages without a group",
			sandbox.Options{
				Blank: -1, Cgroup: sandbox.CgroupNone,
				Limits: map[string]sandbox.Limits{sandbox.RuntimePython: {Memory: 128 << 20}},
			},
			"page_tables", 120, sandbox.OutOfMemory, sandbox.CauseOutOfMemory,
		},
		{
			"files in memory without a group or a lockdown",
			sandbox.Options{
				Blank: -1, Cgroup: sandbox.CgroupNone, Level: sandbox.LevelProcess,
				Limits: map[string]sandbox.Limits{sandbox.RuntimePython: {Memory: 128 << 20}},
			},
			"memory_files", 150, sandbox.OutOfMemory, sandbox.CauseOutOfMemory,
		},
		{
			"files in memory without a group",
			sandbox.Options{Blank: -1, Cgroup: sandbox.CgroupNone, Level: sandbox.LevelConfined},
			"memory_files", 1, sandbox.UserError, "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if Race && c.o.Limits[sandbox.RuntimePython].Data > 0 {
				t.Skip("the race detector does not live with a limit on the heap")
			}
			b := python(t, c.o)
			WantType(t, b.Fail(In("s", 1, b.Call(c.entry, c.arg))), c.want)
			if c.cause != "" {
				WantLost(t, b.Fail(In("s", 1, b.Call("count"))), c.cause)
			} else {
				b.Run(In("s", 1, b.Call("count")))
			}
		})
	}
}

// A fork bomb creates processes faster than the watchdog can find them, and occupies all processors. The limit of the
// control group or of the executor's user bounds their number, and all of them end, whatever error is reported.
func TestProcessesThatStartProcessesEnd(t *testing.T) {
	const most = 1000 // maximum number of processes that the bombs create
	for name, o := range map[string]sandbox.Options{
		"by their user":  {Blank: -1, Cgroup: sandbox.CgroupNone},
		"by their group": {Blank: -1, Users: sandbox.UsersNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if o.Users == "" {
				o = open(t, o)
			}
			dir := t.TempDir()
			births := filepath.Join(dir, "births")
			if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o777)); err != nil { // any user
				t.Fatal(err)
			}
			o.Write, o.Limits = []string{dir}, map[string]sandbox.Limits{sandbox.RuntimePython: {Threads: 100}}
			b := Open(t, Targets[2], o)
			if r := b.Report(); o.Users == sandbox.UsersNone && !strings.HasPrefix(r.Processes, "cgroup") {
				t.Skip("no group holds processes here")
			}
			b.Fail(In("s", 1, b.Call("bomb", []any{births, most})))
			b.Fail(In("s", 1, b.Call("count")))
			info, err := os.Stat(births)
			if err != nil {
				t.Fatal(err)
			}
			if info.Size() >= most {
				t.Errorf("%d processes were born, and then no more because they had had enough", info.Size())
			}
		})
	}
}

// Programs that start and end many processes work as without confinement.
func TestProcessesStartAsWithoutConfinement(t *testing.T) {
	b := confined(t, Targets[2], sandbox.Options{})
	if failed := Got[[]any](t, b.Run(b.Call("programs", 200))); len(failed) > 0 {
		t.Errorf("%d pipelines failed, the first %q", len(failed), failed[0])
	}
}

// Limits also apply to code that continues after its call has ended.
func TestFilesAreWatchedBetweenCalls(t *testing.T) {
	t.Parallel()
	b := python(t, sandbox.Options{
		Blank: -1, Limits: map[string]sandbox.Limits{sandbox.RuntimePython: {ScratchBytes: 8 << 20}},
	})
	b.Run(In("s", 1, b.Call("later_files", 20)))
	if lost := Receive(t, "OnLost", b.Lost); lost.Cause != sandbox.CauseQuota {
		t.Errorf("told %+v", lost)
	}
}

func TestV8ReportsItsFullHeap(t *testing.T) {
	b := Open(t, Targets[1], sandbox.Options{Limits: map[string]sandbox.Limits{sandbox.RuntimeNode: {Memory: 256 << 20}}})
	e := WantType(t, b.Fail(In("s", 1, b.Call("heap"))), sandbox.OutOfMemory)
	t.Log(e.Message)
	WantLost(t, b.Fail(In("s", 1, b.Call("count"))), sandbox.CauseOutOfMemory)
}

// Executors that are created for separate sessions and end in every possible way leave no memory in the worker, no
// processes and no files.
func TestCreatingAndKillingLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	everyRuntime(t, sandbox.Options{Dir: dir, Blank: -1}, func(t *testing.T, b *Bench) {
		cycles := 12
		switch text := os.Getenv("SOJOURN_TEST_CYCLES"); {
		case text != "":
			var err error
			if cycles, err = strconv.Atoi(text); err != nil {
				t.Fatal(err)
			}
		case Race: // its processes take a second each to exit
			cycles = 4
		case b.Runtime == sandbox.RuntimeNative:
			cycles = 60
		}
		n := 0
		cycle := func() {
			n++
			s := sandbox.Session{ID: fmt.Sprint("s", n), Epoch: 1}
			in := func(entry string, args ...any) sandbox.Invocation { return In(s.ID, s.Epoch, b.Call(entry, args...)) }
			about := Got[map[string]any](t, b.Run(in("about")))
			pid, daemon := int(about["pid"].(int64)), Got[int](t, b.Run(in("daemon", 300)))
			b.Run(in("write", "kept"))
			lost := true
			switch n % 4 {
			case 0:
				b.Fail(in("crash"))
			case 1:
				lost = false
				if err := b.CloseSession(t.Context(), s, "done"); err != nil {
					t.Fatal(err)
				}
			case 2:
				_ = syscall.Kill(pid, syscall.SIGKILL)
			case 3:
				_ = syscall.Kill(parent(t, pid), syscall.SIGKILL) // the executor's supervisor
			}
			if lost {
				Receive(t, "OnLost", b.Lost)
			}
			for _, gone := range []int{pid, daemon} {
				Eventually(t, fmt.Sprintf("process %d of cycle %d is gone", gone, n), func() bool { return dead(gone) })
			}
		}
		for range 8 {
			cycle()
		}
		before := footprint(t, dir)
		for range cycles {
			cycle()
		}
		var after [6]int
		defer func() {
			if t.Failed() {
				t.Errorf("descriptors, threads, goroutines, processes, files, heap: %d, after %d cycles %d", before, cycles, after)
			}
		}()
		Eventually(t, "what there is is what there was", func() bool {
			after = footprint(t, dir)
			for i, slack := range [6]int{2, 4, 2, 0, 0, 1<<20 + cycles*1024} { // an end is remembered for an hour
				if after[i] > before[i]+slack {
					return false
				}
			}
			return true
		})
		t.Logf("descriptors, threads, goroutines, processes, files, heap: %d, after %d cycles %d", before, cycles, after)
	})
}

// footprint counts the descriptors, threads and goroutines of this process, its children with all that they started,
// the files in a folder, and the bytes on the heap.
func footprint(t *testing.T, dir string) (all [6]int) {
	t.Helper()
	for i, list := range []string{"/proc/self/fd", "/proc/self/task"} {
		entries, err := os.ReadDir(list)
		if err != nil {
			t.Fatal(err)
		}
		all[i] = len(entries)
	}
	all[2] = runtime.NumGoroutine()
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	parents := map[string]string{}
	for _, p := range processes {
		stat, _ := os.ReadFile(filepath.Join(p, "stat"))
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 {
			parents[filepath.Base(p)] = fields[1]
		}
	}
	for pid := range parents {
		for up := parents[pid]; up != ""; up = parents[up] {
			if up == strconv.Itoa(os.Getpid()) {
				all[3]++
				break
			}
		}
	}
	_ = filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { all[4]++; return nil })
	runtime.GC()
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	all[5] = int(heap.HeapAlloc) //nolint:gosec // of a test
	return all
}

// If an executor of a TypeScript handler or its supervisor is stopped, the call fails at its deadline, and the session
// receives the cause of the loss.
func TestFrozenTypeScriptExecutorIsEnded(t *testing.T) {
	t.Parallel()
	dir := files(t, map[string]string{
		"still.ts": "import type { Context } from './sojourn';\n" +
			"export async function main(_: unknown, ctx: Context): Promise<number> {\n" +
			"  ctx.progress('runs');\n  await new Promise((f) => setTimeout(f, 60_000));\n  return process.pid;\n}\n" +
			"export const pid = (): number => process.pid;\n",
		"sojourn.d.ts": "export type Context = any;",
	})
	for _, still := range []string{"executor", "supervisor"} {
		t.Run(still, func(t *testing.T) {
			b := Open(t, Targets[1], sandbox.Options{Handlers: dir, Blank: -1})
			needNode(t, b)
			call := func(entry string) sandbox.Invocation {
				inv := b.Call(entry)
				inv.Activity = "still"
				return In("s", 1, inv)
			}
			pid := Got[int](t, b.Run(call("pid")))
			stopped := pid
			if still == "supervisor" {
				stopped = parent(t, pid)
			}
			inv := call("main")
			inv.Deadline = time.Now().Add(3 * time.Second)
			running, ended := make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := b.Invoke(t.Context(), inv, sandbox.Hooks{OnProgress: func([]byte) { close(running) }})
				ended <- err
			}()
			Receive(t, "the call runs", running)
			if err := syscall.Kill(stopped, syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			WantType(t, Receive(t, "the end of the call", ended), sandbox.DeadlineExceeded)
			Eventually(t, "both are gone", func() bool { return dead(pid) && dead(stopped) })
			WantLost(t, b.Fail(call("pid")), sandbox.CauseDeadline)
		})
	}
}
