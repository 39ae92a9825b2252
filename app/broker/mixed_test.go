package broker_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	appkg "github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/internal/querytask"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// older registers a worker of a release without sessions: it runs the same types, but declares no session support.
func (a *app) older(id string) {
	a.t.Helper()
	must[protocol.RegisterResponse](a.t)(a.Register(a.t.Context(), protocol.RegisterRequest{
		WorkerID: id, Incarnation: id + "1", TaskQueue: "default", WorkflowTypes: []string{"wf"}, AnyActivity: true,
		Capabilities: []string{querytask.CapQueries},
	}))
}

// task polls for a task. The task must belong to this workflow and be delivered for the first time.
func (a *app) task(worker string, kind protocol.TaskKind, workflow string) *protocol.Task {
	a.t.Helper()
	t := a.poll(worker, kind, 30)
	switch {
	case t == nil:
		a.t.Fatalf("%s does not get the %s task of %s", worker, kind, workflow)
	case t.Workflow != nil && (t.Workflow.WorkflowID != workflow || t.Workflow.Attempt != 1):
		a.t.Fatalf("%s gets attempt %d of %s", worker, t.Workflow.Attempt, t.Workflow.WorkflowID)
	case t.Activity != nil && (t.Activity.WorkflowID != workflow || t.Activity.Attempt != 1):
		a.t.Fatalf("%s gets attempt %d of an activity of %s", worker, t.Activity.Attempt, t.Activity.WorkflowID)
	}
	return t
}

// taken checks that an outcome was accepted.
func (a *app) taken(c protocol.CompleteResponse) {
	a.t.Helper()
	if c.Err != nil || !c.Recorded {
		a.t.Fatalf("outcome: %+v", c)
	}
}

// waits checks that a worker gets no workflow task and no activity task.
func (a *app) waits(worker string) {
	a.t.Helper()
	for _, kind := range []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity} {
		if t := a.poll(worker, kind, 0); t != nil {
			a.t.Errorf("%s gets a %s task: %+v", worker, kind, t)
		}
	}
}

// Workers with and without session support share a database. The older worker gets neither tasks in sessions nor
// workflow tasks of runs with session events. These tasks wait with a reason and use no attempt.
func TestMixedVersions(t *testing.T) {
	bound := func(handle string) []protocol.Command {
		return []protocol.Command{
			{Type: protocol.StartSession}, inSession(handle), {Type: protocol.OpenSignalWait, SignalName: "go"},
		}
	}
	t.Run("OS-E8", func(t *testing.T) {
		apptest.Databases(t, func(t *testing.T, database string) {
			a := on(t, database)
			a.ours("N", "n1", time.Minute, time.Hour, 10)
			run := a.start("bound")
			a.taken(a.decide(a.task("N", protocol.KindWorkflow, "bound"), bound(run.RunID+"-1")...))
			must[protocol.DeregisterResponse](t)(a.Deregister(t.Context(), protocol.DeregisterRequest{WorkerID: "N"}))
			a.older("O")
			must[protocol.CommandReceipt](t)(a.Signal(
				t.Context(), protocol.SignalRequest{Target: protocol.Target{WorkflowID: "bound"}, SignalName: "go"},
			))
			a.waits("O")
			p := must[protocol.RunView](t)(a.Describe(t.Context(), protocol.Target{WorkflowID: "bound"})).Pending
			if p.Task.Attempt != 0 || !strings.Contains(p.Task.Why, "needs worker_sessions, which worker O does not offer") {
				t.Errorf("the workflow task waits at attempt %d: %s", p.Task.Attempt, p.Task.Why)
			}
			act := p.Activities[0]
			if act.Attempt != 0 || !strings.Contains(act.Why, "needs worker_sessions, which worker O does not offer") {
				t.Errorf("the activity waits at attempt %d: %s", act.Attempt, act.Why)
			}
			_, err := a.Query(t.Context(), protocol.QueryRequest{Target: protocol.Target{WorkflowID: "bound"}, QueryName: "q"})
			if protocol.ReasonOf(err) != protocol.ReasonQueryWorker {
				t.Errorf("a query that only worker O could run: %v", err)
			}

			// Tasks without sessions are dispatched to both workers.
			a.start("plain")
			a.taken(a.decide(a.task("O", protocol.KindWorkflow, "plain"), greet()))
			a.taken(a.result(a.task("O", protocol.KindActivity, "plain"), "done"))
			a.taken(a.decide(a.task("O", protocol.KindWorkflow, "plain"), done()))

			a.ours("N", "n2", time.Minute, time.Hour, 10)
			a.taken(a.decide(
				a.task("N", protocol.KindWorkflow, "bound"), protocol.Command{Type: protocol.OpenSignalWait, SignalName: "on"},
			))
			a.taken(a.result(a.task("N", protocol.KindActivity, "bound"), "done"))
			a.waits("O")
			continueAsNew := protocol.Command{Type: protocol.ContinueAsNew}
			a.taken(a.decide(a.task("N", protocol.KindWorkflow, "bound"), continueAsNew))
			a.waits("O") // the next run of the workflow ID may continue to use the session
			must[protocol.DeregisterResponse](t)(a.Deregister(t.Context(), protocol.DeregisterRequest{WorkerID: "O"}))
			if c := a.decide(a.task("N", protocol.KindWorkflow, "bound"), done()); c.Err != nil || c.RunStatus != "completed" {
				t.Fatalf("after O deregistered: %+v", c)
			}
		})
	})

	// Workers that run only workflow tasks need not declare session support, as long as none of them does.
	t.Run("undeclared", func(t *testing.T) {
		a := newApp(t)
		a.older("flow")
		a.ours("a", "a1", time.Minute, time.Hour, 10)
		a.start("one")
		a.decide(a.poll("flow", protocol.KindWorkflow, 30), inSession("s"))
		a.result(a.task("a", protocol.KindActivity, "one"), "done")
		if c := a.decide(a.task("flow", protocol.KindWorkflow, "one"), done()); c.RunStatus != "completed" {
			t.Fatalf("%+v", c)
		}
	})

	// Workflow tasks and activity tasks both wait for a worker of the app's release.
	t.Run("releases", func(t *testing.T) {
		apptest.Databases(t, func(t *testing.T, database string) {
			a := on(t, database)
			a.ours("N", "n1", time.Minute, time.Hour, 10)
			a.start("one")
			a.decide(a.task("N", protocol.KindWorkflow, "one"), inSession("s"))
			a.start("two")
			for _, kind := range []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity} {
				none := int64(0)
				p := must[protocol.PollResponse](t)(a.Poll(t.Context(), protocol.PollRequest{
					WorkerID: "N", Incarnation: "n1", Kinds: []protocol.TaskKind{kind}, Timeout: &none, Release: "next", Gated: true,
				}))
				if p.Status != protocol.PollMismatch || len(p.Tasks) > 0 {
					t.Errorf("a worker of another release gets %+v", p)
				}
			}
			v := must[protocol.RunView](t)(a.Describe(t.Context(), protocol.Target{WorkflowID: "one"})).Pending
			if why := v.Activities[0].Why; v.Activities[0].Attempt != 0 || !strings.Contains(why, `worker release "next"`) {
				t.Errorf("the activity waits: %s", why)
			}
			a.task("N", protocol.KindWorkflow, "two")
			a.task("N", protocol.KindActivity, "one")
		})
	})
}

// While apps of two releases share a database, a session with the policy "finish" stays with workers of the older
// release, also if the newer app gets the request. After the older app has ended, the session moves.
func TestSessionFinishesOnItsReleaseDuringAnUpgrade(t *testing.T) {
	database := apptest.Postgres(t)
	begin := func(release string) (*apptest.App, *app) {
		running := apptest.Start(t, apptest.Options{Database: database, Change: func(o *appkg.Options) {
			o.Release = release
		}})
		return running, &app{running.Broker(), running.View(), running.Store(), t}
	}
	older, a := begin("one")
	_, next := begin("two")
	register := func(a *app, id, release string) {
		t.Helper()
		must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
			WorkerID: id, Incarnation: id + "1", Release: release, TaskQueue: "default", AnyActivity: true,
			Capabilities: []string{broker.CapSessions},
		}))
	}
	a.register("flow")
	register(a, "old", "one")
	finish := protocol.SessionOptions{SessionID: "s", ReleasePolicy: "finish"}
	a.schedule("run", with(finish), with(finish), with(finish))
	a.taken(a.result(a.task("old", protocol.KindActivity, "run"), "done"))
	must[protocol.DeregisterResponse](t)(a.Deregister(t.Context(), protocol.DeregisterRequest{WorkerID: "old"}))
	register(next, "new", "two")
	if got := next.poll("new", protocol.KindActivity, 1); got != nil {
		t.Fatalf("a worker of the next release gets %+v", got.Activity)
	}
	for _, at := range []*app{a, next} {
		v := must[protocol.SessionView](t)(at.Session(t.Context(), "", "s"))
		if !strings.Contains(v.Waiting, "is reserved for release one while an app of that release is alive") {
			t.Errorf("the tasks wait: %q", v.Waiting)
		}
	}
	register(a, "old too", "one")
	a.taken(a.result(a.task("old too", protocol.KindActivity, "run"), "done"))
	must[protocol.DeregisterResponse](t)(a.Deregister(t.Context(), protocol.DeregisterRequest{WorkerID: "old too"}))
	older.Stop() // the other app is notified and takes over the work of the older app
	if got := next.poll("new", protocol.KindActivity, 10); got == nil || !got.Activity.Session.IsNew {
		t.Fatalf("after the older app has ended, the worker of the next release gets %+v", got)
	}
}

// A lost notification may have been the shutdown notice of an app, so an app that missed notifications reads the list
// of live apps again.
func TestTheEndOfAnAppWhoseLastMessageIsLostIsDetected(t *testing.T) {
	database := apptest.Postgres(t)
	begin := func(release string) *apptest.App {
		return apptest.Start(t, apptest.Options{Database: database, Change: func(o *appkg.Options) { o.Release = release }})
	}
	begin("one")
	stays := begin("two").Broker()
	served := func(want ...string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
			releases := slices.Compact(slices.Sorted(slices.Values(stays.Membership().Releases())))
			if slices.Equal(releases, want) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("served are %v, want %v", releases, want)
			}
		}
	}
	served("one", "two")
	c, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	// Delete the row that an app deletes when it ends, without a notification.
	if _, err := c.Exec(t.Context(), `DELETE FROM workers WHERE namespace = '/apps' AND body LIKE '%"one"%'`); err != nil {
		t.Fatal(err)
	}
	stays.Dispatch().Missed()
	served("two")
}
