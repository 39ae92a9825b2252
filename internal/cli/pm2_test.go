package cli_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// pm2 is a PM2 of a test's own, whose daemon ends with the test.
type pm2 struct {
	t   *testing.T
	bin string
	dir string
	env []string
}

// supervised is the state of a process as PM2 reports it.
type supervised struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	Env  struct {
		Status   string `json:"status"`
		Restarts int    `json:"restart_time"`
	} `json:"pm2_env"`
}

func (p *pm2) do(args ...string) string {
	p.t.Helper()
	cmd := exec.CommandContext(p.t.Context(), "node", append([]string{p.bin}, args...)...)
	cmd.Dir, cmd.Env = p.dir, p.env
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		p.t.Fatalf("pm2 %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

func (p *pm2) list() map[string]supervised {
	p.t.Helper()
	var all []supervised
	out := p.do("jlist")
	_, list, _ := strings.Cut(out, "[") // log lines precede the list
	if err := json.Unmarshal([]byte("["+list), &all); err != nil {
		p.t.Fatalf("pm2 jlist: %v\n%s", err, out)
	}
	found := map[string]supervised{}
	for _, s := range all {
		found[s.Name] = s
	}
	return found
}

// until waits for a state of PM2's processes.
func (p *pm2) until(what string, ok func(map[string]supervised) bool) map[string]supervised {
	p.t.Helper()
	for late := time.Now().Add(ceiling); time.Now().Before(late); time.Sleep(200 * time.Millisecond) {
		if all := p.list(); ok(all) {
			return all
		}
	}
	logs, _ := filepath.Glob(filepath.Join(p.dir, "pm2", "logs", "*.log"))
	for _, log := range logs {
		text, _ := os.ReadFile(log)
		p.t.Logf("%s\n%s", log, text[max(0, len(text)-4000):])
	}
	p.t.Fatalf("not within %s: %s; %v", ceiling, what, p.list())
	return nil
}

// heldHandler is an activity in an executor that waits until a file with the given name exists in its folder.
const heldHandler = `import { existsSync } from 'node:fs'
export async function main(name, ctx) {
  while (!existsSync(new URL(name, import.meta.url))) await new Promise((then) => setTimeout(then, 50))
  return name
}
`

// hold starts an activity in an executor of the worker and waits until it runs. It returns a function that lets the
// activity finish as soon as the worker drains.
func (p *pm2) hold(c client, handlers, name string) (goOn func(), run string) {
	p.t.Helper()
	var a protocol.StartResponse
	c.must(http.MethodPost, "/api/sojourn/activities", map[string]any{
		"workflow_id": name, "activity_type": "held", "input": []string{name},
	}, &a)
	until(p.t, name+" runs", func() bool {
		v := c.describe(name)
		return v.Pending != nil && len(v.Pending.Activities) == 1 && v.Pending.Activities[0].State == "leased"
	})
	drains := strings.Count(p.log("worker"), "INF draining")
	return func() {
		until(p.t, "the worker drains", func() bool { return strings.Count(p.log("worker"), "INF draining") > drains })
		if err := os.WriteFile(filepath.Join(handlers, name), nil, 0o600); err != nil {
			p.t.Error(err)
		}
	}, a.RunID
}

// log returns the log of a role.
func (p *pm2) log(role string) string {
	p.t.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, "pm2", "logs", "sojourn-"+role+"-error.log"))
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// meanwhile runs do, an action of the operator, concurrently with other.
func meanwhile(other, do func()) {
	var both sync.WaitGroup
	both.Go(other)
	do()
	both.Wait()
}

// PM2 kills a process 15 s after the end of its drain, also if the drain timeout is set.
func TestPM2WaitsForADrain(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node")
	}
	for timeout, want := range map[string]string{"": "40000", "1m30s": "105000", "500ms": "15500"} {
		cmd := exec.CommandContext(
			t.Context(), node, "-p", "require('../../ecosystem.config.js').apps.map((a) => a.kill_timeout).join()",
		)
		cmd.Env = []string{"SOJOURN_DRAIN_TIMEOUT=" + timeout}
		out, err := cmd.Output()
		if got := strings.TrimSpace(string(out)); err != nil || got != want+","+want {
			t.Errorf("drain timeout %q: kill timeouts %s (%v), want %s", timeout, got, err, want)
		}
	}
}

// TestPM2KeepsBothRolesUp runs the shipped ecosystem.config.js with the real PM2: it restarts killed processes; a
// reload and a stop let running executors finish; a stop ends both roles within kill_timeout; an invalid setting does
// not cause a restart loop.
func TestPM2KeepsBothRolesUp(t *testing.T) {
	if testing.Short() {
		t.Skip("runs PM2 for half a minute")
	}
	t.Parallel()
	bin, err := filepath.Abs("../../interop/pm2/node_modules/pm2/bin/pm2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(bin); err != nil {
		t.Skip("no PM2 for node here: npm ci --prefix interop/pm2 fetches it")
	}
	dir, addr := t.TempDir(), address(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(self, filepath.Join(dir, "sojourn")); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile("../../ecosystem.config.js")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "ecosystem.config.js"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	handlers := filepath.Join(dir, "handlers")
	if err := errors.Join(
		os.Mkdir(handlers, 0o755), os.WriteFile(filepath.Join(handlers, "held.mjs"), []byte(heldHandler), 0o644), //nolint:gosec // an executor may be another user
	); err != nil {
		t.Fatal(err)
	}
	p := &pm2{t: t, bin: bin, dir: dir, env: []string{
		"PM2_HOME=" + filepath.Join(dir, "pm2"), "HOME=" + dir, "PATH=" + os.Getenv("PATH"), "PM2_DISCRETE_MODE=1",
		asSojourn + "=1", ledgerPath + "=" + filepath.Join(dir, "ledger"), "SOJOURN_RELEASE=1.0.0", "SOJOURN_AUTH=none",
		"SOJOURN_ADDR=" + addr, "SOJOURN_APP_URL=http://" + addr,
		"SOJOURN_DATA_DIR=" + filepath.Join(dir, "data"), "SOJOURN_HANDLERS=" + handlers, "SOJOURN_ISOLATION=process",
		"SOJOURN_ISOLATION_MIN_LEVEL=process", "SOJOURN_EXECUTOR_UIDS=none",
	}}
	t.Cleanup(func() {
		cmd := exec.Command("node", bin, "kill")
		cmd.Dir, cmd.Env = dir, p.env
		_ = cmd.Run() // there is nothing left to stop
	})
	ready := func() bool {
		answer, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return false
		}
		_ = answer.Body.Close() // the body is not read
		return answer.StatusCode == http.StatusOK
	}
	both := func(all map[string]supervised) bool {
		return all["sojourn-app"].Env.Status == "online" && all["sojourn-worker"].Env.Status == "online" && ready()
	}
	c := client{t: t, base: "http://" + addr}
	works := func(id string) {
		t.Helper()
		c.completed(id, c.start(id, "one", id).RunID)
	}

	p.do("start", "ecosystem.config.js")
	first := p.until("both roles are up", both)
	works("before")

	for _, name := range []string{"sojourn-app", "sojourn-worker"} {
		if err := syscall.Kill(first[name].PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	second := p.until("both roles are up after a kill", func(all map[string]supervised) bool {
		return both(all) && all["sojourn-app"].PID != first["sojourn-app"].PID &&
			all["sojourn-worker"].PID != first["sojourn-worker"].PID
	})
	works("killed")

	drained, reloaded := p.hold(c, handlers, "reload")
	meanwhile(drained, func() { p.do("reload", "ecosystem.config.js") })
	p.until("both roles are up after a reload", func(all map[string]supervised) bool {
		return both(all) && all["sojourn-app"].PID != second["sojourn-app"].PID &&
			all["sojourn-worker"].PID != second["sojourn-worker"].PID
	})
	c.completed("reload", reloaded)
	works("reloaded")

	drained, stopped := p.hold(c, handlers, "stop")
	// returns when the processes have ended, or were killed after kill_timeout; one after the other, the worker first
	meanwhile(drained, func() { p.do("stop", "sojourn-worker", "sojourn-app") })
	for name, s := range p.list() {
		if s.Env.Status != "stopped" {
			t.Errorf("%s is %s after a stop", name, s.Env.Status)
		}
	}
	log, err := os.ReadFile(filepath.Join(dir, "pm2", "pm2.log"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(log), "still alive") {
		t.Errorf("a role did not end within kill_timeout:\n%s", log)
	}

	// The end of a connection is logged once, not for each open call.
	text := p.log("worker")
	if strings.Contains(text, " failed ") || !strings.Contains(text, "connection to the app lost") {
		t.Errorf("the log of the worker says\n%s", text)
	}
	p.do("start", "ecosystem.config.js")
	p.until("both roles are up again", both)
	c.completed("stop", stopped)

	p.do("delete", "all")
	p.env = append(p.env, "SOJOURN_ADDR=nonsense", "SOJOURN_CONTAINER_TYPE=APP")
	p.do("start", "ecosystem.config.js")
	p.until("a mistake in the settings stays down", func(all map[string]supervised) bool {
		app := all["sojourn-app"]
		return app.PID == 0 && app.Env.Status != "online" && app.Env.Status != "launching" && app.Env.Restarts <= 1
	})
}
