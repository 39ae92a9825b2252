package cli_test

import (
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// operated is two apps on one database and a worker of a group, which alone serves its queue and has wires to both.
type operated struct {
	*plant
	apps  [2]*process
	at    [2]client
	wires [2]*wire
	w     *process
	probe string
	token string // the id of the worker's
	runs  map[string]string
}

// groups runs a test with a worker of a group, for each kind of connection to its app.
func groups(t *testing.T, test func(t *testing.T, o *operated)) {
	t.Parallel()
	ways(t, func(t *testing.T, f *fleet) {
		o := &operated{plant: &plant{fleet: f}, runs: map[string]string{}}
		f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
		f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
		for i := range o.apps {
			o.at[i] = client{t: t, base: "http://" + address(t), token: f.app["SOJOURN_TOKEN"]}
			o.serve(i)
			o.wires[i] = newWire(t, o.at[i].base[len("http://"):])
		}
		var made struct {
			Token string `json:"token"`
		}
		o.at[0].must(http.MethodPost, "/api/tokens", map[string]any{
			"name": "gpu", "roles": []string{"worker"}, "group": "gpu",
		}, &made)
		o.token, o.probe = strings.Split(made.Token, "_")[1], address(t)
		o.w = f.startWorker(env{
			"SOJOURN_WORKER_ID": "g", "SOJOURN_TOKEN": made.Token, "SOJOURN_QUEUES": "gpu", "SOJOURN_WORKER_ADDR": o.probe,
			"SOJOURN_APP_URL": "http://" + o.wires[0].addr + ",http://" + o.wires[1].addr,
		})
		o.w.line(o.w.err, `"message":"connected to the app"`)
		until(t, "the worker is ready", func() bool { return probed(t, o.probe) == http.StatusOK })
		test(t, o)
	})
}

func (o *operated) serve(i int) {
	o.t.Helper()
	o.apps[i] = launch(o.t, o.dir, o.fleet.app.with(env{
		"SOJOURN_ADDR": o.at[i].base[len("http://"):], "SOJOURN_DATA_DIR": o.t.TempDir(),
	}), "app")
	o.at[i].up()
}

// home returns the app to which the worker is connected.
func (o *operated) home() int {
	o.t.Helper()
	lines, _ := o.w.err.all()
	for i := len(lines) - 1; i >= 0; i-- {
		for app, w := range o.wires {
			if strings.Contains(lines[i], `"message":"connected to the app"`) && strings.Contains(lines[i], w.addr) {
				return app
			}
		}
	}
	o.t.Fatal("the worker is connected to no app")
	return 0
}

// say sends an operator's command (drain or resume) for the worker group gpu to an app.
func (o *operated) say(app int, verb string) {
	o.t.Helper()
	o.at[app].must(http.MethodPost, "/api/sojourn/fleet/"+verb, map[string]any{"group": "gpu", "reason": "test"}, nil)
}

// begin starts three runs in the task queue of the worker group gpu.
func (o *operated) begin(app int, name string) {
	o.t.Helper()
	for i := range 3 {
		id := fmt.Sprintf("%s-%d", name, i)
		var a protocol.StartResponse
		o.at[app].must(http.MethodPost, "/api/workflows", map[string]any{
			"workflow_id": id, "workflow_type": "one", "task_queue": "gpu", "input": []any{id},
		}, &a)
		o.runs[id] = a.RunID
	}
}

// drained waits until an app shows the worker as drained, and then for the maximum delay of a hint.
func (o *operated) drained(app int) {
	o.t.Helper()
	until(o.t, "the worker is shown as drained", func() bool {
		for _, v := range o.at[app].workers() {
			if v.WorkerID == "g" && v.Drain != nil {
				return true
			}
		}
		return false
	})
	time.Sleep(time.Second)
}

// idle checks that no task has run since a time.
func (o *operated) idle(since time.Time, what string) {
	o.t.Helper()
	for _, l := range ledger(o.t, o.ledger) {
		if l.At.After(since) {
			o.t.Errorf("%s: a step began on the drained worker %s after the word", what, l.At.Sub(since))
		}
	}
}

// ended waits for all runs.
func (o *operated) ended(app int) {
	o.t.Helper()
	for id, run := range o.runs {
		o.at[app].completed(id, run)
	}
	clear(o.runs)
}

// An app process is stopped while an operator drains a group at another app. The drain command returns at once. A
// second after the stopped app continues, it dispatches nothing more to the worker whose polls it holds. Until then it
// may dispatch a task before it has read the drain.
func TestDrainReachesAWorkerOfAFrozenApp(t *testing.T) {
	groups(t, func(t *testing.T, o *operated) {
		for round := range 2 {
			home := o.home()
			frozen := o.apps[home].cmd.Process
			if err := frozen.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			o.say(1-home, "drain")
			o.begin(1-home, fmt.Sprint("early-", round))
			if err := frozen.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			o.drained(home)
			since := time.Now()
			o.begin(1-home, fmt.Sprint("frozen-", round))
			time.Sleep(time.Second) // it would receive the task within this time
			until(t, "/readyz says so", func() bool { return probed(t, o.probe) == http.StatusServiceUnavailable })
			o.idle(since, "after the thaw")
			o.say(1-home, "resume")
			o.ended(home)
		}
	})
}

// An app is killed right after it has responded to a drain: from then on the other app observes the drain.
func TestADrainThatWasAnsweredOutlivesItsApp(t *testing.T) {
	groups(t, func(t *testing.T, o *operated) {
		for round := range 2 {
			at := round % 2
			o.say(at, "drain")
			since := time.Now()
			o.apps[at].kill()
			o.begin(1-at, fmt.Sprint("killed-", round))
			o.drained(1 - at)
			until(t, "/readyz says so", func() bool { return probed(t, o.probe) == http.StatusServiceUnavailable })
			o.idle(since, "with its app killed")
			o.serve(at)
			o.drained(at)
			o.idle(since, "with its app back")
			o.say(at, "resume")
			o.ended(1 - at)
		}
	})
}

// The worker's network is disconnected while an operator resumes and drains the worker. The commands succeed, and after
// the connection is restored the worker follows the last one.
func TestRequestsToADisconnectedWorkerApplyAfterReconnect(t *testing.T) {
	groups(t, func(t *testing.T, o *operated) {
		o.say(0, "drain")
		o.drained(1)
		cut := func(verb, wants string) {
			for _, w := range o.wires {
				w.cut()
			}
			o.say(1, verb)
			until(t, "the apps have missed it", func() bool {
				for _, v := range o.at[0].workers() {
					if v.WorkerID == "g" {
						return time.Since(v.LastHeartbeatAt.Time) > 12*time.Second
					}
				}
				return false
			})
			for _, w := range o.wires {
				w.mend()
			}
			until(t, wants, func() bool {
				return (probed(t, o.probe) == http.StatusOK) == (verb == "resume")
			})
		}
		o.begin(0, "while drained")
		cut("resume", "it works again")
		o.ended(0)
		cut("drain", "it knows that it is drained")
		since := time.Now()
		o.begin(1, "while cut off")
		o.drained(0)
		o.idle(since, "back after the cut")
		o.say(0, "resume")
		o.ended(0)
	})
}

// When the token of a group is revoked, its worker starts no more tasks, and another worker repeats its unfinished
// tasks.
func TestARevokedGroupStopsAndItsWorkIsDoneByAnother(t *testing.T) {
	groups(t, func(t *testing.T, o *operated) {
		held := map[string]string{}
		for i := range 3 {
			id := fmt.Sprint("held-", i)
			var a protocol.StartResponse
			o.at[0].must(http.MethodPost, "/api/workflows", map[string]any{
				"workflow_id": id, "workflow_type": "killed.one", "task_queue": "gpu", "input": []any{id},
			}, &a)
			held[id] = a.RunID
		}
		o.noted("item", 3)
		o.at[1-o.home()].must(http.MethodDelete, "/api/tokens/"+o.token, nil, nil)
		since := time.Now()
		o.begin(0, "after")
		until(t, "/readyz says so", func() bool { return probed(t, o.probe) == http.StatusServiceUnavailable })
		other := o.startWorker(env{
			"SOJOURN_WORKER_ID": "other", "SOJOURN_TOKEN": o.at[0].token, "SOJOURN_QUEUES": "gpu",
			"SOJOURN_APP_URL": o.at[1].base, "SOJOURN_DATA_DIR": t.TempDir(),
		})
		o.let("item", "other")
		o.ended(0)
		for id, run := range held {
			o.at[0].completed(id, run)
		}
		for _, l := range ledger(t, o.ledger) {
			if l.Worker == "g" && l.At.After(since.Add(2*time.Second)) {
				t.Errorf("%s ran on the worker whose token is revoked, %s after that", l.What, l.At.Sub(since))
			}
		}
		o.let("item", "g")
		if code := other.terminate(); code != 0 {
			t.Errorf("the other ends with %d", code)
		}
	})
}
