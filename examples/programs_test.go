package examples_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	curlworker "github.com/sojourn-run/sojourn/examples/curl-worker"
	"github.com/sojourn-run/sojourn/internal/release"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// binaries builds the example programs once for all tests, and returns their folder.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "sojourn-examples-")
	if err != nil {
		return "", err
	}
	atEnd = func() { os.RemoveAll(dir) }
	c := exec.Command("go", "build", "-o", dir, "./first", "./hello", "./worker-only")
	c.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := c.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return dir, nil
})

// atEnd cleans up after all tests.
var atEnd = func() {}

// build is an example's binary.
func build(t *testing.T, name string) string {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// program starts a program, ends it with a signal when the test ends, and shows its output if the test failed.
func program(t *testing.T, environment []string, name string, args ...string) (printed *output) {
	t.Helper()
	printed = &output{}
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), environment...)
	c.Stdout, c.Stderr = printed, printed
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	printed.process = c.Process
	done := make(chan error, 1)
	go func() { done <- c.Wait() }()
	t.Cleanup(func() {
		if err := c.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Error(err)
		}
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s ended with %v", name, err)
			}
		case <-time.After(ceiling):
			_ = c.Process.Kill()
			t.Errorf("%s did not end", name)
		}
		if t.Failed() {
			t.Logf("output of %s:\n%s", name, printed)
		}
	})
	return printed
}

type output struct {
	process *os.Process // that writes it
	mu      sync.Mutex
	text    bytes.Buffer // guarded by mu
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

var taken sync.Map // used ports

// address returns a free address, below the kernel's range of ephemeral ports, and each address once.
func address(t *testing.T) string {
	t.Helper()
	for range 200 {
		port := 20000 + rand.IntN(12000)
		if _, old := taken.LoadOrStore(port, true); old {
			continue
		}
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// whole runs a binary that is app and worker, and returns a caller of it.
func whole(t *testing.T, dir string) caller {
	t.Helper()
	addr := address(t)
	program(t, nil, build(t, dir), "--auth", "none", "--addr", addr, "--data-dir", t.TempDir())
	c := caller{t, "http://" + addr}
	for end := time.Now().
		Add(ceiling); c.call("GET", "ready", nil, &struct{}{}) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not become ready", dir)
		}
	}
	return c
}

func TestHelloIsAnAppAndAWorker(t *testing.T) {
	t.Parallel()
	c := whole(t, "hello")
	c.start("hello", "h", "world")
	var got []string
	c.result("h", &got)
	if len(got) != 2 || got[0] != "Hello, world!" || got[1] != "Goodbye, world!" {
		t.Errorf("got %q", got)
	}
}

func TestProgramOfTheReadmeRuns(t *testing.T) {
	t.Parallel()
	c := whole(t, "first")
	c.start("research", "w", "research/passages.txt")
	c.signal("w", "approve", true)
	var got string
	if c.result("w", &got); !strings.Contains(got, "whale") {
		t.Errorf("got %q", got)
	}
}

func TestWorkerAloneRunsIsolatedActivitiesInAnotherProcess(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	program(
		t, []string{"SOJOURN_APP_URL=" + a.URL(), "SOJOURN_RELEASE=test", "SOJOURN_DATA_DIR=" + t.TempDir()},
		build(t, "worker-only"),
	)
	c := caller{t, a.URL()}
	c.start("count", "n", []string{"one two three", "four"})
	var got []struct{ Words, Process, Worker int }
	c.result("n", &got)
	if len(got) != 2 || got[0].Words != 3 || got[1].Words != 1 || got[0].Process == got[0].Worker {
		t.Errorf("got %+v", got)
	}
}

// A program that sets no release has Sojourn's release, which does not distinguish the builds of the program.
func TestAWorkerWithoutAReleaseLogsOnceThatItsBuildsAreNotMatched(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{Change: func(o *app.Options) { o.Release = release.Embedded }})
	at := []string{"SOJOURN_APP_URL=" + a.URL(), "SOJOURN_DATA_DIR=" + t.TempDir()}
	printed := program(t, at, build(t, "worker-only"))
	c := caller{t, a.URL()}
	c.start("count", "n", []string{"one"})
	c.result("n", &[]any{})
	const line = "worker program sets no release"
	if n := strings.Count(printed.String(), line); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, printed)
	}
	set := append(at[:1:1], "SOJOURN_RELEASE=1.2.3", "SOJOURN_DATA_DIR="+t.TempDir())
	printed = program(t, set, build(t, "worker-only"))
	eventually(t, "the worker's connection", func() bool { return strings.Contains(printed.String(), "1.2.3") })
	if strings.Contains(printed.String(), line) {
		t.Errorf("the worker has a release but logs that it has none:\n%s", printed)
	}
}

func TestShellWorkerShouts(t *testing.T) {
	t.Parallel()
	for _, needed := range []string{"bash", "curl", "python3"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skipf("no %s: %v", needed, err)
		}
	}
	a := apptest.Start(t, apptest.Options{})
	work(t, a, nil) // for the workflow
	program(t, []string{"SOJOURN_APP_URL=" + a.URL()}, "curl-worker/worker.sh")
	c := caller{t, a.URL()}
	c.start(curlworker.Workflow, "s", `hello "there", ünïcode`)
	var got string
	c.result("s", &got)
	if want := `HELLO "THERE", ÜNÏCODE!`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWorkerOverPlainHTTPProcessesAnOrder(t *testing.T) {
	t.Parallel()
	if err := exec.Command("python3", "-c", "match 1:\n case 1: pass").Run(); err != nil {
		t.Skipf("no python of 3.10 or newer: %v", err)
	}
	a := apptest.Start(t, apptest.Options{})
	printed := program(t, []string{"SOJOURN_APP_URL=" + a.URL(), "PYTHONDONTWRITEBYTECODE=1"}, "http-worker/worker.py")
	c := caller{t, a.URL()}
	c.must("POST", "workflows", map[string]any{
		"workflow_type": "http.order", "workflow_id": "o", "task_queue": "http", "input": []string{"tea", "milk"},
	}, &struct{}{})
	add := func(item string) error {
		return c.call("POST", "workflows/o/update/add",
			map[string]any{"input": []string{item}, "wait_for": "completed", "wait_timeout_seconds": 60}, &struct{}{})
	}
	if err := add("bread"); err != nil {
		t.Error(err)
	}
	if err := add(""); err == nil || !strings.Contains(err.Error(), "nothing is nothing") {
		t.Errorf("an update that its handler refuses gives %v", err)
	}
	var asked struct{ Result struct{ Items []string } }
	c.must("POST", "workflows/o/query/state", map[string]any{}, &asked)
	if got := asked.Result.Items; !slices.Equal(got, []string{"tea", "milk", "bread"}) {
		t.Errorf("the query says %q", got)
	}
	c.signal("o", "pay", "Ada")
	var got struct {
		Packed, Sum int
		By          string `json:"paid_by"`
	}
	if c.result("o", &got); got.Packed != 3 || got.Sum != 7 || got.By != "Ada" {
		t.Errorf("got %+v", got)
	}
	var letters int
	if late(t, c, printed.process, "http.price", "http", &letters); letters != len("late") {
		t.Errorf("the third attempt returned %d", letters)
	}
	if text := printed.String(); strings.Contains(text, "stale_attempt") || strings.Contains(text, "lease") {
		t.Errorf("attempts that had ended were started:\n%s", text)
	}
}

func TestPythonWorkerGreets(t *testing.T) {
	t.Parallel()
	if err := exec.Command("python3", "-c", "import ensurepip, venv").Run(); err != nil {
		t.Skipf("no python: %v", err)
	}
	greets(t, "python", "python-worker/run.sh")
}

// Compiling takes minutes, so make interop runs this test.
func TestRustWorkerGreets(t *testing.T) {
	if !slices.Contains(strings.Split(os.Getenv("SOJOURN_TEST_REQUIRE"), ","), "rust") {
		t.Skip("no rust: SOJOURN_TEST_REQUIRE does not name it; make interop does")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	// of interop/rust as well: they build on the same crates
	target := filepath.Join(cache, "sojourn-tests", "rust", "target")
	build := exec.Command(
		"cargo", "build", "--locked", "--manifest-path", "rust-worker/Cargo.toml", "--target-dir", target,
	)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	greets(t, "rust", filepath.Join(target, "debug", "rust-worker"))
}

// greets runs a worker of another language, whose workflow and activity are named alike, on the queue of the language's
// name.
func greets(t *testing.T, language, path string) {
	t.Helper()
	a := apptest.Start(t, apptest.Options{})
	program(t, []string{"SOJOURN_APP_URL=" + a.URL()}, path)
	c := caller{t, a.URL()}
	c.must("POST", "workflows", map[string]any{
		"workflow_type": language + ".greeting", "workflow_id": "g", "task_queue": language, "input": []string{"you"},
	}, &struct{}{})
	var got string
	c.result("g", &got)
	if !strings.HasPrefix(got, "hello you, from process ") {
		t.Errorf("got %q", got)
	}
}

// socketWorker returns a directory with a copy of the example and the official client, which the tests of Sojourn's own
// Socket.IO server install.
func socketWorker(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skipf("no node: %v", err)
	}
	modules, err := filepath.Abs("../interop/js/node_modules")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "socket.io-client")); err != nil {
		install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund")
		install.Dir = filepath.Dir(modules)
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v\n%s", err, out)
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("socket-worker")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules, filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "worker.mjs")
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(ceiling); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func TestJavaScriptWorkerOverTheSocketCountsWatchesAndDrains(t *testing.T) {
	t.Parallel()
	a := apptest.Start(t, apptest.Options{})
	environment, worker := []string{"SOJOURN_APP_URL=" + a.URL(), "SOJOURN_WORKER_ID=js"}, socketWorker(t)
	c := caller{t, a.URL()}
	before := killedWorkersEpoch(t, c, environment, worker)
	printed := program(t, environment, "node", worker)
	c.must("POST", "sojourn/activities", addInSession("after"), &struct{}{})
	c.result("after", &struct{}{})
	if after := epochOf(c, "restarted"); after <= before {
		t.Errorf("the process that replaced a killed one holds its session under epoch %d, after epoch %d", after, before)
	}
	start := func(kind, id string, input ...any) {
		c.must(
			"POST", "workflows",
			map[string]any{"workflow_type": kind, "workflow_id": id, "task_queue": "socket", "input": input}, &struct{}{},
		)
	}
	start("socket.tally", "t", []string{"tea", "milk", "bread"})
	var got struct {
		Words   []string
		Letters int
		Worker  string
	}
	// The sum comes from the session's state in the worker's memory after three activities.
	if c.result("t", &got); !slices.Equal(got.Words, []string{"tea", "milk", "bread"}) || got.Letters != 12 ||
		got.Worker != "js" {
		t.Errorf("got %+v", got)
	}
	// An attempt that runs although it has ended also adds its word to the session.
	if late(t, c, printed.process, "socket.add", "socket", &got); !slices.Equal(got.Words, []string{"late"}) {
		t.Errorf("the session has %q: attempts that had ended were started", got.Words)
	}
	start("socket.watch", "w", 3)
	var rounds int
	if c.result("w", &rounds); rounds != 3 {
		t.Errorf("got %d rounds", rounds)
	}
	start("socket.watch", "long", 1_000_000)
	eventually(t, "progress", func() bool {
		var run struct {
			Pending struct {
				Activities []struct{ Progress struct{ Message string } }
			}
		}
		c.must("GET", "workflows/long", nil, &run)
		open := run.Pending.Activities
		return len(open) == 1 && strings.HasPrefix(open[0].Progress.Message, "round ")
	})
	c.must("POST", "workflows/long/cancel", map[string]any{}, &struct{}{})
	eventually(t, "the end of what was cancelled", func() bool {
		return strings.Contains(printed.String(), "socket.watch ended: cancelled")
	})
	a.Connections().DrainWorkers()
	eventually(t, "the worker's leaving", func() bool { return strings.Contains(printed.String(), "js has left") })
	if strings.Contains(printed.String(), "heartbeat:") || strings.Contains(printed.String(), "poll:") {
		t.Errorf("something was refused:\n%s", printed)
	}
}

// addInSession returns the request that starts a standalone activity in the session "restarted".
func addInSession(id string) map[string]any {
	return map[string]any{
		"activity_type": "socket.add", "workflow_id": id, "task_queue": "socket", "input": []any{id},
		"session_id": "restarted",
	}
}

func epochOf(c caller, session string) int64 {
	c.t.Helper()
	var a struct{ Session struct{ Epoch int64 } }
	c.must("GET", "worker-sessions/"+session, nil, &a)
	return a.Session.Epoch
}

// killedWorkersEpoch kills a worker that holds a session and returns the epoch of its holding.
func killedWorkersEpoch(t *testing.T, c caller, environment []string, worker string) int64 {
	t.Helper()
	cmd := exec.Command("node", worker)
	cmd.Env = append(os.Environ(), environment...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	c.must("POST", "sojourn/activities", addInSession("before"), &struct{}{})
	c.result("before", &struct{}{})
	return epochOf(c, "restarted")
}

// late stops the worker with SIGSTOP until attempts of an activity, whose deliveries wait in the worker's socket
// buffer, have timed out. The worker then reads these deliveries and must not start them. result receives the result of
// a later attempt.
func late(t *testing.T, c caller, worker *os.Process, activityType, queue string, result any) {
	t.Helper()
	signal := func(s syscall.Signal) {
		t.Helper()
		if err := worker.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	c.must("POST", "sojourn/activities", map[string]any{
		"activity_type": activityType, "workflow_id": "late", "task_queue": queue, "input": []any{"late"},
		"session_id": "late", "start_to_close_timeout": 1,
		"retry_policy": map[string]any{"max_attempts": 10, "backoff_seconds": []int{0}},
	}, &struct{}{})
	began := time.Now()
	eventually(t, "the end of the attempts", func() bool {
		var run struct {
			Pending struct{ Activities []struct{ State string } }
		}
		c.must("GET", "workflows/late", nil, &run)
		open := run.Pending.Activities
		return len(open) == 1 && open[0].State != "leased" && time.Since(began) > 2*time.Second
	})
	signal(syscall.SIGCONT)
	c.result("late", result)
}

// If the worker runs a job twice, the state of the session has its word twice. If the worker loses a job, the workflow
// stays open or fails.
func TestJavaScriptWorkerSurvivesTwentyRestartsOfItsApp(t *testing.T) {
	t.Parallel()
	worker, addr, data := socketWorker(t), address(t), t.TempDir()
	c := caller{t, "http://" + addr}
	var app *exec.Cmd
	printed := &output{} // by the apps
	t.Cleanup(func() {
		if app != nil && app.Process != nil {
			_ = app.Process.Kill()
			_ = app.Wait() // the app writes to the data directory until it ends
		}
		if t.Failed() {
			t.Logf("output of the apps:\n%s", printed)
		}
	})
	begin := func() {
		t.Helper()
		app = exec.Command(build(t, "hello"), "app", "--auth", "none", "--addr", addr, "--data-dir", data)
		app.Stdout, app.Stderr = printed, printed
		if err := app.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the app", func() bool { return c.call("GET", "ready", nil, &struct{}{}) == nil })
	}
	begin()
	log := program(t, []string{"SOJOURN_APP_URL=" + c.url, "SOJOURN_WORKER_ID=js"}, "node", worker)
	words := strings.Fields("one two three four five six seven eight nine ten eleven twelve")
	id := func(kind string, round int) string { return fmt.Sprintf("%s-%d", kind, round) }
	const restarts = 20
	for round := range restarts {
		for kind, input := range map[string]any{"tally": words, "watch": 4} {
			c.must("POST", "workflows", map[string]any{
				"workflow_type": "socket." + kind, "workflow_id": id(kind, round), "task_queue": "socket", "input": []any{input},
			}, &struct{}{})
		}
		eventually(t, "progress", func() bool {
			var run struct {
				Pending struct {
					Activities []struct{ Progress struct{ Message string } }
				}
			}
			c.must("GET", "workflows/"+id("watch", round), nil, &run)
			return len(run.Pending.Activities) == 1 && run.Pending.Activities[0].Progress.Message != ""
		})
		end := syscall.SIGKILL
		if round%2 == 1 {
			end = syscall.SIGTERM
		}
		if err := app.Process.Signal(end); err != nil {
			t.Fatal(err)
		}
		if err := app.Wait(); err != nil && end == syscall.SIGTERM {
			t.Fatalf("the app ended with %v", err)
		}
		begin()
	}
	for round := range restarts {
		var got struct{ Words []string }
		if c.result(id("tally", round), &got); !slices.Equal(got.Words, words) {
			t.Errorf("tally %d: got %q", round, got.Words)
		}
		var rounds int
		if c.result(id("watch", round), &rounds); rounds != 4 {
			t.Errorf("watch %d: got %d rounds", round, rounds)
		}
	}
	if n := strings.Count(log.String(), "js works for"); n <= restarts {
		t.Errorf("the worker registered %d times", n)
	}
}

// A worker must not stop when its app is about to stop. A fake app stops as slowly as necessary.
func TestJavaScriptWorkerReconnectsAndExitsOnRequest(t *testing.T) {
	t.Parallel()
	beats, left := make(chan int, 100), make(chan struct{})
	var n atomic.Int64
	answers := map[string]func() any{
		"register":   func() any { return map[string]any{"worker_id": "js"} },
		"poll":       func() any { return map[string]any{"jobs": []any{}, "pollStatus": "empty", "retryAfterMs": 50} },
		"deregister": func() any { close(left); return map[string]any{} },
		"heartbeat": func() any {
			b := int(n.Add(1))
			beats <- b
			if b < 4 {
				return map[string]any{"drain": true}
			}
			return map[string]any{"intent": "leave"}
		},
	}
	server := socketio.NewServer(socketio.Options{})
	workers := server.Of(protocol.NamespaceWorkers)
	workers.OnConnect(func(context.Context, *socketio.ConnectRequest) (any, error) { return "js", nil })
	workers.OnSocket(func(s *socketio.Socket) {
		s.On(protocol.EventFetchSettings, func(context.Context, []json.RawMessage) ([]any, error) {
			return []any{map[string]any{
				"APP_VERSION": "1", "WORKER_HEARTBEAT_SECONDS": 0.02, "JOB_LOCK_EXTEND_SECONDS": 30, "WORKER_DRAIN_SECONDS": 25,
			}}, nil
		})
		s.On(rpc.EventCall, func(_ context.Context, args []json.RawMessage) ([]any, error) {
			var call struct{ Method string }
			if err := json.Unmarshal(args[0], &call); err != nil {
				return nil, err
			}
			return []any{answers[call.Method]()}, nil
		})
	})
	front := httptest.NewServer(server)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), ceiling)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			t.Error(err)
		}
		front.Close()
	})
	printed := program(t, []string{"SOJOURN_APP_URL=" + front.URL, "SOJOURN_WORKER_ID=js"}, "node", socketWorker(t))
	for want := 1; want <= 4; want++ {
		select {
		case <-beats:
		case <-time.After(ceiling):
			t.Fatalf("heartbeat %d did not come:\n%s", want, printed)
		}
		if want < 4 && strings.Contains(printed.String(), "drains") {
			t.Fatal("the worker leaves with its app")
		}
	}
	select {
	case <-left:
	case <-time.After(ceiling):
		t.Fatalf("the worker did not leave:\n%s", printed)
	}
}

// A worker program reports an unknown flag in one line, with the nearest flag, and lists its flags with --help.
func TestAWorkerProgramNamesTheNearestFlag(t *testing.T) {
	t.Parallel()
	out, err := exec.Command(build(t, "worker-only"), "--queue", "q").CombinedOutput()
	const want = "unknown flag --queue; did you mean --queues?; see worker-only --help\n"
	if failed, ok := errors.AsType[*exec.ExitError](err); !ok || failed.ExitCode() != 2 || string(out) != want {
		t.Errorf("%v: %s", err, out)
	}
	out, err = exec.Command(build(t, "worker-only"), "--help").Output()
	if help := string(out); err != nil || !strings.HasPrefix(help, "Usage of worker-only:\n") ||
		!strings.Contains(help, "--queues list") {
		t.Errorf("%v: %s", err, out)
	}
}
