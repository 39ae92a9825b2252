package main

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/internal/socketio"
)

// asCommand makes the test binary the command itself.
const asCommand = "SUITESERVER_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestDefaultsAreWhatTheSuitesExpect(t *testing.T) {
	want := socketio.Options{
		PingInterval: 300 * time.Millisecond, PingTimeout: 200 * time.Millisecond, ConnectTimeout: time.Second,
		MaxPayload: 1_000_000,
	}
	addr, o, err := flags(nil)
	if err != nil || addr != "localhost:3000" || o.PingInterval != want.PingInterval ||
		o.PingTimeout != want.PingTimeout || o.ConnectTimeout != want.ConnectTimeout || o.MaxPayload != want.MaxPayload {
		t.Errorf("got %s, %+v, %v; want %+v", addr, o, err, want)
	}
}

// launch runs the command and returns where it listens.
func launch(t *testing.T, flags ...string) string {
	t.Helper()
	args := append([]string{"-addr", "127.0.0.1:0"}, flags...)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], args...) // it ends by a signal
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server did not end well: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// The cases of the official suites, run by a JavaScript client. The heartbeat timeout is longer than in the suites, and
// the other cases see no heartbeats, so that a busy machine causes no failure.
func TestTheOfficialSuitesPassCompletely(t *testing.T) {
	dir, err := filepath.Abs(filepath.Join("..", "..", "..", "interop", "js"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "ws", "package.json")); err != nil {
		install := exec.CommandContext(t.Context(), "npm", "ci", "--no-audit", "--no-fund")
		install.Dir = dir
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("npm ci: %v\n%s", err, out)
		}
	}
	node := exec.CommandContext(
		t.Context(), "node", "suite.mjs", launch(t, "-ping-timeout", "2s"),
		"--patient", launch(t, "-ping", "1m", "-ping-timeout", "1m", "-connect-timeout", "1m"),
	)
	node.Dir = dir
	out, err := node.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "57 of 57 passed") {
		t.Errorf("%v\n%s", err, out)
	}
}
