package cli_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// server is a separate PostgreSQL server that a test may stop.
type server struct {
	t     *testing.T
	url   string
	first int // its first process, the parent of all others
}

// ownPostgres starts a server that ends with the test.
func ownPostgres(t *testing.T) *server {
	t.Helper()
	if os.Getenv("SOJOURN_TEST_POSTGRES") == "" && !strings.Contains(os.Getenv("SOJOURN_TEST_REQUIRE"), "postgres") {
		t.Skip("no postgres: SOJOURN_TEST_POSTGRES names no server")
	}
	c := exec.Command("../../.ci/postgres", "sh", "-c", `echo "$SOJOURN_TEST_POSTGRES"; exec cat`)
	c.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SOJOURN_TEST_POSTGRES=") })
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t}
	t.Cleanup(func() {
		if s.first > 0 {
			s.signal(syscall.SIGCONT)
		}
		_ = in.Close() // its command ends, and the server with it
		if err := c.Wait(); err != nil {
			t.Errorf("postgres: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no server was started: %v", err)
	}
	s.url = strings.TrimSpace(line)
	db, err := pgx.Connect(t.Context(), s.url)
	if err != nil {
		t.Fatal(err)
	}
	var dir string
	if err := db.QueryRow(t.Context(), "SHOW data_directory").Scan(&dir); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	pid, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(pid), "\n")
	if s.first, err = strconv.Atoi(first); err != nil {
		t.Fatal(err)
	}
	return s
}

// signal sends a signal to every process of the server. The postmaster receives it first, so that it starts no process
// between the stopped ones.
func (s *server) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := syscall.Kill(s.first, sig); err != nil {
		s.t.Fatal(err)
	}
	all, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range all {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(raw), ") ") // after the name: the state, and the parent
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(s.first) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			s.t.Fatal(err)
		}
		_ = syscall.Kill(pid, sig) // it may have ended
	}
}

// If every process of the database server is stopped, the app soon reports that it is not ready. It is ready again when
// the server continues.
func TestAnAppBeforeAStoppedPostgresIsNotReady(t *testing.T) {
	t.Parallel()
	db := ownPostgres(t)
	f := newFleet(t)
	f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
	f.client.token = f.app["SOJOURN_TOKEN"]
	f.app["SOJOURN_DATABASE_URL"] = db.url
	launch(t, f.dir, f.app, "app")
	f.client.up()
	// Less than the network timeout of ten seconds: the app responds without its database.
	patient := http.Client{Timeout: 8 * time.Second}
	ready := func(path string) int {
		t.Helper()
		began := time.Now()
		resp, err := patient.Get(f.client.base + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		t.Logf("%s: %d after %s", path, resp.StatusCode, time.Since(began).Round(time.Millisecond))
		return resp.StatusCode
	}
	if got := ready("/readyz"); got != http.StatusOK {
		t.Fatalf("before: %d", got)
	}
	for round := range 2 {
		db.signal(syscall.SIGSTOP)
		for range 3 {
			if got := ready("/readyz"); got != http.StatusServiceUnavailable {
				t.Errorf("the server stands still: %d", got)
			}
		}
		if got := ready("/healthz"); got != http.StatusOK {
			t.Errorf("the process lives: %d", got)
		}
		db.signal(syscall.SIGCONT)
		until(t, "the app is ready again", func() bool { return ready("/readyz") == http.StatusOK })
		name := fmt.Sprintf("after-%d", round)
		f.client.start(name, "nobody.runs.this")
		if got := f.client.describe(name).Status; got == "" {
			t.Error("what was started is not there")
		}
	}
}
