package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Tests of the guarantees of sessions when workers are killed, with real processes; other tests check the same cases in
// virtual time. These tests assert only orders, and that nothing happens before a lease expires.

func registerKilled(r *worker.Registry) {
	r.Workflow("killed.two", twoSteps)
	r.Workflow("killed.one", oneStep)
	r.Workflow("killed.one.word", oneWord)
	r.Workflow("killed.state", stateful)
	r.Activity("killed.work", workItem)
	r.Activity("killed.load", loadModel)
	r.Activity("killed.use", useModel, activity.Options{Recovery: &activity.SessionRecoveryPolicy{
		OnError: activity.Lost, RebuildActivity: "killed.load", MaxAutoRetries: 1,
	}})
}

// twoSteps runs one item in a session, and another after a signal. It returns the workers that ran them.
func twoSteps(ctx workflow.Context, session string) ([]string, error) {
	in := workflow.InSession(ctx, session)
	first, err := workflow.Execute[string](in, workItem, "first", false)
	if err != nil {
		return nil, err
	}
	if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
		return nil, err
	}
	second, err := workflow.Execute[string](in, workItem, "second", false)
	return []string{first, second}, err
}

// oneStep runs an item in a session that lasts until its worker may go on.
func oneStep(ctx workflow.Context, session string) (string, error) {
	return workflow.Execute[string](workflow.InSession(ctx, session), workItem, "item", true)
}

// oneWord runs an item in a session that ends at once.
func oneWord(ctx workflow.Context, session string) (string, error) {
	return workflow.Execute[string](workflow.InSession(ctx, session), workItem, "item", false)
}

// stateful uses a session's state twice, the second time after its worker may continue. It returns the workers that
// held the state.
func stateful(ctx workflow.Context) ([]string, error) {
	s, err := workflow.StartSession(ctx, workflow.SessionOptions{})
	if err != nil {
		return nil, err
	}
	if err := s.Execute(ctx, "killed.load", "load", false).Get(ctx, nil); err != nil {
		return nil, err
	}
	first, err := workflow.Await[string](ctx, s.Execute(ctx, "killed.use", "first", false))
	if err != nil {
		return nil, err
	}
	if err := workflow.Signal(ctx, "go").Receive(ctx, nil); err != nil {
		return nil, err
	}
	second, err := workflow.Await[string](ctx, s.Execute(ctx, "killed.use", "second", true))
	return []string{first, second}, err
}

// workItem records its start and its end. With hold it waits for a file of the test in between and ignores
// cancellation, so that a worker whose lease has expired still has a result.
func workItem(ctx context.Context, item string, hold bool) (string, error) {
	if err := writeLedger(ctx, item); err != nil {
		return "", err
	}
	me := activity.Info(ctx).WorkerID
	for hold {
		if _, err := os.Stat(wordFor(os.Getenv(holdPath), item, me)); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	return me, writeLedger(ctx, item+" done")
}

func loadModel(ctx context.Context, _ string, _ bool) error {
	activity.SessionState(ctx).Set("model", activity.Info(ctx).WorkerID)
	return writeLedger(ctx, "load")
}

func useModel(ctx context.Context, item string, hold bool) (string, error) {
	of, err := activity.Get[string](ctx, "model")
	if err != nil {
		return "", errors.Join(err, writeLedger(ctx, item+" lost"))
	}
	_, err = workItem(ctx, item, hold)
	return of, err
}

// wordFor returns the file that ends the hold of an item on a worker.
func wordFor(path, item, worker string) string { return path + "." + item + "." + worker }

// plant is a fleet whose workers are killed, on one database.
type plant struct {
	*fleet
	app  *process
	node map[string]*process
}

// onDatabases runs a case with an app on SQLite, and with one on PostgreSQL.
func onDatabases(t *testing.T, name string, test func(p *plant)) {
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		for _, kind := range []string{"sqlite", "postgres"} {
			t.Run(kind, func(t *testing.T) {
				t.Parallel()
				f := newFleet(t)
				f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
				f.worker["SOJOURN_TOKEN"], f.client.token = f.app["SOJOURN_TOKEN"], f.app["SOJOURN_TOKEN"]
				if kind == "postgres" {
					f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
				}
				app := launch(t, f.dir, f.app, "app")
				f.client.up()
				test(&plant{f, app, map[string]*process{}})
			})
		}
	})
}

// onTwoApps returns a plant on PostgreSQL, and a client of a second app, to which a worker is connected.
func onTwoApps(t *testing.T) (p *plant, there client) {
	t.Helper()
	f := newFleet(t)
	f.app["SOJOURN_TOKEN"] = "sjn_bootstrap_of_this_test_and_long_enough"
	f.worker["SOJOURN_TOKEN"], f.client.token = f.app["SOJOURN_TOKEN"], f.app["SOJOURN_TOKEN"]
	f.app["SOJOURN_DATABASE_URL"] = apptest.Postgres(t)
	p = &plant{fleet: f, node: map[string]*process{}}
	p.app = launch(t, f.dir, f.app, "app")
	f.client.up()
	there = p.client
	_, there.base = p.another("app-2", address(t))
	p.begin("worker", env{"SOJOURN_APP_URL": there.base})
	return p, there
}

// begin starts a worker of this id, and returns when the app knows this process of it.
func (p *plant) begin(id string, more env) {
	p.t.Helper()
	w := p.startWorker(more.with(env{"SOJOURN_WORKER_ID": id, "SOJOURN_DATA_DIR": p.t.TempDir()}))
	w.line(w.err, `"message":"connected to the app"`)
	p.node[id] = w
}

// kill kills a worker and waits until the app has noticed: tasks that the app sends before that stay leased until the
// lease expires. It returns the time at which the worker's last lease of the session expires. Before that no other
// worker may acquire the session.
func (p *plant) kill(id, session string) time.Time {
	p.t.Helper()
	before := p.lease(id, session)
	p.node[id].kill()
	p.app.line(p.app.err, `"worker_id":"`+id+`".*"message":"worker disconnected"`)
	if after := p.lease(id, session); after.After(before) {
		return after
	}
	return before
}

// lease returns the end of a worker's lease of a session; zero if the worker does not hold the session.
func (p *plant) lease(id, session string) time.Time {
	p.t.Helper()
	if v := p.session(session); v.LeaseOwner != nil && *v.LeaseOwner == id {
		return v.LeaseExpiresAt.Time
	}
	return time.Time{}
}

func (p *plant) session(id string) protocol.SessionView {
	p.t.Helper()
	var a struct {
		Session protocol.SessionView `json:"session"`
	}
	p.client.must(http.MethodGet, "/api/worker-sessions/"+url.PathEscape(id), nil, &a)
	return a.Session
}

// noted waits until the ledger has a number of lines for an action, and returns these lines.
func (p *plant) noted(what string, times int) (lines []line) {
	p.t.Helper()
	until(p.t, what+" is noted", func() bool { lines = p.lines(what); return len(lines) >= times })
	return lines
}

// waits returns when a run waits for its signal and none of its tasks is leased.
func (p *plant) waits(workflow, run string) {
	p.t.Helper()
	p.client.history(workflow, run, func(events []history.Event) bool {
		return slices.ContainsFunc(events, func(e history.Event) bool { return e.Data.Type() == "SignalWaitOpened" })
	})
}

func (p *plant) lines(what string) (lines []line) {
	p.t.Helper()
	for _, l := range ledger(p.t, p.ledger) {
		if l.What == what {
			lines = append(lines, l)
		}
	}
	return lines
}

// let ends the hold of an item on a worker.
func (p *plant) let(item, worker string) {
	p.t.Helper()
	if err := os.WriteFile(wordFor(p.hold, item, worker), nil, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *plant) signal(workflow string) {
	p.t.Helper()
	p.client.must(http.MethodPost, "/api/workflows/"+workflow+"/signal/go", map[string]any{}, nil)
}

// ran checks on which workers an item ran, in which order, with attempts and epochs that rise.
func (p *plant) ran(what string, workers ...string) []line {
	p.t.Helper()
	lines := p.lines(what)
	var got []string
	for i, l := range lines {
		got = append(got, l.Worker)
		if l.Attempt != i+1 || i > 0 && l.Epoch <= lines[i-1].Epoch {
			p.t.Errorf("%s ran as attempt %d under epoch %d after %+v", what, l.Attempt, l.Epoch, lines[:i])
		}
	}
	if !slices.Equal(got, workers) {
		p.t.Errorf("%s ran on %v, want %v", what, got, workers)
	}
	return lines
}

// notBefore checks that an attempt started after the end of the lease for which it had to wait.
func (p *plant) notBefore(l line, lease time.Time) {
	p.t.Helper()
	if lease.IsZero() || l.At.Before(lease) {
		p.t.Errorf("%s began on %s at %s, and the lease before it ended at %s", l.What, l.Worker, l.At, lease)
	}
}

// tooLate reports a result for an attempt in the name of the worker that ran it. The app must refuse it and change
// neither the session nor the run.
func (p *plant) tooLate(of line) {
	p.t.Helper()
	before := p.session(of.Session)
	status, raw, err := p.client.call(p.t.Context(), http.MethodPost, "/api/worker/activity-tasks/"+
		url.PathEscape(of.Task)+"/complete",
		map[string]any{"lease_owner": of.Worker, "activity_attempt_id": of.AttemptID, "result": "too late"})
	var refusal struct{ Reason protocol.Reason }
	if err == nil {
		err = json.Unmarshal(raw, &refusal)
	}
	switch refusal.Reason {
	case protocol.ReasonStaleAttempt, protocol.ReasonRunClosed, protocol.ReasonLeaseOwnerMismatch:
	default:
		p.t.Errorf("a late result of %s: %d %s %v", of.Worker, status, raw, err)
	}
	if after := p.session(of.Session); after.Epoch != before.Epoch || owner(after) != owner(before) ||
		entries(after, of.Worker) != entries(before, of.Worker) {
		p.t.Errorf("a late result changed the session from %+v to %+v", before, after)
	}
}

func owner(v protocol.SessionView) string {
	if v.LeaseOwner == nil {
		return ""
	}
	return *v.LeaseOwner
}

// entries counts the entries of a session's timeline that name a worker.
func entries(v protocol.SessionView, worker string) (n int) {
	for _, e := range v.Timeline {
		if e.Worker == worker {
			n++
		}
	}
	return n
}

// result returns the result of a workflow.
func result[T any](p *plant, events []history.Event) (out T) {
	p.t.Helper()
	done, _ := events[len(events)-1].Data.(*history.WorkflowCompleted)
	if err := payload.Decode(payload.Payload{Blob: done.Output}, &out); err != nil {
		p.t.Fatal(err)
	}
	return out
}

func types(events []history.Event) string {
	var all []string
	for _, e := range events {
		all = append(all, e.Data.Type())
	}
	return strings.Join(all, " ")
}

func (p *plant) equal(what string, got, want any) {
	p.t.Helper()
	if !reflect.DeepEqual(got, want) {
		p.t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// Leases that a test waits for, with time to renew them on a busy machine; and leases that are too long for a test to
// wait for.
var (
	shortLeases = env{"SOJOURN_ATTEMPT_LEASE": "4s", "SOJOURN_SESSION_LEASE": "4s", "SOJOURN_SESSION_BUFFER": "2s"}
	longLeases  = env{"SOJOURN_ATTEMPT_LEASE": "90s", "SOJOURN_SESSION_LEASE": "90s"}
)

func TestSessionsOfKilledWorkers(t *testing.T) {
	t.Parallel()

	onDatabases(t, "IS-M3", func(p *plant) {
		p.begin("A", shortLeases)
		run := p.client.start("w", "killed.two", "s").RunID
		p.waits("w", run)
		p.begin("B", shortLeases)
		p.equal("owner while nothing runs", owner(p.session("s")), "A")
		lease := p.kill("A", "s")
		p.signal("w")
		p.equal("workers", result[[]string](p, p.client.completed("w", run)), []string{"A", "B"})
		p.ran("first", "A")
		p.notBefore(p.ran("second", "B")[0], lease)
		p.tooLate(p.lines("first")[0])
	})

	onDatabases(t, "IS-M10", func(p *plant) {
		p.begin("A", shortLeases)
		run := p.client.start("w", "killed.one", "s").RunID
		p.noted("item", 1)
		p.begin("B", shortLeases)
		lease := p.kill("A", "s")
		first := p.noted("item", 2)[0]
		p.tooLate(first)
		p.let("item", "B")
		events := p.client.completed("w", run)
		p.equal("result", result[string](p, events), "B")
		p.notBefore(p.ran("item", "A", "B")[1], lease)
		p.equal("history", types(events), "WorkflowStarted ActivityScheduled ActivityCompleted WorkflowCompleted")
		p.tooLate(first)
	})

	onDatabases(t, "IS-M12", func(p *plant) {
		p.begin("n1", longLeases)
		run := p.client.start("w", "killed.two", "s").RunID
		p.waits("w", run)
		p.begin("B", longLeases)
		lease := p.kill("n1", "s")
		p.begin("n1", longLeases)
		p.signal("w")
		p.equal("workers", result[[]string](p, p.client.completed("w", run)), []string{"n1", "n1"})
		first, second := p.ran("first", "n1")[0], p.ran("second", "n1")[0]
		if second.Epoch <= first.Epoch || second.Process == first.Process || !second.At.Before(lease) {
			t.Errorf("second ran as %+v after %+v, whose lease ended at %s", second, first, lease)
		}
	})

	onDatabases(t, "IS-M12-in-flight", func(p *plant) {
		p.begin("n1", longLeases)
		run := p.client.start("w", "killed.one", "s").RunID
		p.noted("item", 1)
		p.begin("B", longLeases)
		lease := p.kill("n1", "s")
		p.let("item", "n1")
		p.begin("n1", longLeases)
		p.equal("result", result[string](p, p.client.completed("w", run)), "n1")
		if repeated := p.ran("item", "n1", "n1")[1]; !repeated.At.Before(lease) {
			t.Errorf("redelivered at %s, and the lease ended at %s", repeated.At, lease)
		}
	})

	onDatabases(t, "IS-M12-control", func(p *plant) {
		p.begin("n1", shortLeases)
		run := p.client.start("w", "killed.two", "s").RunID
		p.waits("w", run)
		lease := p.kill("n1", "s")
		p.begin("n2", shortLeases)
		p.signal("w")
		p.equal("workers", result[[]string](p, p.client.completed("w", run)), []string{"n1", "n2"})
		p.notBefore(p.ran("second", "n2")[0], lease)
	})

	onDatabases(t, "OS-E3", func(p *plant) {
		p.begin("A", shortLeases)
		run := p.client.start("w", "killed.state").RunID
		p.waits("w", run)
		session := p.lines("first")[0].Session
		p.begin("B", shortLeases)
		p.signal("w")
		p.noted("second", 1)
		lease := p.kill("A", session)
		both := p.noted("second", 2)
		p.equal("owner", owner(p.session(session)), "B")
		p.tooLate(both[0])
		p.let("second", "B")
		events := p.client.completed("w", run)
		p.equal("state of", result[[]string](p, events), []string{"A", "B"})
		p.ran("first", "A")
		p.ran("second", "A", "B")
		lost, loads := p.lines("second lost"), p.lines("load")
		if len(lost) != 1 || lost[0].Worker != "B" || len(loads) != 2 || loads[1].Worker != "B" ||
			loads[1].Epoch != both[1].Epoch {
			t.Fatalf("lost as %+v, loaded as %+v", lost, loads)
		}
		p.notBefore(lost[0], lease)
		p.equal("history", types(
			events,
		), "WorkflowStarted SessionStarted ActivityScheduled ActivityCompleted ActivityScheduled ActivityCompleted "+
			"SignalWaitOpened SignalReceived SignalApplied ActivityScheduled SessionRecovered ActivityCompleted WorkflowCompleted")
		def, err := workflow.NewDefinition("killed.state", stateful)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= len(events); n++ {
			if err := replay.Events(def, replay.Options{}, events[:n]); err != nil {
				t.Errorf("replay of %d of %d events: %v", n, len(events), err)
			}
		}
	})
}

// A worker that was stopped for longer than its lease continues with a result. The app rejects the result, and the
// worker continues without the session. F
func TestResumedWorkerContinuesWithoutItsLostSession(t *testing.T) {
	t.Parallel()
	onDatabases(t, "stopped", func(p *plant) {
		p.begin("A", shortLeases)
		run := p.client.start("w", "killed.one", "s").RunID
		first := p.noted("item", 1)[0]
		p.begin("B", shortLeases)
		a := p.node["A"].cmd.Process
		before := p.lease("A", "s")
		if err := a.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		second := p.noted("item", 2)[1]
		p.notBefore(second, before)
		held := p.session("s")
		p.equal("owner", owner(held), "B")
		p.let("item", "A")
		if err := a.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		p.noted("item done", 1)
		p.node["A"].line(p.node["A"].err, `"attempt":"`+first.AttemptID+`".*"message":"task outcome rejected by the app and dropped"`)
		p.tooLate(first)
		still := p.session("s")
		if owner(still) != "B" || still.Epoch != second.Epoch || entries(still, "A") != entries(held, "A") {
			t.Errorf("the session was B's under epoch %d, and is: %+v", second.Epoch, still)
		}
		p.let("item", "B")
		p.equal("result", result[string](p, p.client.completed("w", run)), "B")
		p.ran("item", "A", "B")
		if code := p.node["B"].terminate(); code != 0 {
			t.Errorf("B exits with %d", code)
		}
		plain := p.client.start("plain", "one", "x").RunID // by A, the only worker left: it works as before
		p.client.completed("plain", plain)
		if l := p.lines("append 0"); len(l) != 1 || l[0].Process != a.Pid {
			t.Errorf("the plain activity ran as %+v", l)
		}
	})
}
