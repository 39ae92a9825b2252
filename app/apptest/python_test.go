package apptest_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/url"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The tests run the published Python SDK of the worker protocol without changes. It receives only a URL and a token.
const (
	pythonDir   = "../../interop/python"
	pythonQueue = "python"
	pythonToken = "python-interop-token-0123456789"
)

// python is the path of an interpreter with the SDK.
func python(t *testing.T) string {
	t.Helper()
	return pythonWith(t, "requirements.txt")
}

// pythonWith returns an interpreter with the packages of a list of requirements.
func pythonWith(t *testing.T, list string) string {
	t.Helper()
	return apptest.Python(t, filepath.Join(pythonDir, list))
}

// startPython starts an app that requires a token, on the given address or a free one.
func startPython(t *testing.T, database, addr string) *apptest.App {
	return apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) {
		o.NoAuth, o.Token = false, pythonToken
		if addr != "" {
			o.Addr = addr
		}
	}})
}

// pythonWorker is a process that works with a published SDK.
type pythonWorker struct {
	*exec.Cmd
	t      *testing.T
	id     string
	output *bytes.Buffer
	done   chan error
}

// work starts a worker and returns when the app knows it. Further arguments follow the worker's ID: its maximum of
// sessions, then its capabilities.
func work(t *testing.T, a *apptest.App, id string, args ...string) *pythonWorker {
	t.Helper()
	return workThrough(t, a, a.URL(), id, args...)
}

// workThrough starts a worker that connects to the app at the given URL.
func workThrough(t *testing.T, a *apptest.App, through, id string, args ...string) *pythonWorker {
	t.Helper()
	c := exec.Command(python(t), append([]string{"worker.py", through, pythonToken, pythonQueue, id}, args...)...)
	c.Dir = pythonDir
	return launchWorker(t, a, id, c)
}

// launchWorker starts a worker's program and returns when the app knows the worker.
func launchWorker(t *testing.T, a *apptest.App, id string, c *exec.Cmd) *pythonWorker {
	t.Helper()
	w := &pythonWorker{Cmd: c, t: t, id: id, output: &bytes.Buffer{}, done: make(chan error, 1)}
	w.Stdout, w.Stderr = w.output, w.output
	before := ""
	if v, err := a.View().Worker(t.Context(), "default", id); err == nil {
		before = v.RegisteredAt.String()
	}
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { w.done <- w.Wait() }()
	t.Cleanup(func() {
		_ = w.Process.Kill()
		if t.Failed() {
			t.Logf("worker %s said:\n%s", id, w.output)
		}
	})
	until(t, "worker "+id+" registers", func() bool {
		select {
		case err := <-w.done:
			t.Fatalf("worker %s ended before it was registered: %v", id, err)
		default:
		}
		v, err := a.View().Worker(t.Context(), "default", id)
		return err == nil && v.RegisteredAt.String() != before
	})
	return w
}

// stop ends a worker as a supervisor would; it must drain, deregister and exit with code 0.
func (w *pythonWorker) stop() {
	w.t.Helper()
	if err := w.Process.Signal(syscall.SIGTERM); err != nil {
		w.t.Fatal(err)
	}
	select {
	case err := <-w.done:
		if err != nil {
			w.t.Errorf("worker %s ended with: %v", w.id, err)
		}
	case <-time.After(5 * time.Minute):
		w.t.Errorf("worker %s did not end within 5 min", w.id)
	}
}

func (w *pythonWorker) kill() {
	w.t.Helper()
	if err := w.Process.Kill(); err != nil {
		w.t.Fatal(err)
	}
	<-w.done
}

// until waits for a condition.
func until(t *testing.T, what string, check func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !check(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 5 min: %s", what)
		}
	}
}

// cases runs cases of cases.py, all at once, each a subtest.
func cases(t *testing.T, a *apptest.App, names ...string) {
	t.Helper()
	casesThrough(t, a.URL(), names...)
}

func casesThrough(t *testing.T, through string, names ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 12*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, python(t), append([]string{"cases.py", through, pythonToken, pythonQueue}, names...)...)
	c.Dir = pythonDir
	judge(t, c, names)
}

// judge runs a program that prints a line of JSON for each case, and makes each a subtest.
func judge(t *testing.T, c *exec.Cmd, names []string) {
	t.Helper()
	var complaints bytes.Buffer
	c.Stderr = &complaints
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ran := 0
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		var got struct {
			Case, Error string
			OK          bool
		}
		if err == nil {
			err = json.Unmarshal(line, &got)
		}
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		ran++
		t.Run(got.Case, func(t *testing.T) {
			if !got.OK {
				t.Error(got.Error)
			}
		})
	}
	if err := c.Wait(); err != nil || ran == 0 || len(names) > 0 && ran != len(names) {
		t.Errorf("%d cases ran, then: %v\n%s", ran, err, complaints.String())
	}
}

func TestPythonSDK(t *testing.T) {
	t.Parallel()
	python(t)
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		w := work(t, a, "py-1", "50")
		cases(t, a)
		w.stop()
		if _, err := a.View().
			Worker(t.Context(), "default", "py-1"); protocol.ReasonOf(err) != protocol.ReasonWorkerNotFound {
			t.Errorf("the stopped worker is still registered: %v", err)
		}
	})
}

// run starts a workflow whose workers use the Python SDK.
func run(t *testing.T, a *apptest.App, workflowType string, args ...any) protocol.Target {
	t.Helper()
	return runOn(t, a, pythonQueue, workflowType, args...)
}

func runOn(t *testing.T, a *apptest.App, queue, workflowType string, args ...any) protocol.Target {
	t.Helper()
	input, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	s, err := a.Broker().Start(
		t.Context(), protocol.StartRequest{
			WorkflowType: workflowType, TaskQueue: queue, Input: input,
			Headers: history.Headers{"tenant": "acme"}, // the published SDK ignores them in tasks and events
		},
	)
	if err != nil {
		t.Fatal(err)
	}
	return protocol.Target{WorkflowID: s.WorkflowID, RunID: s.RunID}
}

// output waits for the end of a run and reads its result.
func output(t *testing.T, a *apptest.App, run protocol.Target, into any) {
	t.Helper()
	var v protocol.RunView
	until(t, "run "+run.RunID+" ends", func() bool {
		var err error
		v, err = a.View().Describe(t.Context(), run)
		return err == nil && v.Terminal
	})
	if v.Status != "completed" {
		t.Fatalf("run %s is %s: %s", run.RunID, v.Status, v.Failure)
	}
	if err := json.Unmarshal(v.Output, into); err != nil {
		t.Fatal(err)
	}
}

// pendingOn waits until an activity of the run is leased, and returns the worker.
func pendingOn(t *testing.T, a *apptest.App, run protocol.Target, activityType string) (worker string) {
	t.Helper()
	until(t, "activity "+activityType+" is under way", func() bool {
		v, err := a.View().Describe(t.Context(), run)
		if err != nil || v.Pending == nil {
			return false
		}
		for _, p := range v.Pending.Activities {
			if p.ActivityType == activityType && p.Worker != "" {
				worker = p.Worker
			}
		}
		return worker != ""
	})
	return worker
}

func TestOneOfTwoPythonWorkersIsKilled(t *testing.T) {
	t.Parallel()
	python(t)
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		workers := map[string]*pythonWorker{"py-1": work(t, a, "py-1", "50"), "py-2": work(t, a, "py-2", "50")}
		r := run(t, a, "steps", 8)
		victim := pendingOn(t, a, r, "nap")
		workers[victim].kill()
		survivor := map[string]string{"py-1": "py-2", "py-2": "py-1"}[victim]
		var whereabouts []string
		output(t, a, r, &whereabouts)
		if len(whereabouts) != 8 || whereabouts[7] != survivor {
			t.Errorf("steps ran on %v, %s was killed", whereabouts, victim)
		}
		// the same worker ID with a new incarnation is treated like any new worker
		restarted := work(t, a, victim, "50")
		workers[survivor].stop()
		output(t, a, run(t, a, "steps", 1), &whereabouts)
		if len(whereabouts) != 1 || whereabouts[0] != victim {
			t.Errorf("after its return, steps ran on %v", whereabouts)
		}
		restarted.stop()
	})
}

func TestTheAppRestartsWhilePythonPolls(t *testing.T) {
	t.Parallel()
	python(t)
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		u, err := url.Parse(a.URL())
		if err != nil {
			t.Fatal(err)
		}
		w1, w2 := work(t, a, "py-1", "50"), work(t, a, "py-2", "50")
		r, idle := run(t, a, "steps", 5), run(t, a, "sleeping", 3)
		pendingOn(t, a, r, "nap")
		a.Stop()
		a = startPython(t, database, u.Host)
		var whereabouts []string
		output(t, a, r, &whereabouts)
		if len(whereabouts) != 5 {
			t.Errorf("steps ran on %v", whereabouts)
		}
		var text string
		output(t, a, idle, &text)
		if text != "awake" {
			t.Errorf("the sleeping workflow returned %q", text)
		}
		cases(t, a, "start_to_result", "session_keeps_state")
		w1.stop()
		w2.stop()
	})
}

// kept is what an activity of a session reports about its process.
type kept struct {
	PID    int    `json:"pid"`
	Worker string `json:"worker"`
	Kept   []int  `json:"kept"`
}

func TestAPythonSessionMovesWhenItsOwnerIsKilled(t *testing.T) {
	t.Parallel()
	python(t)
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		workers := map[string]*pythonWorker{"py-1": work(t, a, "py-1", "50"), "py-2": work(t, a, "py-2", "50")}
		options := map[string]any{"lease_seconds": 5}
		r := run(t, a, "slow_session", "held", filepath.Join(t.TempDir(), "started"), options)
		victim := pendingOn(t, a, r, "keep_slowly")
		workers[victim].kill()
		var got []kept
		output(t, a, r, &got)
		if len(got) != 2 || got[0].Worker != victim || got[1].Worker == victim {
			t.Fatalf("the holder %s was killed, and the session went: %+v", victim, got)
		}
		if len(got[1].Kept) != 1 {
			t.Errorf("an activity found the state of a killed process: %+v", got[1])
		}
		v, err := a.View().Session(t.Context(), "default", "held")
		if err != nil || v.Status != protocol.SessionActive || v.LeaseOwner == nil || *v.LeaseOwner != got[1].Worker {
			t.Errorf("the session is %+v, %v", v, err)
		}
	})
}

// A stopping SDK worker sends DELETE for each of its sessions, with the reason worker_shutdown.
func TestADeployOfAPythonWorkerEndsNoSession(t *testing.T) {
	t.Parallel()
	python(t)
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		var before, after []kept
		w := work(t, a, "py-1", "50")
		output(t, a, run(t, a, "in_session", "deployed", 2, map[string]any{}), &before)
		w.stop()
		v, err := a.View().Session(t.Context(), "default", "deployed")
		if err != nil || v.EndedReason != "released" || v.LeaseOwner != nil {
			t.Errorf("after the shutdown the session is %+v, %v", v, err)
		}
		w = work(t, a, "py-2", "50")
		output(t, a, run(t, a, "in_session", "deployed", 2, map[string]any{}), &after)
		w.stop()
		if len(before) != 2 || len(after) != 2 || before[0].Worker != "py-1" || after[0].Worker != "py-2" {
			t.Errorf("steps ran on %+v, then on %+v", before, after)
		}
	})
}

func TestPythonSessionsAreRefused(t *testing.T) {
	t.Parallel()
	python(t)
	apptest.Databases(t, func(t *testing.T, database string) {
		a := startPython(t, database, "")
		w := work(t, a, "py-1", "1", "gpu")
		other := work(t, a, "py-2", "1", "gpu")
		cases(t, a, "session_verbs_and_refusals")
		w.stop()
		other.stop()
	})
}
