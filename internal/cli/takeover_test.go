package cli_test

import (
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Tests of the documented behaviour when a worker dies or stops, with real processes and default settings.

// takeover is the maximum time until another worker runs the tasks.
const takeover = 35 * time.Second

func registerTakeover(r *worker.Registry) {
	r.Workflow("takeover.held", heldItem)
	r.Workflow("takeover.two", twoItems)
}

// among returns a function that runs items in the kind of session that session names: none, a session of the workflow,
// or an implicit session.
func among(ctx workflow.Context, session string) (run func(item string, hold bool) (string, error), err error) {
	if session != "own" {
		in := ctx
		if session != "" {
			in = workflow.InSession(ctx, session)
		}
		return func(item string, hold bool) (string, error) {
			return workflow.Execute[string](in, workItem, item, hold)
		}, nil
	}
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
	return func(item string, hold bool) (string, error) {
		return workflow.Await[string](ctx, s.Execute(ctx, workItem, item, hold))
	}, err
}

// heldItem runs an item that lasts until its worker may go on.
func heldItem(ctx workflow.Context, session, item string) (string, error) {
	run, err := among(ctx, session)
	if err != nil {
		return "", err
	}
	return run(item, true)
}

// twoItems runs an item, and another after a signal.
func twoItems(ctx workflow.Context, session, item string) (string, error) {
	run, err := among(ctx, session)
	if err != nil {
		return "", err
	}
	if _, err := run(item+" before", false); err != nil {
		return "", err
	}
	if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
		return "", err
	}
	return run(item, false)
}

// struckRun is a run whose worker is killed or stopped; item is the step that another worker must run.
type struckRun struct {
	item, session, run string
	busy               bool      // its worker was running it
	struck             time.Time // time at which its worker was disturbed, or at which the task became ready after that
	lease              time.Time // end of the lease of its worker
	line               line      // execution by the other worker
}

// begun starts a run on its worker's own queue.
func (c *struckRun) begun(p *plant, queue string) {
	p.t.Helper()
	typ := "takeover.two"
	if c.busy {
		typ = "takeover.held"
	}
	var a protocol.StartResponse
	p.client.must(http.MethodPost, "/api/workflows", map[string]any{
		"workflow_id": c.item, "workflow_type": typ, "task_queue": queue, "input": []any{c.session, c.item},
	}, &a)
	c.run = a.RunID
}

// held returns the time until which the worker holds the lease that an item needs: of the running attempt, or of the
// session.
func (c *struckRun) held(p *plant) (until time.Time) {
	p.t.Helper()
	if pending := p.client.describe(c.item).Pending; pending != nil {
		for _, a := range pending.Activities {
			until = a.LeaseUntil.Time
		}
	}
	if c.busy || c.session == "" {
		return until
	}
	for _, l := range p.lines(c.item + " before") {
		if v := p.session(l.Session); v.LeaseOwner != nil {
			until = v.LeaseExpiresAt.Time
		}
	}
	return until
}

// A worker with default settings is killed or stopped, during a task or idle, with or without a session. Another
// worker, which is connected to another app if there are two, runs the tasks within 35 s, and none before the lease of
// the first worker expires.
func TestWorkOfKilledAndFrozenProcessesIsTakenOver(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			p := byDefault(t, kind == "postgres")
			other := p.client.base
			if kind == "postgres" {
				_, other = p.another("app-2", address(t))
			}
			victims := map[string][]*struckRun{}
			for _, strike := range []string{"killed", "frozen"} {
				for _, at := range []string{"busy", "idle"} {
					id := strike + "-" + at
					for name, session := range map[string]string{"plain": "", "own": "own", "mere-id": id + "-session"} {
						victims[id] = append(victims[id], &struckRun{item: id + "." + name, session: session, busy: at == "busy"})
					}
				}
			}
			ids := slices.Sorted(maps.Keys(victims))
			queues := ""
			for _, id := range ids {
				p.node[id] = p.startWorker(env{"SOJOURN_WORKER_ID": id, "SOJOURN_QUEUES": id, "SOJOURN_DATA_DIR": t.TempDir()})
				queues += "," + id
			}
			for _, id := range ids {
				p.node[id].line(p.node[id].err, `"message":"connected to the app"`)
				for _, c := range victims[id] {
					c.begun(p, id)
				}
			}
			for _, id := range ids {
				for _, c := range victims[id] {
					if c.busy {
						p.noted(c.item, 1)
						p.let(c.item, "other")
					} else {
						p.waits(c.item, c.run)
					}
				}
			}
			p.begin("other", env{"SOJOURN_QUEUES": queues[1:], "SOJOURN_APP_URL": other})
			for _, id := range ids {
				sig := map[bool]syscall.Signal{true: syscall.SIGKILL, false: syscall.SIGSTOP}[id[0] == 'k']
				now := time.Now()
				if err := p.node[id].cmd.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				for _, c := range victims[id] {
					c.struck, c.lease = now, c.held(p)
					if !c.busy {
						p.signal(c.item)
					}
				}
				// becomes ready when its only worker is dead or stopped, with open polls
				late := &struckRun{item: id + ".late", struck: time.Now()}
				late.begun(p, id)
				p.signal(late.item)
				victims[id] = append(victims[id], late)
			}
			var done sync.WaitGroup
			for _, id := range ids {
				for _, c := range victims[id] {
					done.Go(func() {
						p.client.completed(c.item, c.run)
						all := p.lines(c.item)
						c.line = all[len(all)-1]
					})
				}
			}
			done.Wait()
			for _, id := range ids {
				for _, c := range victims[id] {
					after := c.line.At.Sub(c.struck)
					t.Logf(
						"%-32s after %4.1f s; it was the worker's for %4.1f s", c.item, after.Seconds(),
						max(0, c.lease.Sub(c.struck).Seconds()),
					)
					if c.line.Worker != "other" || after > takeover {
						t.Errorf("%s ran on %s %s after its worker was gone", c.item, c.line.Worker, after)
					}
					if (c.busy || c.session != "") && c.lease.IsZero() {
						t.Errorf("%s: nothing says until when it was its worker's", c.item)
					}
					if c.line.At.Before(c.lease) {
						t.Errorf("%s ran at %s, and was its worker's until %s", c.item, c.line.At, c.lease)
					}
				}
			}
		})
	}
}

// byDefault starts only an app, on a new database. Workers of the plant run with default settings.
func byDefault(t *testing.T, postgres bool) *plant {
	t.Helper()
	f := newFleet(t)
	for _, e := range []env{f.app, f.worker} {
		for _, name := range []string{"SOJOURN_ATTEMPT_LEASE", "SOJOURN_SESSION_LEASE", "SOJOURN_SESSION_BUFFER"} {
			delete(e, name)
		}
	}
	f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
	f.worker["SOJOURN_TOKEN"], f.client.token = f.app["SOJOURN_TOKEN"], f.app["SOJOURN_TOKEN"]
	if postgres {
		f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
	}
	p := &plant{fleet: f, node: map[string]*process{}}
	p.app = launch(t, f.dir, f.app, "app")
	f.client.up()
	return p
}

// another starts one more app on the same database.
func (p *plant) another(name, at string) (app *process, base string) {
	p.t.Helper()
	app = launch(
		p.t, p.dir, p.fleet.app.with(env{"SOJOURN_ADDR": at, "SOJOURN_DATA_DIR": filepath.Join(p.dir, name)}), "app",
	)
	c := p.client
	c.base = "http://" + at
	c.up()
	return app, c.base
}
