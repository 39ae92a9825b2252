package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/sys/unix"
)

// terminal returns both ends of a pseudo-terminal: output to screen is read from other.
func terminal(t *testing.T) (screen, other *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	other = os.NewFile(uintptr(fd), "/dev/ptmx")
	t.Cleanup(func() { _ = other.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if screen, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	return screen, other
}

// typed runs a command in a terminal and returns its output.
func (s shell) typed(e env, args ...string) string {
	s.t.Helper()
	return s.typedIn(0, e, args...)
}

// typedIn runs a command in a terminal with a number of columns; 0: unknown.
func (s shell) typedIn(columns uint16, e env, args ...string) string {
	s.t.Helper()
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	screen, other := terminal(s.t)
	if err := unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		s.t.Fatal(err)
	}
	c := exec.Command(self, args...)
	c.Dir, c.Stdout, c.Env = s.dir, screen, []string{asSojourn + "=1", "PATH=" + os.Getenv("PATH"), "HOME=" + s.dir}
	for _, some := range []env{s.env, e} {
		for k, v := range some {
			c.Env = append(c.Env, k+"="+v)
		}
	}
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	_ = screen.Close()
	var all strings.Builder
	for buf := make([]byte, 4096); ; {
		n, err := other.Read(buf)
		all.Write(buf[:n])
		if err != nil { // the other end is closed
			break
		}
	}
	if err := c.Wait(); err != nil {
		s.t.Fatalf("%v: %v: %s", args, err, all.String())
	}
	return all.String()
}

// coloured checks that a status has a colour in a terminal, but neither in a pipe nor with NO_COLOR.
func (s shell) coloured(word, colour string, args ...string) {
	s.t.Helper()
	const end = "\x1b[0m"
	if out := s.typed(nil, args...); !strings.Contains(out, colour+word+end) {
		s.t.Errorf("%v at a terminal: %s is not coloured: %q", args, word, out)
	}
	for how, out := range map[string]string{
		"with NO_COLOR": s.typed(env{"NO_COLOR": "1"}, args...), "in a pipe": s.try(0, "", args...),
		"as JSON": s.typed(nil, append(args, "--json")...),
	} {
		if !strings.Contains(out, word) || strings.Contains(out, "\x1b") {
			s.t.Errorf("%v %s: %q", args, how, out)
		}
	}
}

// A table fits the width of its terminal; in a pipe and as JSON it is complete.
func TestATableFitsItsTerminal(t *testing.T) {
	t.Parallel()
	s := startShell(t)
	long := strings.Repeat("order-of-a-customer/with-a-long-name,", 5) + "日本語"
	s.try(0, "started_new", "workflow", "start", "nothing.runs.this", "--id", long)
	s.try(0, "terminated", "workflow", "terminate", long, "--reason", strings.Repeat("the customer went away, ", 8)+"all")
	list := []string{"workflow", "list", "--status", "terminated"}
	for _, columns := range []uint16{72, 90, 132, 200} {
		out := s.typedIn(columns, nil, list...)
		for line := range strings.Lines(out) {
			if n := text.StringWidthWithoutEscSequences(strings.TrimRight(line, "\r\n")); n > int(columns) {
				t.Errorf("%d columns at a terminal of %d: %s", n, columns, line)
			}
		}
		for _, want := range []string{"order-of-a-cus", "terminated", "…", "WORKFLOW ID", "Workflow termi"} {
			if !strings.Contains(out, want) {
				t.Errorf("at %d columns nothing says %s:\n%s", columns, want, out)
			}
		}
	}
	if out := s.typedIn(90, nil, list...); strings.Contains(out, "QUEUE") {
		t.Errorf("at 90 columns the queue takes room from others:\n%s", out)
	}
	for how, out := range map[string]string{
		"in a pipe": s.try(0, "", list...), "as JSON": s.typedIn(90, nil, append(list, "--json")...),
		"at a terminal that does not say": s.typedIn(0, nil, list...), "at a wide one": s.typedIn(900, nil, list...),
	} {
		if !strings.Contains(out, long) || !strings.Contains(out, "away, all") || strings.Contains(out, "…") {
			t.Errorf("%s: %s", how, out)
		}
	}
}
