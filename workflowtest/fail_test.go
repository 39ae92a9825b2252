package workflowtest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
	"github.com/sojourn-run/sojourn/workflowtest"
)

// recorder is a testing.TB that records failures instead of failing this test.
type recorder struct {
	testing.TB
	mu       sync.Mutex // guards the fields below
	failures []string
	logged   []string // lines that were logged, which do not fail the test
}

func (r *recorder) Log(args ...any) { r.Logf("%s", fmt.Sprint(args...)) }
func (r *recorder) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logged = append(r.logged, fmt.Sprintf(format, args...))
}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); r.FailNow() }
func (r *recorder) Error(args ...any)                 { r.Errorf("%s", fmt.Sprint(args...)) }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); r.FailNow() }
func (r *recorder) FailNow()                          { runtime.Goexit() }

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.failures, "\n")
}

// failing runs a test in virtual time and returns its failure message.
func failing(t *testing.T, r *worker.Registry, test func(t *recorder, env *workflowtest.Env)) (failure string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		rec := &recorder{TB: t}
		done := make(chan struct{})
		go func() {
			defer close(done)
			workflowtest.Run(rec, r, test)
		}()
		<-done
		failure = rec.text()
	})
	return failure
}

func wantFailure(t *testing.T, failure string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(failure, p) {
			t.Errorf("%q is missing in the failure message of the test:\n%s", p, failure)
		}
	}
}

func TestBlockedCodeFailsItsTestAtOnceWithItsStack(t *testing.T) {
	outside := make(chan struct{})
	for _, c := range []struct {
		name string
		code func(ctx workflow.Context, n int) (int, error)
		args []any
		want []string
	}{
		{"panics", func(workflow.Context, int) (int, error) {
			panic("out of flour")
		}, []any{1}, []string{"out of flour", "fail_test.go:"}},
		{"calls late from a goroutine of its own", func(ctx workflow.Context, _ int) (int, error) {
			go func() {
				time.Sleep(time.Minute) // while no task of the run is in progress
				_ = workflow.ExecuteActivity(ctx, "any")
			}()
			return 0, workflow.Sleep(ctx, time.Hour)
		}, []any{1}, []string{"start branches of a workflow with workflow.Go, not with go", "fail_test.go:"}},
		{"blocks", func(workflow.Context, int) (int, error) {
			<-outside
			return 0, nil
		}, []any{1}, []string{"did not yield within 5s", "fail_test.go:"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := worker.NewRegistry()
			r.Workflow("bake", c.code)
			failure := ""
			synctest.Test(t, func(t *testing.T) {
				outside = make(chan struct{})
				rec, done := &recorder{TB: t}, make(chan struct{})
				go func() {
					defer close(done)
					workflowtest.Run(rec, r, func(_ *recorder, env *workflowtest.Env) {
						_, err := workflowtest.Result[int](env.Start("bake", c.args...))
						t.Errorf("the test continued with %v", err)
					})
				}()
				<-done
				close(outside)
				failure = rec.text()
				if all := failure + strings.Join(rec.logged, ""); strings.Count(all, " +0x") != strings.Count(failure, " +0x") {
					t.Errorf("the stack is printed twice: %s", all)
				}
			})
			wantFailure(t, failure, append(c.want, "bake", "open: workflow bake")...)
		})
	}
}

// A workflow that loops without a call fails its test. Go cannot end the loop, so this test runs in another test
// binary. The tests after it run, and the failed test prints nothing later.
func TestAWorkflowThatLoopsFailsItsTestAtOnce(t *testing.T) {
	if os.Getenv(loops) != "" {
		t.Run("loops", loopsForEver)
		t.Run("behind", func(t *testing.T) {
			r := worker.NewRegistry()
			r.Workflow("count", func(_ workflow.Context, n int) (int, error) { return n, nil })
			workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
				if n, err := workflowtest.Result[int](env.Start("count", 3)); err != nil || n != 3 {
					t.Errorf("got %d, %v", n, err)
				}
			})
		})
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	second := exec.CommandContext(t.Context(), self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=5m")
	second.Env = append(os.Environ(), loops+"=1")
	out, err := second.CombinedOutput()
	if err == nil {
		t.Error("it passed")
	}
	wantFailure(t, string(out), "workflow spins (id round, run ", "of real time without a call into package workflow: it loops",
		"workflowtest_test.spin", "fail_test.go:", "--- FAIL: "+t.Name()+"/loops", "--- PASS: "+t.Name()+"/behind")
	if strings.Contains(string(out), "panic:") || strings.Contains(string(out), "timed out") {
		t.Errorf("it ended by\n%s", out)
	}
}

// loops is an environment variable: if it is set, this process runs a workflow that loops.
const loops = "SOJOURN_TEST_LOOPS"

func loopsForEver(t *testing.T) {
	r := worker.NewRegistry()
	r.Workflow("spins", func(ctx workflow.Context) (int, error) {
		if err := workflow.Sleep(ctx, time.Hour); err != nil {
			return 0, err
		}
		return spin(), nil
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		env.SetBusyLimit(time.Second)
		_, err := workflowtest.Result[int](env.StartWith(workflowtest.StartOptions{WorkflowID: "round"}, "spins"))
		t.Errorf("the test continued with %v", err)
	})
}

// spin loops until spun is set.
func spin() (n int) {
	for !spun.Load() {
		n++
	}
	return n
}

var spun atomic.Bool

func TestAnUpdateOfBrokenCodeFailsTheTest(t *testing.T) {
	r := worker.NewRegistry()
	r.Workflow("break", func(ctx workflow.Context) error {
		if err := workflow.Signal(ctx, "never").Receive(ctx); err != nil {
			return err
		}
		panic("not this far")
	})
	failure := failing(t, r, func(_ *recorder, env *workflowtest.Env) {
		w := env.Start("break")
		w.Signal("never")
		if _, err := workflowtest.Update[int](w, "any"); err != nil {
			t.Errorf("the test continued with %v", err)
		}
	})
	wantFailure(t, failure, "not this far", "fail_test.go:")
}

// Input that cannot be decoded fails the run, and the test gets the error at once.
func TestInputThatDoesNotFitFailsTheRunAtOnce(t *testing.T) {
	r := worker.NewRegistry()
	r.Workflow("count", func(_ workflow.Context, n int) (int, error) { return n, nil })
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		began := time.Now()
		_, err := workflowtest.Result[int](env.Start("count", "three"))
		if err == nil || !strings.Contains(err.Error(), "argument 1 must be an integer, got a string") || time.Since(began) > 0 {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}

func TestAMissingSignalFailsTheTestWithTheWaitReason(t *testing.T) {
	r := worker.NewRegistry()
	r.Workflow("child", func(ctx workflow.Context) error { return workflow.Signal(ctx, "approve").Receive(ctx) })
	r.Workflow("parent", func(ctx workflow.Context) error { return workflow.StartChild(ctx, "child").Get(ctx, nil) })
	r.Workflow("lonely", func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(ctx, "nobody has it").Get(ctx, nil)
	})
	failure := failing(t, r, func(_ *recorder, env *workflowtest.Env) {
		_, err := workflowtest.Result[any](env.Start("parent"))
		t.Errorf("the test continued with %v", err)
	})
	wantFailure(t, failure, "deadlock: nothing left can wake these workflows", `waiting for signal "approve"`, "child workflow")
	failure = failing(t, r, func(_ *recorder, env *workflowtest.Env) {
		_, err := workflowtest.Result[any](env.Start("lonely"))
		t.Errorf("the test continued with %v", err)
	})
	wantFailure(t, failure, "deadlock: nothing left can wake these workflows", "nobody has it")
}

func TestASignalOfAnotherGoroutineIsAwaited(t *testing.T) {
	r := worker.NewRegistry()
	r.Workflow("slow", func(ctx workflow.Context) error { return workflow.Signal(ctx, "approve").Receive(ctx) })
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		env.SetPatience(3 * 24 * time.Hour)
		w := env.Start("slow")
		go func() {
			time.Sleep(2 * 24 * time.Hour)
			w.Signal("approve")
		}()
		if _, err := workflowtest.Result[any](w); err != nil {
			t.Error(err)
		}
	})
}

func TestArgumentsInTheOrderOfAMapFailTheClosingReplay(t *testing.T) {
	r := worker.NewRegistry()
	r.Activity("tell", func(context.Context, []string) error { return nil })
	var before []string // a map may be iterated in the same order several times
	r.Workflow("ranges", func(ctx workflow.Context) error {
		names := before
		for slices.Equal(names, before) {
			names = nil
			for name := range map[string]int{"a": 1, "b": 2, "c": 3} {
				names = append(names, name)
			}
		}
		before = names
		return workflow.ExecuteActivity(ctx, "tell", names).Get(ctx, nil)
	})
	failure := failing(t, r, func(_ *recorder, env *workflowtest.Env) {
		if _, err := workflowtest.Result[any](env.Start("ranges")); err != nil {
			t.Error(err)
		}
	})
	wantFailure(t, failure, "non-deterministic", `activity "tell"`, `"a"`, "event 2")
}

// The child's code reads the date with time.Now. In virtual time, an immediate replay would read the same date.
func TestTheClockOfTheMachineFailsTheClosingReplayOfAChild(t *testing.T) {
	r := worker.NewRegistry()
	r.Activity("tell", func(context.Context, string) error { return nil })
	r.Workflow("dates", func(ctx workflow.Context) error {
		return workflow.ExecuteActivity(ctx, "tell", time.Now().Format(time.DateOnly)).Get(ctx, nil)
	})
	r.Workflow("parent", func(ctx workflow.Context) error { return workflow.StartChild(ctx, "dates").Get(ctx, nil) })
	failure := failing(t, r, func(_ *recorder, env *workflowtest.Env) {
		if _, err := workflowtest.Result[any](env.Start("parent")); err != nil {
			t.Error(err)
		}
	})
	wantFailure(t, failure, "dates, replayed: non-deterministic", `activity "tell"`, "fail_test.go:", `arguments of the code: ["2000-01-02"]`)
}

func TestAWorkflowIsStartedWithOptions(t *testing.T) {
	r := worker.NewRegistry()
	r.Workflow("late", func(ctx workflow.Context) (string, error) {
		return workflow.Info(ctx).WorkflowID, workflow.Sleep(ctx, time.Hour)
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		began := time.Now()
		w := env.StartWith(
			workflowtest.StartOptions{
				WorkflowID: "mine", Delay: time.Hour, Memo: map[string]any{"why": "test"},
				SearchAttributes: map[string]any{"Amount": 7},
			}, "late",
		)
		if id, err := workflowtest.Result[string](w); err != nil || id != "mine" || time.Since(began) < 2*time.Hour {
			t.Errorf("got %q, %v after %s", id, err, time.Since(began))
		}
		var first history.WorkflowStarted
		if err := json.Unmarshal(w.History()[0].Attributes, &first); err != nil ||
			!strings.Contains(string(first.Memo), "test") || !strings.Contains(string(first.SearchAttributes), `"Amount":7`) {
			t.Errorf("memo: %s, search attributes: %s", first.Memo, first.SearchAttributes)
		}
		for _, o := range []workflowtest.StartOptions{{RunTimeout: time.Minute}, {ExecutionTimeout: time.Minute}} {
			w = env.StartWith(o, "late")
			if _, err := workflowtest.Result[string](w); !errors.Is(err, workflow.ErrTimedOut) {
				t.Errorf("%+v: got %v", o, err)
			}
		}
	})
}

func TestHistoryKeepsWhereAnActivityFailed(t *testing.T) {
	r := worker.NewRegistry()
	r.Activity("crash", func(context.Context) error { panic("out of flour") })
	r.Workflow("bake", func(ctx workflow.Context) error {
		once := workflow.WithActivity(
			ctx, workflow.ActivityOptions{Retry: &workflow.RetryPolicy{MaxAttempts: 2, Backoff: []time.Duration{time.Second}}},
		)
		return workflow.ExecuteActivity(once, "crash").Get(ctx, nil)
	})
	workflowtest.Run(t, r, func(t *testing.T, env *workflowtest.Env) {
		w := env.Start("bake")
		if _, err := workflowtest.Result[any](w); err == nil {
			t.Error("the activity did not fail")
		}
		kept := 0
		for _, e := range w.History() {
			switch e.Type {
			case "ActivityRetryScheduled":
				var d history.ActivityRetryScheduled
				kept++
				if err := json.Unmarshal(e.Attributes, &d); err != nil || !strings.Contains(d.Stack, "fail_test.go:") ||
					len(d.Stack) > 2<<10 {
					t.Errorf("the stack of the first attempt: %q, %v", d.Stack, err)
				}
			case "ActivityFailed":
				var d history.ActivityFailed
				kept++
				if err := json.Unmarshal(e.Attributes, &d); err != nil || !strings.Contains(d.Stack, "fail_test.go:") {
					t.Errorf("the stack of the last attempt: %q, %v", d.Stack, err)
				}
			}
		}
		if kept != 2 {
			t.Errorf("%d attempts failed", kept)
		}
	})
}
