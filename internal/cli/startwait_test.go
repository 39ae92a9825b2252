package cli_test

import (
	"syscall"
	"testing"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A start that waits for its result prints the result although its app was killed meanwhile and started again. The
// workflow runs once. Ctrl-C ends only the command.
func TestAStartThatWaitsOutlivesTheKillOfItsApp(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), address(t)
	app, c, _ := dev(t, dir, addr, nil)
	s := shell{t, dir, env{"SOJOURN_APP_URL": c.base}}
	waiting := launch(t, s.dir, s.env, "workflow", "start", "tour.approval", "--id", "a", "--wait")
	until(t, "the run is started", func() bool {
		code, _, _ := run(t, s.dir, s.env, "workflow", "describe", "a")
		return code == 0
	})
	app.kill()
	dev(t, dir, addr, nil)
	s.try(0, "signal_received", "workflow", "signal", "a", "approve", "--input", `["Eve"]`)
	waiting.line(waiting.out, "Eve")
	if code := waiting.exit(); code != 0 {
		t.Errorf("exit %d, %s", code, waiting)
	}
	stopped := launch(t, s.dir, s.env, "workflow", "start", "tour.approval", "--id", "b", "--wait")
	until(t, "the second run is started", func() bool {
		code, _, _ := run(t, s.dir, s.env, "workflow", "describe", "b")
		return code == 0
	})
	if err := stopped.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := stopped.exit(); code != 1 || stopped.err.count("workflow b continues if the app has started it") != 1 {
		t.Errorf("interrupted: exit %d, %s", code, stopped)
	}
	var runs []protocol.RunView
	s.read(&runs, "workflow", "runs", "a")
	if len(runs) != 1 || runs[0].Status != "completed" {
		t.Errorf("runs: %+v", runs)
	}
}
