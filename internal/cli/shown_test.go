package cli_test

import (
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// brokenRun is the wait reason of a run whose code failed several times, as the run's description contains it.
var brokenRun = regexp.MustCompile(
	`(?m)^now +workflow code panicked \(shown_test\.go:\d+\): out of flour; failed \d+ times in a row; next attempt at .*$`,
)

// registerShown registers activities for tests of the output in a shell.
func registerShown(r *worker.Registry) {
	r.Activity("shown.joined", func(context.Context) error {
		return errors.Join(errors.New("the first fault"), errors.New("the second fault"))
	})
	r.Activity("shown.panics", func(context.Context) error { panic("at a line of its own") })
	r.Workflow("shown.broken", func(workflow.Context) error { panic("out of flour") })
	r.Workflow("shown.changed", func(ctx workflow.Context) error {
		if os.Getenv(changed) != "" {
			return workflow.Sleep(ctx, time.Hour)
		}
		return workflow.Signal(ctx, "go").Receive(ctx)
	})
	r.Activity("shown.progress", func(ctx context.Context) error {
		if err := activity.Heartbeat(ctx, activity.Progress{
			Message: "sawing", Current: 3, Total: 7, Unit: "boards",
		}); err != nil {
			return err
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

// Joined errors are shown completely, failed code with its stack, progress as text, and epochs as small numbers.
func TestTableOutput(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	s.try(1, "the first fault\nthe second fault", "activity", "run", "shown.joined", "--id", "joined")
	s.try(0, "the first fault; the second fault", "workflow", "list")
	s.try(0, "the first fault\n                   the second fault", "workflow", "describe", "joined")
	s.try(0, "the second fault", "workflow", "history", "joined")

	s.try(1, "at a line of its own", "activity", "run", "shown.panics", "--id", "panics")
	s.try(0, "shown_test.go:", "workflow", "debug", "panics")
	s.try(0, "shown.panics failed at", "workflow", "debug", "panics")
	s.try(0, "the run ended: Panic: at a line of its own", "workflow", "debug", "panics")
	// Lists have no room for a stack, but a message needs its class.
	s.try(0, " Panic: at a line of its own", "workflow", "list", "--status", "failed")
	s.try(0, " Panic: at a line of its own", "workflow", "runs", "panics")
	if out := s.try(0, "", "workflow", "history", "panics"); !regexp.MustCompile(
		`ActivityFailed +shown\.panics Panic: .*shown_test\.go:\d+\)`,
	).MatchString(out) || strings.Contains(out, "goroutine") {
		t.Errorf("a history does not say in a line how an activity failed, and where:\n%s", out)
	}
	s.try(0, "\n    goroutine ", "workflow", "history", "panics", "--stacks")
	if out := s.try(0, "the first fault", "workflow", "debug", "joined"); strings.Contains(out, "failed at") {
		t.Errorf("a stack of an error that has none: %s", out)
	}

	s.try(0, "started_new", "workflow", "start", "shown.broken", "--id", "broken")
	until(t, "a run whose code fails says with what, and where", func() bool {
		_, out, _ := run(t, s.dir, s.env, "workflow", "describe", "broken")
		_, debugged, _ := run(t, s.dir, s.env, "workflow", "debug", "broken")
		return brokenRun.MatchString(out) && strings.Contains(out, "workflow code failed at\n") &&
			strings.Contains(out, "shown_test.go:") &&
			strings.Contains(debugged, "workflow task failed and is retried: workflow code panicked (shown_test.go:")
	})
	s.try(0, "terminated", "workflow", "terminate", "broken")

	s.try(0, "started_new", "activity", "run", "shown.progress", "--id", "progress", "--detach")
	until(t, "progress is shown", func() bool {
		_, out, _ := run(t, s.dir, s.env, "workflow", "describe", "progress")
		return strings.Contains(out, "sawing, 3 of 7 boards")
	})
	s.try(0, "cancelled", "workflow", "cancel", "progress")

	var epoch string
	for range 2 {
		epoch = s.try(0, "", "activity", "run", "epoch", "--session", "kept")
	}
	for _, args := range [][]string{
		{"sessions"}, {"sessions", "describe", "kept"}, {"sessions", "timeline", "kept"}, {"sessions", "attempts", "kept"},
	} {
		if out := s.try(0, "#1", args...); strings.Contains(out, epoch) {
			t.Errorf("%v shows epoch %s: %s", args, epoch, out)
		}
	}
	s.try(0, epoch, "sessions", "describe", "kept", "--json")
}

// A task that fails repeatedly at the same place is logged once per failure, with its stack only the first time.
func TestRepeatedFailureLogsItsStackOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, c, _ := dev(t, dir, "127.0.0.1:0", nil)
	s := shell{t, dir, env{"SOJOURN_APP_URL": c.base}}
	s.try(0, "started_new", "workflow", "start", "shown.broken", "--id", "broken")
	const failed = `"message":"workflow task failed"`
	until(t, "it failed three times", func() bool { return p.err.count(failed) >= 3 })
	if n := p.err.count(`shown_test\.go:\d+ \+0x`); n != 1 {
		t.Errorf("its stack is logged %d times", n)
	}
}

// The reason of a quarantined run is a long sentence. The describe command prints it in the status and at the task
// only.
func TestQuarantineReasonIsLoggedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, c, _ := dev(t, dir, "127.0.0.1:0", nil)
	s := shell{t, dir, env{"SOJOURN_APP_URL": c.base}}
	s.try(0, "started_new", "workflow", "start", "shown.changed", "--id", "changed")
	until(t, "it waits", func() bool { w := c.describe("changed").Pending; return w != nil && len(w.Waits) == 1 })
	if code := p.terminate(); code != 0 {
		t.Errorf("exit %d", code)
	}
	_, c, _ = dev(t, dir, "127.0.0.1:0", env{changed: "1"})
	s.env["SOJOURN_APP_URL"] = c.base
	s.try(0, "signal_received", "workflow", "signal", "changed", "go")
	until(t, "it is quarantined", func() bool { return c.describe("changed").Quarantined != nil })
	out := s.try(0, "Fix or roll back the code, then run: sojourn workflow repair changed", "workflow", "describe", "changed")
	if n := strings.Count(out, "non-deterministic workflow code"); n != 2 {
		t.Errorf("it is said %d times:\n%s", n, out)
	}
}

// changed, set: the code of a workflow is another one.
const changed = "SOJOURN_TEST_CHANGED"

// A run is followed to its end, including the runs that it continues as, unless a run was selected; Ctrl-C ends only
// the command.
func TestARunIsFollowedFromAShell(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	s.try(0, "started_new", "workflow", "start", "tour.counter", "--id", "n", "--input", "[1, 3]", "--delay", "1s")
	if out := s.try(0, "WorkflowCompleted", "workflow", "history", "n", "--follow"); strings.Count(
		out, "continued as run",
	) != 2 || strings.Count(out, "WorkflowStarted") != 3 {
		t.Errorf("followed over three runs: %s", out)
	}
	var runs []struct {
		Number int    `json:"run_number"`
		Run    string `json:"run_id"`
	}
	s.read(&runs, "workflow", "runs", "n")
	first := ""
	for _, r := range runs {
		if r.Number == 1 {
			first = r.Run
		}
	}
	if out := s.try(0, "WorkflowContinuedAsNew", "workflow", "history", "n", "--run", first, "-f"); strings.Contains(
		out, "continued as",
	) {
		t.Errorf("followed one run: %s", out)
	}
	for line := range strings.Lines(s.try(0, "", "workflow", "history", "n", "-f", "--json")) {
		if !strings.HasPrefix(line, "{") {
			t.Errorf("a line of JSON: %q", line)
		}
	}

	s.try(0, "started_new", "workflow", "start", "tour.approval", "--id", "a")
	for _, verb := range []string{"history", "describe"} {
		p := launch(t, s.dir, s.env, "workflow", verb, "a", "-f")
		p.line(p.out, `SignalWaitOpened|waiting for signal|approve`)
		if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if code := p.exit(); code != 1 || p.err.count("of a continues") != 1 {
			t.Errorf("%s, interrupted: exit %d, %s", verb, code, p)
		}
	}
	p := launch(t, s.dir, s.env, "workflow", "describe", "a", "-f")
	p.line(p.out, "approve")
	s.try(0, "signal_received", "workflow", "signal", "a", "approve", "--input", `["Eve"]`)
	p.line(p.out, "WorkflowCompleted")
	if code := p.exit(); code != 0 {
		t.Errorf("the end of the run: exit %d, %s", code, p)
	}
}
