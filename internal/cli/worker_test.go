package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	proc "github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// fleet starts an app and workers as separate processes, with tokens and with leases short enough for tests.
type fleet struct {
	t      *testing.T
	dir    string
	ledger string
	hold   string
	app    env
	worker env
	client client
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	dir, addr := t.TempDir(), address(t)
	short := env{"SOJOURN_ATTEMPT_LEASE": "2s", "SOJOURN_DATA_DIR": filepath.Join(dir, "data")}
	f := &fleet{
		t: t, dir: dir, ledger: filepath.Join(dir, "ledger"), hold: filepath.Join(dir, "go on"),
		client: client{t: t, base: "http://" + addr},
	}
	f.app = short.with(env{"SOJOURN_ADDR": addr})
	f.worker = short.with(env{
		"SOJOURN_APP_URL": "http://" + addr, "SOJOURN_SESSION_LEASE": "2s", "SOJOURN_SESSION_BUFFER": "1s",
		"SOJOURN_ISOLATION": "none",
		ledgerPath:          f.ledger, holdPath: f.hold,
	})
	return f
}

// ways runs a test with workers that connect to the app over a socket, and with workers over plain HTTP.
func ways(t *testing.T, test func(t *testing.T, f *fleet)) {
	for _, way := range []string{"socket", "http"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.worker["SOJOURN_LINK"] = way
			test(t, f)
		})
	}
}

// sojourn runs a command against the app, which must succeed, and returns its output.
func (f *fleet) sojourn(args ...string) string {
	f.t.Helper()
	code, out, err := run(f.t, f.dir, env{"SOJOURN_TOKEN": f.client.token}, append(args, "--app-url", f.client.base)...)
	if code != 0 {
		f.t.Fatalf("%q ends with %d: %s%s", args, code, out, err)
	}
	return out
}

// startApp starts an app and reads the token from its data directory.
func (f *fleet) startApp(more env) *process {
	f.t.Helper()
	p := launch(f.t, f.dir, f.app.with(more), "app")
	f.client.up()
	raw, err := os.ReadFile(filepath.Join(f.app["SOJOURN_DATA_DIR"], proc.TokenFile))
	if err != nil {
		f.t.Fatal(err)
	}
	f.client.token = strings.TrimSpace(string(raw))
	return p
}

func (f *fleet) startWorker(more env) *process {
	f.t.Helper()
	return launch(f.t, f.dir, f.worker.with(more), "worker")
}

// held waits until a worker runs the hold activity, and returns the ledger.
func (f *fleet) held(times int) []line {
	f.t.Helper()
	var all []line
	until(f.t, "the hold began", func() bool {
		all = ledger(f.t, f.ledger)
		n := 0
		for _, l := range all {
			if l.What == "hold" {
				n++
			}
		}
		return n >= times
	})
	return all
}

func (f *fleet) release() {
	f.t.Helper()
	if err := os.WriteFile(f.hold, nil, 0o600); err != nil {
		f.t.Fatal(err)
	}
}

// counts returns the counts of a stay workflow.
func counts(t *testing.T, events []history.Event) (all []int, rebuilt int) {
	t.Helper()
	for _, e := range events {
		switch d := e.Data.(type) {
		case *history.WorkflowCompleted:
			if err := payload.Decode(payload.Payload{Blob: d.Output}, &all); err != nil {
				t.Fatal(err)
			}
		case *history.SessionRecovered:
			rebuilt++
		}
	}
	return all, rebuilt
}

func want(t *testing.T, events []history.Event, rebuilds int, numbers ...int) {
	t.Helper()
	all, rebuilt := counts(t, events)
	same := len(all) == len(numbers)
	for i := range all {
		same = same && all[i] == numbers[i]
	}
	if !same || rebuilt != rebuilds {
		t.Errorf("counted %v with %d rebuilds, want %v with %d", all, rebuilt, numbers, rebuilds)
	}
}

func TestStateOfAKilledWorkerIsRebuilt(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, f *fleet) {
		f.startApp(nil)
		first := f.startWorker(nil)
		run := f.client.start("stay", "stay").RunID
		f.held(1)
		first.kill()
		second := f.startWorker(nil)
		lines := f.held(2)
		f.release()
		events := f.client.completed("stay", run)
		want(t, events, 1, 1, 1, 2)
		builds := map[int]int{}
		for _, l := range lines {
			if l.What == "build" {
				builds[l.Process]++
			}
		}
		if builds[first.cmd.Process.Pid] != 1 || builds[second.cmd.Process.Pid] != 1 {
			t.Errorf(
				"state was built %v times by process, want once by %d and once by %d", builds, first.cmd.Process.Pid,
				second.cmd.Process.Pid,
			)
		}
		for execution, all := range outcomes(events) {
			if len(all) != 1 {
				t.Errorf("activity %s has %d outcomes", execution, len(all))
			}
		}
		if code := second.terminate(); code != 0 {
			t.Errorf("the worker exits with %d", code)
		}
	})
}

func TestWorkerKeepsItsSessionWhileTheAppIsRestarted(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, f *fleet) {
		app := f.startApp(nil)
		// Leases that outlast the restart, however busy this machine is: the state must not move.
		worker := f.startWorker(env{"SOJOURN_ATTEMPT_LEASE": "60s", "SOJOURN_SESSION_LEASE": "60s"})
		run := f.client.start("stay", "stay").RunID
		f.held(1)
		app.kill()
		app = f.startApp(nil)
		f.release()
		want(t, f.client.completed("stay", run), 0, 1, 2, 3)
		for _, l := range ledger(t, f.ledger) {
			if l.Process != worker.cmd.Process.Pid || l.Attempt != 1 {
				t.Errorf("attempt %d of %s ran in process %d", l.Attempt, l.What, l.Process)
			}
		}
		second := f.client.start("again", "one", "x").RunID
		f.client.completed("again", second)
		if code := app.terminate(); code != 0 {
			t.Errorf("the app exits with %d", code)
		}
		if code := worker.terminate(); code != 0 {
			t.Errorf("the worker without an app exits with %d", code)
		}
		if n := worker.err.count(`"worker_id".*"worker_id"`); n > 0 {
			t.Errorf("%d lines of the log name the worker twice", n)
		}
	})
}

func TestWorkFlowsBetweenEqualReleasesOnly(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, f *fleet) {
		app := f.startApp(env{"SOJOURN_RELEASE": "1.0.0"})
		worker := f.startWorker(env{"SOJOURN_RELEASE": "1.0.1", "SOJOURN_WORKER_ID": "w"})
		run := f.client.start("gated", "one", "x").RunID
		worker.line(worker.err, `1\.0\.0.*1\.0\.1|1\.0\.1.*1\.0\.0`)
		var v protocol.WorkerView
		until(t, "the worker is listed as mismatched", func() bool {
			for _, w := range f.client.workers() {
				v = w
			}
			return v.Status == protocol.WorkerMismatched
		})
		if !strings.Contains(v.Gate, "1.0.0") || !strings.Contains(v.Gate, "1.0.1") {
			t.Errorf("the gate says %q", v.Gate)
		}
		app.line(app.err, `"worker_id":"w".*1\.0\.1`)
		if n := len(f.client.history("gated", run, func([]history.Event) bool {
			return true
		})); n != 1 || len(ledger(t, f.ledger)) > 0 {
			t.Errorf("work flowed between different releases: %d events", n)
		}
		for p, o := range map[*process]*output{app: app.err, worker: worker.err} {
			if n := o.count(`"level":"warn".*1\.0\.1`); n != 1 {
				t.Errorf("%s said %d times that the releases differ, want 1", p.name, n)
			}
		}
		app.kill()
		f.startApp(env{"SOJOURN_RELEASE": "1.0.1"})
		f.client.completed("gated", run)
		until(t, "the worker is listed as active", func() bool {
			for _, w := range f.client.workers() {
				v = w
			}
			return v.Status == protocol.WorkerActive && v.Gate == ""
		})
	})
}

// If the only app of a worker changed to another release, the worker receives tasks within ten seconds after an app of
// the worker's release starts, with default settings.
func TestAWorkerLeavesAnAppOfAnotherReleaseWithin10Seconds(t *testing.T) {
	t.Parallel()
	for _, carrier := range []string{"socket", "http"} {
		t.Run(carrier, func(t *testing.T) {
			t.Parallel()
			f := newFleet(t)
			f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
			f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
			home, other := address(t), address(t)
			app := func(addr, release string) (*process, client) {
				p := launch(t, f.dir, f.app.with(env{"SOJOURN_ADDR": addr, "SOJOURN_RELEASE": release}), "app")
				c := client{t: t, base: "http://" + addr, token: f.app["SOJOURN_TOKEN"]}
				c.up()
				return p, c
			}
			first, _ := app(home, "1.0.0")
			worker := f.startWorker(env{
				"SOJOURN_APP_URL": "http://" + home + ",http://" + other, "SOJOURN_TOKEN": f.app["SOJOURN_TOKEN"],
				"SOJOURN_LINK": carrier, "SOJOURN_WORKER_ID": "w",
			})
			worker.line(worker.err, `"message":"connected to the app"`)
			first.kill()
			foreign, foreignClient := app(home, "2.0.0")
			until(t, "the worker is held by the gate, and has found nothing better", func() bool {
				list := foreignClient.workers()
				return len(list) == 1 && list[0].Status == protocol.WorkerMismatched &&
					worker.err.count(`"message":"connected to the app"`) >= 3
			})
			for _, message := range []string{"worker connected", "worker disconnected", "deploy the same release"} {
				if n := foreign.err.count(message); n > 1 {
					t.Errorf("the app of another release logged %q for one worker %d times", message, n)
				}
			}
			_, own := app(other, "1.0.0")
			there := time.Now()
			own.completed("one", own.start("one", "one", "x").RunID)
			took := time.Since(there)
			t.Logf("it works again after %s", took)
			if took > 8*time.Second { // it checks every 5 s; a worker held by the gate pauses for 10 s
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestWorkerContinuesAtAnotherAppOfTheDatabase(t *testing.T) {
	t.Parallel()
	database := env{
		"SOJOURN_DATABASE_URL": apptest.Postgres(t), "SOJOURN_TOKEN": "sjn_bootstrap_of_this_test_and_long_enough",
	}
	f := newFleet(t)
	var apps []*process
	var urls []string
	for range 2 {
		addr := address(t)
		urls = append(urls, "http://"+addr)
		apps = append(apps, launch(t, f.dir, f.app.with(database).with(env{"SOJOURN_ADDR": addr}), "app"))
	}
	at := func(i int) client { return client{t: t, base: urls[i], token: database["SOJOURN_TOKEN"]} }
	at(0).up()
	at(1).up()
	worker := f.startWorker(env{
		"SOJOURN_APP_URL": strings.Join(urls, ","), "SOJOURN_TOKEN": database["SOJOURN_TOKEN"],
		"SOJOURN_ATTEMPT_LEASE": "60s", "SOJOURN_SESSION_LEASE": "60s",
	})
	home, other := 0, 1
	if worker.line(worker.err, `"app":"(http://[^"]+)".*"message":"connected to the app"`)[1] == urls[1] {
		home, other = 1, 0
	}
	run := at(other).start("stay", "stay").RunID // at the app to which the worker is not connected
	f.held(1)
	apps[home].kill()
	worker.line(worker.err, `"app":"`+urls[other]+`".*"message":"connected to the app"`)
	f.release()
	want(t, at(other).completed("stay", run), 0, 1, 2, 3)
	if code := worker.terminate(); code != 0 {
		t.Errorf("the worker exits with %d", code)
	}
	if code := apps[other].terminate(); code != 0 {
		t.Errorf("the app exits with %d", code)
	}
}
