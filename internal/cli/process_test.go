package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ceiling is the timeout of tests for expected events.
const ceiling = 2 * time.Minute

// env holds environment variables in addition to the few that every process gets.
type env map[string]string

func (e env) with(more env) env {
	all := env{}
	for _, m := range []env{e, more} {
		for k, v := range m {
			all[k] = v
		}
	}
	return all
}

// output collects the output of a process by lines, and wakes goroutines that wait for a line.
type output struct {
	mu    sync.Mutex // guards the fields below
	lines []string
	rest  string
	moved chan struct{} // closed and replaced at each line
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := strings.Split(o.rest+string(p), "\n")
	o.rest = all[len(all)-1]
	if len(all) > 1 {
		o.lines = append(o.lines, all[:len(all)-1]...)
		close(o.moved)
		o.moved = make(chan struct{})
	}
	return len(p), nil
}

func (o *output) all() ([]string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.lines...), o.moved
}

// count returns the number of matching lines.
func (o *output) count(pattern string) int {
	n, lines := 0, regexp.MustCompile(pattern)
	all, _ := o.all()
	for _, l := range all {
		if lines.MatchString(l) {
			n++
		}
	}
	return n
}

// process is one run of the program under test.
type process struct {
	t        *testing.T
	name     string
	cmd      *exec.Cmd
	out, err *output
	ended    chan struct{} // closed when the process has ended
}

// launch starts the program in directory dir with environment e. Only paths are inherited from the tests' environment.
func launch(t *testing.T, dir string, e env, args ...string) *process {
	t.Helper()
	return launchAs(t, "", dir, e, args...)
}

// launchAs is launch of another build of the program; "" is this one. With -short it skips the test, as most processes
// that a test launches run for seconds; run does not.
func launchAs(t *testing.T, binary, dir string, e env, args ...string) *process {
	t.Helper()
	if testing.Short() {
		t.Skip("launches processes")
	}
	return startProgram(t, binary, dir, e, args...)
}

func startProgram(t *testing.T, binary, dir string, e env, args ...string) *process {
	t.Helper()
	if binary == "" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		binary = self
	}
	cmd := exec.Command(binary, args...)
	cmd.Dir = dir
	cmd.Env = []string{
		asSojourn + "=1", "SOJOURN_LOG_FORMAT=json", "SOJOURN_RELEASE=1.0.0", "PATH=" + os.Getenv("PATH"), "HOME=" + dir,
	}
	if tmp := os.Getenv("TMPDIR"); tmp != "" {
		cmd.Env = append(cmd.Env, "TMPDIR="+tmp)
	}
	for k, v := range e {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	return launchCommand(t, strings.Join(args, " "), cmd)
}

// launchCommand starts any program.
func launchCommand(t *testing.T, name string, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{
		t: t, name: name, cmd: cmd, ended: make(chan struct{}),
		out: &output{moved: make(chan struct{})}, err: &output{moved: make(chan struct{})},
	}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.err
	p.cmd.WaitDelay = 5 * time.Second // an executor that outlives its worker for a moment holds the pipes open
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // its exit status is in ProcessState
	}()
	t.Cleanup(func() {
		p.kill()
		if p.err.count(`^panic:|^fatal error:|DATA RACE`) > 0 {
			t.Errorf("%s broke", p.name)
		}
		if t.Failed() {
			t.Log(p.String())
		}
	})
	return p
}

// String returns the last lines of the process's output.
func (p *process) String() string {
	var b strings.Builder
	for name, o := range map[string]*output{"stdout": p.out, "stderr": p.err} {
		all, _ := o.all()
		cut := max(0, len(all)-40)
		fmt.Fprintf(
			&b, "%s (pid %d) %s, %d lines left out:\n  %s\n", p.name, p.cmd.Process.Pid, name, cut,
			strings.Join(all[cut:], "\n  "),
		)
	}
	return b.String()
}

// kill ends the process as a power failure would, and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// exit waits until the process exits and returns its exit code; -1 if a signal ended it.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(ceiling):
		p.t.Fatalf("%s does not end", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// terminate asks the process to end, as supervisors do, and returns its exit code.
func (p *process) terminate() int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	return p.exit()
}

// line waits for a line that matches and returns its groups.
func (p *process) line(o *output, pattern string) []string {
	p.t.Helper()
	lines, late := regexp.MustCompile(pattern), time.After(ceiling)
	for {
		all, moved := o.all()
		for _, l := range all {
			if m := lines.FindStringSubmatch(l); m != nil {
				return m
			}
		}
		select {
		case <-moved:
		case <-p.ended:
			if now, _ := o.all(); len(now) == len(all) {
				p.t.Fatalf("%s ended (%s) without a line %q", p.name, p.cmd.ProcessState, pattern)
			}
		case <-late:
			p.t.Fatalf("%s: no line %q", p.name, pattern)
		}
	}
}

// run runs a command to its end.
func run(t *testing.T, dir string, e env, args ...string) (code int, out, err string) {
	t.Helper()
	p := startProgram(t, "", dir, e, args...)
	code = p.exit()
	o, _ := p.out.all()
	x, _ := p.err.all()
	return code, strings.Join(o, "\n"), strings.Join(x, "\n")
}

var taken sync.Map // ports handed out

// address returns a free address that a process can use again after a restart: its port is below the ephemeral ports of
// the kernel and returned only once.
func address(t *testing.T) string {
	t.Helper()
	for range 200 {
		port := 20000 + rand.IntN(12000)
		if _, old := taken.LoadOrStore(port, true); old {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	t.Fatal("no free port")
	return ""
}

// ledger reads the file that activities wrote; every line is complete, since each was written by one call.
func ledger(t *testing.T, path string) []line {
	t.Helper()
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var all []line
	for text := range strings.Lines(string(raw)) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("ledger: %q: %v", text, err)
		}
		all = append(all, l)
	}
	return all
}

// until polls until cond returns true, for conditions without an API to wait for them.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); !cond(); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("it never came to be that %s", what)
		}
	}
}
