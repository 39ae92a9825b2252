package worker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/sandbox/sandboxtest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// ceiling is the timeout of tests for expected events.
const ceiling = 2 * time.Minute

func TestMain(m *testing.M) {
	worker.RunExecutor(registry())
	goleak.VerifyTestMain(m)
}

type model struct{ words []string }

// registry returns the workflows and activities of these tests.
func registry() *worker.Registry {
	r := worker.NewRegistry()
	r.Workflow("greet", func(ctx workflow.Context, name string) (string, error) {
		return workflow.Await[string](ctx, workflow.ExecuteActivity(ctx, "hello", name))
	})
	r.Activity("hello", func(_ context.Context, name string) (string, error) { return "hello " + name, nil })
	session := func(build, count string) func(workflow.Context, string) (int, error) {
		return func(ctx workflow.Context, text string) (int, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return 0, err
			}
			if err := s.Execute(ctx, build, text).Get(ctx, nil); err != nil {
				return 0, err
			}
			total := 0
			for range 3 {
				var n int
				if err := s.Execute(ctx, count).Get(ctx, &n); err != nil {
					return 0, err
				}
				total += n
			}
			return total, s.End(ctx)
		}
	}
	r.Workflow("count", session("build", "words"))
	r.Workflow("count_isolated", session("build_isolated", "words_isolated"))
	build := func(ctx context.Context, text string) error {
		activity.SessionState(ctx).Set("model", &model{strings.Fields(text)})
		return nil
	}
	words := func(ctx context.Context) (int, error) {
		m, err := activity.Get[*model](ctx, "model")
		if err != nil {
			return 0, err
		}
		return len(m.words), nil
	}
	r.Activity("build", build)
	r.Activity("words", words)
	r.Activity("build_isolated", build, activity.Isolated)
	r.Activity("words_isolated", words, activity.Isolated)
	r.Activity("pid", func(context.Context) (int, error) { return os.Getpid(), nil }, activity.Isolated)
	r.Workflow("fail", func(ctx workflow.Context, activity string) (string, error) {
		return workflow.Await[string](ctx, workflow.ExecuteActivity(workflow.WithActivity(ctx, workflow.ActivityOptions{
			Retry: &workflow.RetryPolicy{MaxAttempts: 1},
		}), activity))
	})
	r.Workflow("dies", func(ctx workflow.Context, text string) (int, error) {
		s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
		if err != nil {
			return 0, err
		}
		if err := s.Execute(ctx, "build_isolated", text).Get(ctx, nil); err != nil {
			return 0, err
		}
		if err := s.Execute(ctx, "die").Get(ctx, nil); err == nil {
			return 0, errors.New("an activity outlived its process")
		}
		n, err := workflow.Await[int](ctx, s.Execute(ctx, "words_recovered", text))
		return n, errors.Join(err, s.End(ctx))
	})
	r.Activity("die", func(context.Context) error { os.Exit(3); return nil }, activity.Isolated)
	r.Activity("words_recovered", func(ctx context.Context, _ string) (int, error) { return words(ctx) }, activity.Options{
		Isolated: true, Recovery: &activity.SessionRecoveryPolicy{RebuildActivity: "build_isolated"},
	})
	r.Workflow("visit", func(ctx workflow.Context, session, activity string) (string, error) {
		err := workflow.ExecuteActivity(workflow.InSession(ctx, session), activity).Get(ctx, nil)
		if err == nil {
			return "", nil
		}
		return err.Error(), nil
	})
	r.Workflow("talk", func(ctx workflow.Context, session string) (int, error) {
		return workflow.Execute[int](workflow.InSession(ctx, session), "ballast_size", 60)
	})
	r.Workflow("keep", func(ctx workflow.Context) error {
		own, err := workflow.StartSession(ctx, workflow.SessionOptions{})
		if err != nil {
			return err
		}
		noBack := workflow.WithActivity(ctx, workflow.ActivityOptions{
			WorkerSession: &workflow.WorkerSession{ID: "no way back", NoReacquire: true},
		})
		for range 2 {
			if err := own.Execute(ctx, "ballast_size", 30).Get(ctx, nil); err != nil {
				return err
			}
			if err := workflow.ExecuteActivity(noBack, "ballast_size", 30).Get(ctx, nil); err != nil {
				return err
			}
			if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
				return err
			}
		}
		return nil
	})
	r.Activity("ballast", func(ctx context.Context, mib int) error {
		activity.SessionState(ctx).Set("ballast", bytes.Repeat([]byte{1}, mib<<20))
		return nil
	}, activity.Isolated)
	r.Activity("ballast_size", func(ctx context.Context, _ int) (int, error) {
		b, err := activity.Get[[]byte](ctx, "ballast")
		return len(b) >> 20, err
	}, activity.Options{Isolated: true, Recovery: &activity.SessionRecoveryPolicy{RebuildActivity: "ballast"}})
	registerSharedExecutor(r)
	registerIsolatedSetUps(r)
	r.Activity("panic", func(context.Context) error { panic("boom") })
	r.Activity("too_large", func(context.Context) ([]byte, error) { return make([]byte, payload.MaxBytes), nil })
	return r
}

// start runs a worker until the test ends.
func start(t *testing.T, a *apptest.App, carrier link.Carrier, change func(*worker.Options)) *worker.Worker {
	t.Helper()
	o := workeropt.Over(carrier, worker.Options{
		Registry: registry(), Release: "test", DataDir: t.TempDir(),
		DrainTimeout: 10 * time.Second,
		Logger:       slogbridge.Slog(apptest.Log(t)),
		Sessions:     worker.SessionOptions{Max: 10},
		Executors: worker.ExecutorOptions{
			Limits: sandboxtest.FitLimits(func(l sandbox.Limits) worker.Limits { return worker.Limits(l) }),
		},
	})
	if change != nil {
		change(&o)
	}
	w, err := worker.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("worker: %v", err)
			}
		case <-time.After(ceiling):
			t.Error("the worker did not end")
		}
	})
	wait, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	if err := w.WaitReady(wait); err != nil {
		t.Fatal(err)
	}
	return w
}

// carriers runs a test over each carrier.
func carriers(t *testing.T, test func(t *testing.T, a *apptest.App, c link.Carrier)) {
	t.Run("local", func(t *testing.T) {
		a := apptest.Start(t, apptest.Options{})
		test(t, a, link.Local{Join: a.Connections().Join})
	})
	t.Run("socket", func(t *testing.T) {
		a := apptest.Start(t, apptest.Options{})
		test(t, a, &link.Socket{URLs: []string{a.URL()}})
	})
	t.Run("http", func(t *testing.T) {
		a := apptest.Start(t, apptest.Options{})
		test(t, a, &link.HTTP{URLs: []string{a.URL()}})
	})
}

// run starts a workflow and waits for its last event.
func run(t *testing.T, a *apptest.App, typ string, args ...any) history.Event {
	t.Helper()
	raw, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	answer, err := a.Broker().Start(ctx, protocol.StartRequest{WorkflowType: typ, Input: raw})
	if err != nil {
		t.Fatal(err)
	}
	return end(t, a, answer.RunID)
}

func end(t *testing.T, a *apptest.App, run string) history.Event {
	t.Helper()
	changed, stop := a.Dispatch().WatchRun(run)
	defer stop()
	for late := time.After(ceiling); ; {
		events := events(t, a, run)
		last := events[len(events)-1]
		switch last.Data.(type) {
		case *history.WorkflowCompleted, *history.WorkflowFailed, *history.WorkflowCancelled, *history.WorkflowTerminated:
			return last
		}
		select {
		case <-changed:
		case <-late:
			raw, _ := json.MarshalIndent(events, "", " ")
			t.Fatalf("run %s did not end:\n%s", run, raw)
		}
	}
}

func result[T any](t *testing.T, last history.Event) T {
	t.Helper()
	done, ok := last.Data.(*history.WorkflowCompleted)
	if !ok {
		raw, _ := json.Marshal(last)
		t.Fatalf("the run ended with %s", raw)
	}
	var v T
	if err := payload.Decode(payload.Payload{Blob: done.Output}, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestWorkerRunsWorkflowAndActivity(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		start(t, a, c, nil)
		for i := range 20 {
			name := fmt.Sprint("n", i)
			if got := result[string](t, run(t, a, "greet", name)); got != "hello "+name {
				t.Errorf("got %q", got)
			}
		}
	})
}

func TestSessionKeepsItsStateInTheWorker(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		start(t, a, c, nil)
		if got := result[int](t, run(t, a, "count", "a b c d")); got != 12 {
			t.Errorf("got %d words, want 12", got)
		}
	})
}

func TestSessionKeepsItsStateInAnExecutor(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		start(t, a, c, nil)
		if got := result[int](t, run(t, a, "count_isolated", "a b c d")); got != 12 {
			t.Errorf("got %d words, want 12", got)
		}
	})
}

func TestHandlersOfOtherLanguagesAreActivities(t *testing.T) {
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not on this machine")
	}
	dir := t.TempDir()
	code := `export async function main(input, ctx) {
		ctx.session.state.n = (ctx.session.state.n ?? 0) + 1;
		return input.toUpperCase() + ctx.session.state.n;
	}`
	if err := os.WriteFile(filepath.Join(dir, "shout.mjs"), []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	a := apptest.Start(t, apptest.Options{})
	start(t, a, &link.Socket{URLs: []string{a.URL()}}, func(o *worker.Options) {
		o.Handlers = dir
		o.Registry.Workflow("shouts", func(ctx workflow.Context) (string, error) {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return "", err
			}
			all := ""
			for range 3 {
				word, err := workflow.Await[string](ctx, s.Execute(ctx, "shout", "hey"))
				if err != nil {
					return "", err
				}
				all += word
			}
			return all, s.End(ctx)
		})
	})
	if got := result[string](t, run(t, a, "shouts")); got != "HEY1HEY2HEY3" {
		t.Errorf("got %q", got)
	}
}

// The state of a session dies with its executor: the session is claimed anew, and the policy rebuilds it.
func TestExecutorThatDiesCostsItsSessionTheStateAndIsRebuilt(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	start(t, a, &link.Socket{URLs: []string{a.URL()}}, nil)
	last := run(t, a, "dies", "a b c")
	if got := result[int](t, last); got != 3 {
		t.Errorf("got %d words", got)
	}
}

func TestFailuresOfActivitiesHaveTheirTypes(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	start(t, a, link.Local{Join: a.Connections().Join}, nil)
	for name, want := range map[string]string{"panic": activity.TypePanic, "too_large": "payload_too_large"} {
		last := run(t, a, "fail", name)
		failed, ok := last.Data.(*history.WorkflowFailed)
		if !ok || failed.ExceptionType != want {
			raw, _ := json.Marshal(last)
			t.Errorf("%s: got %s, want type %s", name, raw, want)
		}
	}
}

func TestStableWorkerIDIsUsedOnce(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	dir := t.TempDir()
	carrier := link.Local{Join: a.Connections().Join}
	start(t, a, carrier, func(o *worker.Options) { o.DataDir, o.WorkerID = dir, "local" })
	_, err := worker.New(workeropt.Over(carrier, worker.Options{
		Registry: registry(), WorkerID: "local", DataDir: dir,
		Executors: worker.ExecutorOptions{Isolation: "none", Disabled: true},
	}))
	if err == nil || !strings.Contains(err.Error(), "local is in use") {
		t.Errorf("got %v", err)
	}
}

func TestSupersededWorkerStops(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		older, err := worker.New(workeropt.Over(c, worker.Options{
			Registry: registry(), WorkerID: "w", Release: "test", Logger: slogbridge.Slog(apptest.Log(t)),
		}))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- older.Run(context.WithoutCancel(t.Context())) }()
		wait, cancel := context.WithTimeout(t.Context(), ceiling)
		defer cancel()
		if err := older.WaitReady(wait); err != nil {
			t.Fatal(err)
		}
		start(t, a, c, func(o *worker.Options) { o.WorkerID = "w" })
		select {
		case err := <-done:
			if !errors.Is(err, link.ErrSuperseded) {
				t.Errorf("got %v", err)
			}
		case <-time.After(ceiling):
			t.Error("the older process goes on")
		}
	})
}

// Eager workflow tasks of sequential activities are sent with results in process, over the socket and over HTTP.
func TestEagerTasksAreSentWithResultsOverEveryTransport(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		const steps = 5
		r := registry()
		r.Workflow("chain", func(ctx workflow.Context) error {
			for i := range steps {
				if err := workflow.ExecuteActivity(ctx, "link", i).Get(ctx, nil); err != nil {
					return err
				}
			}
			return nil
		})
		r.Activity("link", func(context.Context, int) error { return nil })
		start(t, a, c, func(o *worker.Options) { o.Registry = r })
		answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "chain"})
		if err != nil {
			t.Fatal(err)
		}
		end(t, a, answer.RunID)
		turns := 0
		for _, e := range events(t, a, answer.RunID) {
			if d, ok := e.Data.(*history.ActivityCompleted); ok && d.EagerHash != "" {
				turns++
			}
		}
		if turns != steps {
			t.Errorf("%d of %d turns came with results", turns, steps)
		}
	})
}

func TestDrainFinishesWhatRunsAndReleasesSessions(t *testing.T) {
	carriers(t, func(t *testing.T, a *apptest.App, c link.Carrier) {
		r := registry()
		var ended atomic.Int32
		entered, leave, closed := make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
		r.Workflow("hold", func(ctx workflow.Context) error {
			s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
			if err != nil {
				return err
			}
			return s.Execute(ctx, "slow").Get(ctx, nil)
		})
		r.Activity("slow", func(ctx context.Context) error {
			activity.SessionState(ctx).OnClose(func() { close(closed) })
			entered <- struct{}{}
			<-leave
			ended.Add(1)
			return nil
		})
		w, err := worker.New(workeropt.Over(c, worker.Options{
			Registry: r, WorkerID: "drains", Release: "test",
			Logger:   slogbridge.Slog(apptest.Log(t)),
			Sessions: worker.SessionOptions{Max: 1},
		}))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		answer, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "hold"})
		if err != nil {
			t.Fatal(err)
		}
		receive(t, entered, "the activity begins")
		stop()
		close(leave)
		if err := receive(t, done, "the worker ends"); err != nil {
			t.Error(err)
		}
		receive(t, closed, "the session's close hook")
		if ended.Load() != 1 {
			t.Errorf("the activity ended %d times", ended.Load())
		}
		completed := slices.ContainsFunc(events(t, a, answer.RunID), func(e history.Event) bool {
			return e.Type() == "ActivityCompleted"
		})
		if !completed {
			t.Error("the outcome of what ran is not in the history")
		}
		page, err := a.View().Sessions(t.Context(), protocol.SessionList{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range page.Sessions {
			if s.LeaseOwner != nil && s.Status != protocol.SessionClosed { // with its run, by the turn that came with the result
				t.Errorf("session %s is still held by %s", s.SessionID, *s.LeaseOwner)
			}
		}
	})
}

func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(ceiling):
		t.Fatalf("not within %s: %s", ceiling, what)
		panic("not reached")
	}
}

func events(t *testing.T, a *apptest.App, run string) []history.Event {
	t.Helper()
	page, err := a.View().History(
		t.Context(), protocol.HistoryQuery{Target: protocol.Target{RunID: run}, PageSize: 1000},
	)
	if err != nil {
		t.Fatal(err)
	}
	return page.Events
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(ceiling); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", ceiling, what)
		}
	}
}

// restart ends an app and starts another on its port and database.
func restart(t *testing.T, a *apptest.App, database string) *apptest.App {
	t.Helper()
	address := strings.TrimPrefix(a.URL(), "http://")
	a.Stop()
	return apptest.Start(t, apptest.Options{Database: database, Change: func(o *app.Options) { o.Addr = address }})
}

// Code that ignores cancellation delays neither the end of a drain nor the dispatch of its task to another worker.
func TestDrainKeepsItsDeadlineWhateverRuns(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	r := registry()
	entered, leave := make(chan struct{}, 10), make(chan struct{})
	r.Workflow("deaf", func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "deaf").Get(ctx, nil) })
	r.Activity("deaf", func(context.Context) error { entered <- struct{}{}; <-leave; return nil })
	defer close(leave)
	w, err := worker.New(workeropt.Over(&link.Socket{URLs: []string{a.URL()}}, worker.Options{
		Registry: r, Release: "test", DrainTimeout: 2 * time.Second,
		Logger:    slogbridge.Slog(apptest.Log(t)),
		Executors: worker.ExecutorOptions{Isolation: "none"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	if _, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "deaf"}); err != nil {
		t.Fatal(err)
	}
	receive(t, entered, "the activity begins")
	stop()
	if err := receive(t, done, "the worker ends"); err != nil {
		t.Error(err)
	}
	start(t, a, link.Local{Join: a.Connections().Join}, func(o *worker.Options) { o.Registry = r })
	receive(t, entered, "another worker has the task at once")
}

func TestAbortCutsADrainShort(t *testing.T) {
	a := apptest.Start(t, apptest.Options{})
	r := registry()
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	r.Workflow("deaf", func(ctx workflow.Context) error { return workflow.ExecuteActivity(ctx, "deaf").Get(ctx, nil) })
	r.Activity("deaf", func(context.Context) error { entered <- struct{}{}; <-leave; return nil })
	defer close(leave)
	w, err := worker.New(workeropt.Over(link.Local{Join: a.Connections().Join}, worker.Options{
		Registry: r, Release: "test", DrainTimeout: time.Hour,
		Logger:    slogbridge.Slog(apptest.Log(t)),
		Executors: worker.ExecutorOptions{Isolation: "none"},
	}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	if _, err := a.Broker().Start(t.Context(), protocol.StartRequest{WorkflowType: "deaf"}); err != nil {
		t.Fatal(err)
	}
	receive(t, entered, "the activity begins")
	stop()
	w.Abort()
	if err := receive(t, done, "the worker ends"); !errors.Is(err, worker.ErrAborted) {
		t.Errorf("got %v", err)
	}
}

// With AutoSessions a worker holds up to 1,000 sessions, or as many executors as fit into their memory if all its
// activities run in executors.
func TestTheCapOfSessionsFollowsWhatRunsTheActivities(t *testing.T) {
	const limit = 256 << 20
	isolated := func(context.Context) (string, error) { return "", nil }
	for name, c := range map[string]struct {
		most   int
		own    bool // another activity runs in the worker's process
		memory int64
		want   int
	}{
		"executors alone":                     {worker.AutoSessions, false, 5*limit + 1, 5},
		"an activity in the worker's process": {worker.AutoSessions, true, 5 * limit, 1000},
		"a number":                            {7, false, 5 * limit, 7},
	} {
		t.Run(name, func(t *testing.T) {
			a := apptest.Start(t, apptest.Options{})
			r := worker.NewRegistry()
			r.Activity("isolated", isolated, activity.Options{Isolated: true})
			if c.own {
				r.Activity("own", isolated)
			}
			start(t, a, link.Local{Join: a.Connections().Join}, func(o *worker.Options) {
				o.Registry, o.WorkerID, o.Sessions.Max, o.Executors.Memory = r, "w", c.most, c.memory
				limits := map[string]worker.Limits{}
				for _, name := range []string{"native", "node", "python"} {
					l := o.Executors.Limits[name]
					l.Memory = limit
					limits[name] = l
				}
				o.Executors.Limits = limits
			})
			v, err := a.View().Worker(t.Context(), "", "w")
			if err != nil || v.MaxSessions != c.want {
				t.Errorf("registered with a cap of %d sessions (%v), want %d", v.MaxSessions, err, c.want)
			}
		})
	}
}
