package cli_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
)

// dev starts `sojourn dev` and returns it with a client and the ID of the sample's run, once it is ready.
func dev(t *testing.T, dir, addr string, e env) (*process, client, string) {
	t.Helper()
	p := launch(t, dir, e, "dev", "--addr", addr)
	ready := p.line(p.out, `^ready (http://\S+) (http://\S+)/runs/(\S+)$`)
	if ready[1] != ready[2] {
		t.Errorf("the ready line names two apps: %s", ready[0])
	}
	return p, client{t: t, base: ready[1]}, ready[3]
}

func TestDevPrintsFiveLinesAndRunsTheSample(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p, c, run := dev(t, dir, "127.0.0.1:0", nil)
	var out []string
	until(t, "dev has printed its lines", func() bool { out, _ = p.out.all(); return len(out) >= 6 })
	for i, want := range []string{
		"release ", "database   sqlite:.sojourn/sojourn.db", "dashboard  " + c.base + "/",
		"API        " + c.base + "/api, socket " + c.base + "/api/socket.io",
		"worker     local, ", "ready " + c.base + " " + c.base + "/runs/" + run,
	} {
		if !strings.HasPrefix(out[i], want) {
			t.Errorf("line %d is %q, want %q", i+1, out[i], want)
		}
	}
	if !strings.Contains(out[4], "slots") {
		t.Errorf("the worker's line is %q", out[4])
	}
	events := c.completed("sample", run)
	for _, path := range []string{"/runs/" + run, "/"} {
		if status, page, err := c.call(t.Context(), http.MethodGet, path, nil); err != nil || status != 200 ||
			!strings.Contains(strings.ToLower(string(page)), "<html") {
			t.Errorf("GET %s: %d %.100s %v", path, status, page, err)
		}
	}
	seen := map[string]int{}
	for _, e := range events {
		seen[e.Type()]++
	}
	for typ, n := range map[string]int{
		"SessionStarted": 1, "ActivityCompleted": 3, "TimerFired": 1, "SignalReceived": 1, "SessionEnded": 1,
		"WorkflowCompleted": 1, "ActivityRetryScheduled": 0,
	} {
		if seen[typ] != n {
			t.Errorf("the sample's history has %d %s, want %d", seen[typ], typ, n)
		}
	}
	standing(t, c)
	c.must(http.MethodPost, "/api/workflows/sample-approval/signal/approve", map[string]any{"request_id": "r"}, nil)
	until(t, "the approved run is over", func() bool { return c.describe("sample-approval").Status == "completed" })
	asked := time.Now()
	if code := p.terminate(); code != 0 || time.Since(asked) > 25*time.Second {
		t.Errorf("SIGTERM: exit %d after %s, want 0 within 25 s", code, time.Since(asked))
	}
	if out, _ = p.out.all(); len(out) != 6 {
		t.Errorf("dev printed %d lines, want 6:\n%s", len(out), strings.Join(out, "\n"))
	}

	p, c, second := dev(t, dir, "127.0.0.1:0", nil)
	if second == run {
		t.Error("the second start shows the run that was closed")
	}
	if v := c.describe("sample-2"); v.RunID != second {
		t.Errorf("the second start's run %s is not that of sample-2, %s", second, v.RunID)
	}
	if v, old := c.describe("sample-approval-2"), c.describe("sample-retry"); v.Status == "" || old.Terminal {
		t.Errorf("the second start: approval %q, retry %q", v.Status, old.Status)
	}
	if code := p.terminate(); code != 0 {
		t.Errorf("SIGTERM in the middle of the sample: exit %d", code)
	}
	_, c, third := dev(t, dir, "127.0.0.1:0", nil)
	if third != second {
		t.Errorf("the third start shows %s, want %s, which was open", third, second)
	}
	c.completed("sample-2", second)
}

// standing waits for the additional runs of dev: a run that waits for a signal, a step that failed and is retried, and
// a live session.
func standing(t *testing.T, c client) {
	t.Helper()
	until(t, "a run waits for its signal", func() bool {
		w := c.describe("sample-approval").Pending.Waits
		return len(w) == 1 && w[0].SignalName == "approve"
	})
	until(t, "a step failed and is tried again", func() bool {
		a := c.describe("sample-retry").Pending.Activities
		return len(a) == 1 && a[0].State == "delayed" && a[0].LastFailure != ""
	})
	until(t, "a session is held", func() bool {
		var list struct {
			Sessions []struct {
				Owner string `json:"lease_owner"`
			} `json:"sessions"`
		}
		c.must(http.MethodGet, "/api/worker-sessions?status=active", nil, &list)
		return len(list.Sessions) == 1 && list.Sessions[0].Owner == "local"
	})
}

// With a folder of handlers, dev prints the number of handlers, ignored files with reasons, and the isolation of
// handlers.
func TestDevPrintsTheHandlersItFound(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"node", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(program + " is not on this machine")
		}
	}
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{
		"a.mjs": 0o600, "b.js": 0o600, "c.py": 0o600, "x.sh": 0o700, "README.md": 0o600, "node_modules/left/index.js": 0o600,
		"lib/python3.11/site-packages/left/pad.py": 0o600,
	} {
		path := filepath.Join(dir, "handlers", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	p := launch(t, dir, nil, "dev", "--addr", "127.0.0.1:0", "--handlers", "handlers")
	p.line(p.out, `^handlers   3 \(2 Node, 1 Python\), left out: x\.sh \(no runtime\)$`)
	p.line(p.out, `^isolation  (confined|process), egress `)
	p.line(p.out, `^ready `)
	if err := os.WriteFile(filepath.Join(dir, "handlers", "new.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p.line(p.err, `"changed":\["new"\].*"message":"handlers reloaded: 4 \(2 Node, 2 Python\)`)
	if code := p.terminate(); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}
	if out, _ := p.out.all(); len(out) != 8 {
		t.Errorf("dev printed %d lines, want 8:\n%s", len(out), strings.Join(out, "\n"))
	}
	p = launch(t, dir, env{"SOJOURN_APP_URL": "http://127.0.0.1:1"}, "worker", "--handlers", "handlers")
	p.line(p.err, `"message":"handlers loaded: 4 \(2 Node, 2 Python\), left out: x\.sh \(no runtime\)"`)
}

// An app with a worker in its process exports the worker's metrics too, so that a container has one address to scrape.
func TestMetricsOfAnAppAreThoseOfItsOwnWorkerToo(t *testing.T) {
	t.Parallel()
	_, c, _ := dev(t, t.TempDir(), "127.0.0.1:0", nil)
	status, raw, err := c.call(t.Context(), http.MethodGet, "/metrics", nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("/metrics: %d %v", status, err)
	}
	for _, want := range []string{
		`sojourn_worker_slots{kind="activity",namespace="default"} `, `sojourn_executor_running{namespace="default",`,
	} {
		if !strings.Contains(string(raw), "\n"+want) {
			t.Errorf("/metrics has no %s", want)
		}
	}
}

func TestDevPrintsItsLinesBeforeItsLog(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := launchAs(t, "/bin/sh", t.TempDir(), nil, "-c", `exec "$0" dev --addr 127.0.0.1:0 2>&1`, self)
	p.line(p.out, `"message":"connected to the app"`)
	p.line(p.out, `^ready `)
	out, _ := p.out.all()
	for i, first := range []string{"release", "database", "dashboard", "API", "worker", "ready"} {
		if !strings.HasPrefix(out[i], first) {
			t.Errorf("line %d is %q, want that of %s", i+1, out[i], first)
		}
	}
}

func TestSampleSurvivesKillsAtRandomMoments(t *testing.T) {
	t.Parallel()
	for n := range 3 {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			dir, addr := t.TempDir(), address(t)
			first, kills := "", 0
			var before []history.Event // events that were recorded when the process was killed
			over := func(c client, run string) bool {
				if first == "" {
					first = run
				}
				if run != first && c.describe("sample").Status != "completed" {
					// dev starts another sample only when the one before has ended
					t.Fatalf("after %d kills the sample is run %s, want %s", kills, run, first)
				}
				return run != first
			}
			for len(before) < 14 {
				p, c, run := dev(t, dir, addr, nil)
				if over(c, run) {
					p.kill()
					break
				}
				// Each round must make progress: a task that is killed three times is quarantined for an operator.
				stop := len(before) + 1 + rand.IntN(4)
				before = c.history("sample", run, func(all []history.Event) bool { return len(all) >= stop })
				p.kill()
				kills++
			}
			p, c, run := dev(t, dir, addr, nil)
			over(c, run)
			events := c.completed("sample", first)
			for i, e := range before {
				if e.Type() != events[i].Type() || e.At != events[i].At {
					t.Errorf(
						"event %d was %s at %s before the kill and is %s at %s", i+1, e.Type(), e.At, events[i].Type(), events[i].At,
					)
				}
			}
			done := map[int64]int{}
			for _, e := range events {
				if d, ok := e.Data.(*history.ActivityCompleted); ok {
					done[d.Sequence]++
				}
			}
			if len(done) != 3 || done[2] != 1 || done[3] != 1 || done[5] != 1 {
				t.Errorf("completions by command: %v, want one each of 2, 3 and 5", done)
			}
			t.Logf("killed %d times", kills)
			if code := p.terminate(); code != 0 {
				t.Errorf("exit %d", code)
			}
		})
	}
}

// A recorded step never runs again, which the ledger file proves, and a replay returns the results that were recorded
// before the kill.
func TestKilledProcessNeverRepeatsACompletedActivity(t *testing.T) {
	t.Parallel()
	apptest.Databases(t, killedProcessNeverRepeats)
}

func killedProcessNeverRepeats(t *testing.T, database string) {
	t.Parallel()
	dir, addr := t.TempDir(), address(t)
	path := filepath.Join(dir, "ledger")
	e := env{ledgerPath: path, "SOJOURN_AUTH": "none", "SOJOURN_ADDR": addr, "SOJOURN_ISOLATION": "none"}
	if !strings.HasPrefix(database, "sqlite:") {
		e["SOJOURN_DATABASE_URL"] = database
	}
	c := client{t: t, base: "http://" + addr}
	const steps = 8
	run := ""
	for kill := range 4 {
		p := launch(t, dir, e)
		c.up()
		if run == "" {
			run = c.start("kept", "ledger", steps, 1).RunID
		}
		want := 3 + 5*kill
		c.history("kept", run, func(all []history.Event) bool { return len(all) >= want })
		p.kill()
	}
	launch(t, dir, e)
	c.up()
	c.must(http.MethodPost, "/api/workflows/kept/signal/go", map[string]any{"request_id": "r"}, nil)
	checkLedger(t, c.completed("kept", run), ledger(t, path))
}

func TestIdleDevLeavesTheDatabaseAlone(t *testing.T) {
	t.Parallel()
	_, c, run := dev(t, t.TempDir(), "127.0.0.1:0", nil)
	c.completed("sample", run)
	const statements, commits, reads = "sojourn_store_statements_total", "sojourn_store_commits_total", "sojourn_store_reads_total"
	const renewals = "sojourn_session_renewals_total"
	before := c.metrics(statements, commits)
	// the last lines of the sample's worker session are stored after its end
	until(t, "the store is at rest", func() bool {
		was := before
		before = c.metrics(statements, commits)
		return fmt.Sprint(was) == fmt.Sprint(before)
	})
	for last := 6; ; last-- {
		// one-time work, such as the cleanup a minute after the start, may fall into some of these intervals
		before = c.metrics(statements, commits, reads, renewals)
		wait, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		<-wait.Done() // this test needs ten idle seconds
		cancel()
		after := c.metrics(statements, commits, reads, renewals)
		// The session of a sample run is renewed every ten seconds, with one commit of two statements. Each scrape
		// reads the store for queues, sessions and suspects, before or after it reads these counters.
		renewed := after[renewals] - before[renewals]
		if after[statements]-before[statements] <= 2*renewed && after[commits]-before[commits] <= renewed && renewed <= 2 &&
			after[reads]-before[reads] <= 4+16*renewed {
			return
		}
		if last == 1 {
			t.Fatalf("ten idle seconds, the last of six times: before %v, after %v", before, after)
		}
	}
}
