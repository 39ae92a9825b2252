package cli_test

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// finishing is within which orders are finished after the last kill: workers of a published SDK are missed after 75 s
// of silence.
const finishing = 90 * time.Second

// orders are sagas whose workers are processes of the published Python SDK.
type orders struct {
	*plant
	python  string
	runs    map[string]string        // run ID by order
	refused map[string]string        // step of an order that is refused; "": none
	workers map[string]chan struct{} // closed when the worker has ended
	cmds    map[string]*exec.Cmd
}

// works starts a worker and waits until it is registered: a worker without a response to its first registration exits.
func (o *orders) works(id string) {
	o.t.Helper()
	c := exec.Command(o.python, "worker.py", o.client.base, o.client.token, "orders", id, "10")
	c.Dir = filepath.Join("..", "..", "interop", "python")
	c.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
	out := &output{moved: make(chan struct{})}
	c.Stdout, c.Stderr = out, out
	if err := c.Start(); err != nil {
		o.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = c.Wait() // it is killed
	}()
	o.t.Cleanup(func() {
		_ = c.Process.Kill()
		<-ended
		if o.t.Failed() {
			lines, _ := out.all()
			o.t.Logf("worker %s said:\n  %s", id, strings.Join(lines[max(0, len(lines)-40):], "\n  "))
		}
	})
	o.cmds[id], o.workers[id] = c, ended
	until(o.t, id+" is registered", func() bool { return out.count("worker "+id+" registered on") > 0 })
}

// kills kills a worker and starts another one.
func (o *orders) kills(id, next string) (at time.Time) {
	o.t.Helper()
	at = time.Now()
	if err := o.cmds[id].Process.Kill(); err != nil {
		o.t.Fatal(err)
	}
	<-o.workers[id]
	o.works(next)
	return at
}

// restarts kills the app and starts it again.
func (o *orders) restarts() (at time.Time) {
	o.t.Helper()
	at = time.Now()
	o.plant.app.kill()
	o.plant.app = launch(o.t, o.dir, o.fleet.app, "app")
	o.client.up()
	return at
}

// inHand waits until a worker runs a step, each of which takes half a second. It adds orders while the worker runs
// none.
func (o *orders) inHand(id string, order func()) {
	o.t.Helper()
	last := time.Now()
	until(o.t, id+" has a step in hand", func() bool {
		if time.Since(last) > 5*time.Second { // the others may be at the end, or in other hands
			order()
			last = time.Now()
		}
		all := ledger(o.t, o.ledger)
		return slices.ContainsFunc(all, func(l line) bool {
			return l.Worker == id && time.Since(l.At) < 300*time.Millisecond
		})
	})
}

// outcome returns the steps that an order must run, in order, and the steps that are not compensated in the end.
func outcome(refused string) (steps, stand []string) {
	undo := map[string]string{"reserve": "release", "charge": "refund"}
	for _, name := range []string{"reserve", "charge", "ship"} {
		steps = append(steps, name)
		if name == refused {
			for i := len(stand) - 1; i >= 0; i-- {
				steps = append(steps, undo[stand[i]])
			}
			return steps, []string{}
		}
		stand = append(stand, name)
	}
	return steps, stand
}

// judge waits for the end of an order, and compares its history with the ledger.
func (o *orders) judge(order string, lines []line) (ended time.Time) {
	t := o.t
	t.Helper()
	events := o.client.completed(order, o.runs[order])
	wantOutcome, standing := outcome(o.refused[order])
	var stand []string
	done, _ := events[len(events)-1].Data.(*history.WorkflowCompleted)
	if err := payload.Decode(payload.Payload{Blob: done.Output}, &stand); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(stand, standing) {
		t.Errorf("order %s, of which %q was refused, ended with %q, want %q", order, o.refused[order], stand, standing)
	}
	ran := map[string][]line{} // lines by attempt
	for _, l := range lines {
		if l.Run == o.runs[order] {
			execution := l.AttemptID[:strings.LastIndexByte(l.AttemptID, '-')]
			ran[execution] = append(ran[execution], l)
		}
	}
	var steps []string
	ends := outcomes(events)
	for _, e := range events {
		d, ok := e.Data.(*history.ActivityScheduled)
		if !ok {
			continue
		}
		if len(ends[d.ExecutionID]) != 1 || len(ran[d.ExecutionID]) == 0 {
			t.Errorf(
				"order %s: step %s has %d outcomes, and ran %d times", order, d.ExecutionID, len(ends[d.ExecutionID]),
				len(ran[d.ExecutionID]),
			)
			continue
		}
		mine := ran[d.ExecutionID]
		last := mine[len(mine)-1]
		steps = append(steps, strings.TrimPrefix(last.What, order+" "))
		var of history.Attempt
		switch d := ends[d.ExecutionID][0].(type) {
		case *history.ActivityCompleted:
			of = d.Attempt
		case *history.ActivityFailed:
			of = d.Attempt
		}
		if last.AttemptID != of.AttemptID {
			t.Errorf(
				"order %s: %s is recorded by attempt %s, and ran as %s after that", order, last.What, of.AttemptID, last.AttemptID,
			)
		}
		for i, l := range mine {
			if i > 0 && l.AttemptID == mine[i-1].AttemptID {
				t.Errorf("order %s: attempt %s ran twice", order, l.AttemptID)
			}
		}
	}
	if !slices.Equal(steps, wantOutcome) {
		t.Errorf("order %s, of which %q was refused, ran %q, want %q", order, o.refused[order], steps, wantOutcome)
	}
	return events[len(events)-1].At.Time
}

// Orders are sagas of the published Python SDK on two workers. The test kills both workers in the middle of a step, and
// the app after each of them. Each order is finished within 90 s of the last kill, compensations run in the right
// order, and no recorded step runs again. With SOJOURN_TEST_CRASHES there are twelve orders instead of four, and a new
// worker ID replaces a killed worker; otherwise the worker restarts under its ID and receives its tasks at once.
func TestOrdersSurviveKilledWorkersAndApps(t *testing.T) {
	t.Parallel()
	python := apptest.Python(t, filepath.Join("..", "..", "interop", "python", "requirements.txt"))
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			o := &orders{
				plant: byDefault(t, kind == "postgres"), python: python, runs: map[string]string{}, refused: map[string]string{},
				workers: map[string]chan struct{}{}, cmds: map[string]*exec.Cmd{},
			}
			many, next := 4, map[string]string{"py-1": "py-1", "py-2": "py-2"}
			if os.Getenv(crashes) != "" {
				many, next = 12, map[string]string{"py-1": "py-3", "py-2": "py-4"}
			}
			o.works("py-1")
			o.works("py-2")
			order := func() {
				i := len(o.runs)
				order, refused := fmt.Sprint("order-", i), []string{"", "ship", "charge", "reserve"}[i%4]
				var a protocol.StartResponse
				o.client.must(http.MethodPost, "/api/workflows", map[string]any{
					"workflow_id": order, "workflow_type": "order", "task_queue": "orders", "input": []any{o.ledger, order, refused},
				}, &a)
				o.runs[order], o.refused[order] = a.RunID, refused
			}
			for range many {
				order()
			}
			var killed time.Time
			for _, id := range []string{"py-1", "py-2"} {
				o.inHand(id, order)
				o.kills(id, next[id])
				killed = o.restarts()
			}
			var last time.Time
			for order, run := range o.runs {
				o.client.completed(order, run)
			}
			lines := ledger(t, o.ledger)
			for order := range o.runs {
				if at := o.judge(order, lines); at.After(last) {
					last = at
				}
			}
			t.Logf(
				"%d orders, the last finished %.1f s after the last kill; %d steps ran", len(o.runs), last.Sub(killed).Seconds(),
				len(lines),
			)
			if last.Sub(killed) > finishing {
				t.Errorf("an order was finished %s after the last kill", last.Sub(killed))
			}
		})
	}
}
