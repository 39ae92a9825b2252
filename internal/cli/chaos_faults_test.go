package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// chaosFor is for how long the chaos test injects faults; chaosSeed makes their choice repeatable.
const (
	chaosFor  = "SOJOURN_TEST_CHAOS"
	chaosSeed = "SOJOURN_TEST_CHAOS_SEED"
)

// chaosMember is an app or a worker that faults are injected into, one at a time.
type chaosMember struct {
	name    string
	start   func(release string) *process
	process *process
	wires   []*wire
	busy    bool // a fault is active, or the process restarts
}

// chaosGroup is the apps, or the workers in one language.
type chaosGroup struct {
	members []*chaosMember
	random  *rand.Rand
	faults  []string
	longest time.Duration // maximum duration of a fault
}

// chaos is two apps, workers in three languages and the faults injected into them. Everything but the signals of
// clients runs in the goroutine of the test.
type chaos struct {
	*fleet
	bases    [2]string
	members  []*chaosMember
	events   chan func()
	end      time.Time // end of the faults
	longest  time.Duration
	open     int // active faults, and the release change
	release  string
	injected map[string]int
	restarts map[string]int // restarts of processes that exited without an injected fault, by member
	runs     map[string]string

	mu      sync.Mutex // guards signals
	signals map[string][]string
}

// after runs fn in the goroutine of the test.
func (c *chaos) after(d time.Duration, fn func()) { time.AfterFunc(d, func() { c.events <- fn }) }

// drive runs the functions of c.events until done returns true.
func (c *chaos) drive(done func() bool) {
	for tick := time.NewTicker(50 * time.Millisecond); !done(); {
		select {
		case fn := <-c.events:
			fn()
		case <-tick.C:
		}
	}
}

// begin starts the process of a member and restarts it, as a process supervisor does, when it exits without a fault.
func (c *chaos) begin(m *chaosMember) {
	p := m.start(c.release)
	m.process, m.busy = p, false
	go func() {
		<-p.ended
		if c.t.Context().Err() == nil {
			c.events <- func() { c.revive(m) }
		}
	}()
}

// revive restarts a process that exited without an injected fault.
func (c *chaos) revive(m *chaosMember) {
	select {
	case <-m.process.ended:
	default:
		return // it was restarted
	}
	if m.busy { // the end of the fault restarts it
		return
	}
	m.busy = true
	c.restarts[m.name]++
	c.t.Logf("%s ended by itself: %s\n%s", m.name, m.process.cmd.ProcessState, m.process)
	c.after(time.Second, func() { c.begin(m) })
}

// signalTo sends a signal to the process of a member.
func (c *chaos) signalTo(m *chaosMember, s syscall.Signal) {
	if err := m.process.cmd.Process.Signal(s); err != nil {
		c.t.Logf("signal %s to %s: %v", s, m.name, err)
	}
}

// inject starts a fault and calls done when the member works again.
func (c *chaos) inject(m *chaosMember, fault string, d time.Duration, done func()) {
	m.busy = true
	c.open++
	c.injected[strings.SplitN(m.name, "-", 2)[0]+" "+fault]++
	c.t.Logf("%s %s for %.1f s", m.name, fault, d.Seconds())
	well := func() {
		m.busy = false
		c.open--
		c.revive(m)
		done()
	}
	restart := func() {
		c.begin(m)
		well()
	}
	switch fault {
	case "kill":
		m.process.kill()
		c.after(d, restart)
	case "deploy":
		c.signalTo(m, syscall.SIGTERM)
		go func() {
			select {
			case <-m.process.ended:
			case <-time.After(ceiling):
				m.process.kill()
				c.t.Errorf("%s did not end within %s of SIGTERM", m.name, ceiling)
			}
			c.events <- restart
		}()
	case "freeze":
		c.signalTo(m, syscall.SIGSTOP)
		c.after(d, func() {
			c.signalTo(m, syscall.SIGCONT)
			well()
		})
	case "reset":
		for _, w := range m.wires {
			w.reset()
		}
		c.after(d, func() {
			for _, w := range m.wires {
				w.accept()
			}
			well()
		})
	case "swallow":
		for _, w := range m.wires {
			w.cut()
		}
		c.after(d, func() {
			for _, w := range m.wires {
				w.mend()
			}
			well()
		})
	}
}

// strike injects one fault at a time into members of a group until c.end.
func (c *chaos) strike(g *chaosGroup) {
	m, fault := g.members[g.random.IntN(len(g.members))], g.faults[g.random.IntN(len(g.faults))]
	pause := time.Duration((0.02 + 0.08*g.random.Float64()) * float64(c.longest))
	length := c.length(g, fault)
	switch {
	case !time.Now().Before(c.end):
	case m.busy: // it has another fault
		c.after(pause, func() { c.strike(g) })
	default:
		c.inject(m, fault, length, func() { c.after(pause, func() { c.strike(g) }) })
	}
}

// length returns the duration of a fault. A killed process is usually restarted at once, sometimes only after others
// could acquire its sessions.
func (c *chaos) length(g *chaosGroup, fault string) time.Duration {
	part := g.random.Float64()
	switch {
	case fault == "kill" && part < 0.7 || fault == "deploy":
		part = 0
	case fault == "freeze":
		part = max(part, 1./15)
	default:
		part *= 0.7
	}
	return time.Duration(part * float64(g.longest))
}

// roll replaces every member with a process of the next release: apps first, each member once it has no other fault.
func (c *chaos) roll(left []*chaosMember) {
	switch {
	case len(left) == 0:
		c.open--
	case left[0].busy:
		c.after(time.Second/4, func() { c.roll(left) })
	default:
		c.inject(left[0], "deploy", 0, func() { c.roll(left[1:]) })
	}
}

// send sends signals to workflows until ctx ends and records the signals that an app acknowledged.
func (c *chaos) send(ctx context.Context, random *rand.Rand) {
	ids := slices.Sorted(maps.Keys(c.runs))
	for n := 0; ctx.Err() == nil; n++ {
		id := ids[random.IntN(len(ids))]
		request, at := fmt.Sprint(id, "-", n), client{t: c.t, base: c.bases[random.IntN(2)], token: c.client.token}
		patience, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		status, raw, err := at.call(patience, http.MethodPost, "/api/workflows/"+id+"/signal/deposit", map[string]any{
			"input": []any{request}, "request_id": request,
		})
		done()
		switch {
		case err == nil && status < 300:
			c.mu.Lock()
			c.signals[id] = append(c.signals[id], request)
			c.mu.Unlock()
		case err == nil && status != http.StatusServiceUnavailable:
			c.t.Errorf("signal to %s: %d %.300s", id, status, raw)
		}
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// newChaos starts the apps and workers.
func newChaos(t *testing.T, python string) *chaos {
	f := newFleet(t)
	c := &chaos{
		fleet: f, events: make(chan func(), 100), release: "1.0.0", injected: map[string]int{}, restarts: map[string]int{},
		runs: map[string]string{}, signals: map[string][]string{},
	}
	for _, e := range []env{f.app, f.worker} {
		delete(e, "SOJOURN_ATTEMPT_LEASE")
		delete(e, "SOJOURN_SESSION_LEASE")
		delete(e, "SOJOURN_SESSION_BUFFER")
		delete(e, "SOJOURN_ISOLATION")
	}
	f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
	f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
	f.worker["SOJOURN_TOKEN"], f.client.token = f.app["SOJOURN_TOKEN"], f.app["SOJOURN_TOKEN"]
	outside := filepath.Join(t.TempDir(), "outside") // executors may run as separate users
	f.ledger, f.hold = filepath.Join(outside, "ledger"), filepath.Join(outside, "hold")
	f.worker[ledgerPath] = f.ledger
	if err := os.MkdirAll(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{outside: 0o777, f.ledger: 0o666} {
		if path == f.ledger {
			if err := os.WriteFile(path, nil, mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	handlers := filepath.Join(t.TempDir(), "handlers")
	if err := os.CopyFS(handlers, os.DirFS(filepath.Join("testdata", "chaos"))); err != nil {
		t.Fatal(err)
	}
	for i := range c.bases {
		at := address(t)
		c.bases[i] = "http://" + at
		c.add(fmt.Sprint("app-", i), nil, func(release string) *process {
			return launch(t, f.dir, f.app.with(env{
				"SOJOURN_ADDR": at, "SOJOURN_RELEASE": release, "SOJOURN_DATA_DIR": filepath.Join(f.dir, fmt.Sprint("app-", i)),
			}), "app")
		})
	}
	f.client.base = c.bases[0]
	f.client.up()
	apps := []string{c.bases[0][len("http://"):], c.bases[1][len("http://"):]}
	for i, name := range []string{"go-0", "go-1", "go-2", "js-0", "js-1"} {
		wires := []*wire{newWire(t, apps[i%2]), newWire(t, apps[1-i%2])}
		e := env{
			"SOJOURN_APP_URL": "http://" + wires[0].addr + ",http://" + wires[1].addr, "SOJOURN_WORKER_ID": name,
			"SOJOURN_LINK": []string{"socket", "http"}[i%2], "SOJOURN_DATA_DIR": filepath.Join(f.dir, name),
			"SOJOURN_QUEUES": "default", "SOJOURN_WORKER_CONCURRENCY": "32",
		}
		if strings.HasPrefix(name, "js") {
			e = e.with(env{"SOJOURN_QUEUES": "js", "SOJOURN_HANDLERS": handlers, "SOJOURN_EXECUTOR_WRITE": outside})
		}
		c.add(name, wires, func(release string) *process {
			return f.startWorker(e.with(env{"SOJOURN_RELEASE": release}))
		})
	}
	socketWorker := chaosSocketWorker(t)
	for i := range 2 {
		name, w := fmt.Sprint("socket-", i), newWire(t, apps[i%2], apps[1-i%2])
		c.add(name, []*wire{w}, func(string) *process {
			cmd := exec.Command("node", socketWorker)
			cmd.Env = append(os.Environ(), "SOJOURN_APP_URL=http://"+w.addr, "SOJOURN_WORKER_ID="+name,
				"SOJOURN_TOKEN="+f.client.token)
			return launchCommand(t, name, cmd)
		})
	}
	for i := range 3 {
		name, w := fmt.Sprint("py-", i), newWire(t, apps[i%2], apps[1-i%2])
		c.add(name, []*wire{w}, func(string) *process {
			return launchCommand(t, name, exec.Command(
				python, filepath.Join("..", "..", "interop", "python", "chaos_worker.py"),
				"http://"+w.addr, f.client.token, "py", name,
			))
		})
	}
	return c
}

// chaosSocketWorker is the example of a worker over the socket with an additional activity, the step of this test.
func chaosSocketWorker(t *testing.T) string {
	t.Helper()
	dir, example := t.TempDir(), filepath.Join("..", "..", "examples", "socket-worker")
	modules, err := filepath.Abs(filepath.Join("..", "..", "interop", "js", "node_modules"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(modules, "socket.io-client")); err != nil {
		t.Fatalf("no socket.io-client: run npm ci in interop/js: %v", err)
	}
	raw, err := os.ReadFile(filepath.Join(example, "worker.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	code := string(raw)
	for old, replacement := range map[string]string{
		"const activities = {\n":         "import { step } from \"./step.mjs\";\nconst activities = {\n  \"chaos.step\": step,\n",
		"({ state, progress, signal }, ": "({ state, progress, signal, task, session }, ",
	} {
		if strings.Count(code, old) != 1 {
			t.Fatalf("the example has %d lines with %q", strings.Count(code, old), old)
		}
		code = strings.Replace(code, old, replacement, 1)
	}
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "worker.mjs"), []byte(code), 0o600),
		os.Symlink(modules, filepath.Join(dir, "node_modules")),
		os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "chaos-socket"))),
	); err != nil {
		t.Fatal(err)
	}
	payload, err := os.ReadFile(filepath.Join(example, "payload.mjs"))
	if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "payload.mjs"), payload, 0o600)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "worker.mjs")
}

func (c *chaos) add(name string, wires []*wire, start func(string) *process) {
	m := &chaosMember{name: name, wires: wires, start: start}
	c.members = append(c.members, m)
	c.begin(m)
}

// Workers in Go, JavaScript and Python (the published SDK) hold sessions with loaded state, with two apps on
// PostgreSQL, while all of them are killed, frozen, disconnected and deployed. A ledger outside of Sojourn shows that
// no acknowledged result is lost, no two processes run a session under one epoch, epochs never decrease and each
// holding loads its state once. SOJOURN_TEST_CHAOS is the duration of the faults: "make chaos" injects them for six
// minutes.
func TestSessionsUnderChaos(t *testing.T) {
	length, err := time.ParseDuration(os.Getenv(chaosFor))
	if err != nil {
		t.Skip(chaosFor + " is not set; make chaos sets it")
	}
	seed, err := strconv.ParseUint(os.Getenv(chaosSeed), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("%s=%d", chaosSeed, seed)
	workflows, pause, longest, finish := 150, 4*time.Second, 75*time.Second, 4*time.Minute
	if length < time.Minute {
		workflows, pause, longest, finish = 18, time.Second, 6*time.Second, 2*time.Minute
	}
	c := newChaos(t, apptest.Python(t, filepath.Join("..", "..", "interop", "python", "requirements.txt")))
	queues := []string{"default", "py", "js", "default", "py", "socket"}
	for i := range workflows {
		id := fmt.Sprint("chaos-", i)
		in := chaosInput{
			Dir: filepath.Dir(c.ledger), Queue: queues[i%len(queues)], Step: "chaos.step",
			Session: []string{"id", "options", "workflow"}[i/len(queues)%3], Pause: pause,
		}
		if in.Queue == "default" {
			in.Step = "chaos.go"
		}
		c.runs[id] = c.client.start(id, "chaos", in).RunID
	}
	seen := func() int {
		runs := map[string]bool{}
		for _, l := range ledger(t, c.ledger) {
			if l.What == "step" { // lines of acknowledged results do not name their run
				runs[l.Run] = true
			}
		}
		return len(runs)
	}
	began := time.Now()
	c.drive(func() bool { return time.Since(began) > ceiling || seen() == workflows || len(c.restarts) > 0 })
	if n := seen(); n != workflows {
		t.Fatalf("%d of %d workflows began a step", n, workflows)
	}

	ctx, stop := context.WithCancel(t.Context())
	var senders sync.WaitGroup
	senders.Go(func() { c.send(ctx, rand.New(rand.NewPCG(seed, 99))) })
	c.end, c.longest = time.Now().Add(length), longest
	groups, all := map[string]*chaosGroup{}, []string{"kill", "deploy", "freeze", "reset", "swallow"}
	for _, m := range c.members {
		kind := strings.SplitN(m.name, "-", 2)[0]
		if groups[kind] == nil {
			groups[kind] = &chaosGroup{
				faults: all, longest: longest, random: rand.New(rand.NewPCG(seed, uint64(len(groups)))),
			}
		}
		groups[kind].members = append(groups[kind].members, m)
	}
	groups["app"].faults, groups["app"].longest = all[:3], min(longest, 20*time.Second)
	for _, kind := range slices.Sorted(maps.Keys(groups)) {
		c.strike(groups[kind])
		if kind != "app" { // two workers in each language have faults at once
			c.strike(groups[kind])
		}
	}
	c.after(length/2, func() {
		c.release = "1.1.0"
		c.open++
		c.roll(c.members)
	})
	c.drive(func() bool { return time.Now().After(c.end) && c.open == 0 })
	stop()
	senders.Wait()
	c.fleet.release()
	c.judge(finish)
}

// judge waits for the end of the workflows and compares histories and ledger.
func (c *chaos) judge(patience time.Duration) {
	t := c.t
	healed, asked := time.Now(), time.Time{}
	at := client{t: t, base: c.bases[0], token: c.client.token}
	open := map[string]protocol.RunView{}
	for id := range c.runs {
		open[id] = protocol.RunView{}
	}
	c.drive(func() bool {
		if time.Since(asked) < time.Second {
			return false
		}
		asked = time.Now()
		for id := range open {
			status, raw, err := at.call(t.Context(), http.MethodGet, "/api/workflows/"+id, nil)
			var v protocol.RunView
			if err == nil && status == http.StatusOK && json.Unmarshal(raw, &v) == nil {
				open[id] = v
			}
			if v.Terminal {
				delete(open, id)
			}
		}
		return len(open) == 0 || time.Since(healed) > patience
	})
	var f chaosFigures
	lines := ledger(t, c.ledger)
	executions := map[string][]line{}
	for _, l := range lines {
		executions[l.Execution] = append(executions[l.Execution], l)
	}
	for _, id := range slices.Sorted(maps.Keys(c.runs)) {
		if v, ok := open[id]; ok {
			t.Errorf("workflow %s did not end: %+v", id, v)
			continue
		}
		f.judgeRun(t, id, at.history(id, c.runs[id], nil), executions, c.signals[id])
	}
	for _, session := range slices.Compact(f.judgeLines(t, lines)) {
		_, raw, err := at.call(t.Context(), http.MethodGet, "/api/worker-sessions/"+url.PathEscape(session)+"/timeline", nil)
		t.Logf("session %s: %s %v", session, raw, err)
		for _, l := range lines {
			if l.Session == session {
				t.Logf("%+v", l)
			}
		}
	}
	faults := 0
	for _, n := range c.injected {
		faults += n
	}
	t.Logf("%d faults: %v; processes that ended by themselves: %v", faults, c.injected, c.restarts)
	t.Logf("%s; the last workflow ended within %.0f s of the last fault", &f, time.Since(healed).Seconds())
	for name, n := range c.restarts {
		if !strings.HasPrefix(name, "py") { // the SDK ends when the app cannot be reached at its start
			t.Errorf("%s ended by itself %d times", name, n)
		}
	}
}
