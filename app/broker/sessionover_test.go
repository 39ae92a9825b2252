package broker_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	appkg "github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// with returns a command that schedules an activity with session options.
func with(o protocol.SessionOptions) protocol.Command {
	c := inSession("")
	c.WorkerSession = &o
	return c
}

// failure waits until the workflow's activity with that command number fails, and returns the event.
func (a *app) failure(workflow string, seq int64) history.ActivityFailed {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), 2*time.Minute)
	defer cancel()
	for token := ""; ; {
		page := must[protocol.HistoryPage](a.t)(a.History(ctx, protocol.HistoryQuery{
			Target: protocol.Target{WorkflowID: workflow}, Wait: true, PageToken: token,
		}))
		for _, e := range page.Events {
			if d, ok := e.Data.(*history.ActivityFailed); ok && d.Sequence == seq {
				return *d
			}
		}
		if page.NextPageToken == nil || ctx.Err() != nil {
			a.t.Fatalf("activity %d of %s did not fail", seq, workflow)
		}
		token = *page.NextPageToken
	}
}

func (a *app) timeline(id string) (what []string) {
	a.t.Helper()
	for _, e := range must[protocol.SessionView](a.t)(a.Session(a.t.Context(), "", id)).Timeline {
		what = append(what, e.What)
	}
	return what
}

// When a session ends permanently, its queued tasks fail, since they could never run; its running tasks may still
// complete.
func TestQueuedTasksOfAnEndedSessionFail(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("a", "a1", time.Minute, time.Minute, 10)
		no := false
		for name, c := range map[string]struct {
			options protocol.SessionOptions
			end     func(epoch int64)
			want    string
		}{
			"closed": {protocol.SessionOptions{}, func(epoch int64) {
				must[protocol.SessionResponse](t)(a.CloseSession(
					t.Context(), protocol.SessionVerb{WorkerID: "a", SessionID: "closed", Epoch: epoch},
				))
			}, "closed"},
			"operator": {protocol.SessionOptions{}, func(int64) {
				must[protocol.SessionView](t)(a.OperateSession(
					t.Context(), protocol.SessionOperation{SessionID: "operator", Verb: "close", Identity: "eve"},
				))
			}, "eve"},
			"ttl":  {protocol.SessionOptions{TTL: 1, Lease: 600}, nil, "ttl_expired"},
			"lost": {protocol.SessionOptions{Lease: 1, Reacquire: &no}, nil, "lease_expired"},
		} {
			c.options.SessionID = name
			a.schedule(name, with(c.options), with(c.options))
			first := a.poll("a", protocol.KindActivity, 5)
			if first == nil || first.Activity.Session.SessionID != name {
				t.Fatalf("%s: %+v", name, first)
			}
			if c.end != nil {
				c.end(first.Activity.Session.Epoch)
			}
			f := a.failure(name, 2)
			if f.Failure.ExceptionType != "session_closed" || !strings.Contains(f.Failure.Message, c.want) ||
				!f.Failure.NonRetryable {
				t.Errorf("%s: the queued activity failed with %+v", name, f.Failure)
			}
			if r := a.result(first, "done"); r.Err != nil {
				t.Errorf("%s: a running task could not complete: %v", name, r.Err)
			}
			for next := a.poll("flow", protocol.KindWorkflow, 5); next != nil; next = a.poll("flow", protocol.KindWorkflow, 0) {
				a.decide(next)
			}
			if v := must[protocol.SessionView](t)(a.Session(t.Context(), "", name)); v.LeaseOwner == nil ||
				*v.LeaseOwner != "a" || v.Ready != 0 {
				t.Errorf("%s: the session afterwards: %+v", name, v)
			}
			want := protocol.ReasonSessionReacquire
			if c.end != nil {
				want = protocol.ReasonSessionClosed
			}
			_, err := a.CreateSession(t.Context(), protocol.SessionCreate{WorkerID: "a", SessionOptions: c.options})
			if protocol.ReasonOf(err) != want {
				t.Errorf("%s: acquired again: %v, want %s", name, err, want)
			}
		}
	})
}

// If a request for an existing session names no queue, the session's queue applies. A worker that does not poll that
// queue is refused.
func TestASessionKeepsItsQueueAndOptions(t *testing.T) {
	a := newApp(t)
	for _, q := range []string{"gpu", "cpu"} {
		must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
			WorkerID: q, TaskQueue: q, AnyActivity: true, Capabilities: []string{broker.CapSessions},
		}))
	}
	options := protocol.SessionOptions{SessionID: "s", Lease: 1}
	first := must[protocol.SessionResponse](t)(a.CreateSession(
		t.Context(), protocol.SessionCreate{WorkerID: "gpu", SessionOptions: options},
	))
	if first.Session.Queue == nil || *first.Session.Queue != "gpu" {
		t.Fatalf("queue: %+v", first.Session)
	}
	refused := func(what, worker string, o protocol.SessionOptions, want protocol.Reason) {
		t.Helper()
		if _, err := a.CreateSession(t.Context(), protocol.SessionCreate{
			WorkerID: worker, SessionOptions: o,
		}); protocol.ReasonOf(err) != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	refused("a worker of another queue", "cpu", options, protocol.ReasonSessionQueue)
	other := options
	other.Queue = "cpu"
	refused("a queue the worker does not serve", "gpu", other, protocol.ReasonSessionQueue)
	other = options
	other.Requirements = []string{"tpu"}
	refused("other requirements", "gpu", other, protocol.ReasonInvalidSession)
	other = options
	other.ReleasePolicy = "fail"
	refused("another release policy", "gpu", other, protocol.ReasonInvalidSession)
	other = options
	other.ReleasePolicy = "sometimes"
	refused("an unknown policy", "gpu", other, protocol.ReasonValidation)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if v := must[protocol.SessionView](t)(a.Session(t.Context(), "", "s")); v.Status == protocol.SessionExpired {
			break
		} else if time.Now().After(end) {
			t.Fatalf("the lease does not end: %+v", v)
		}
	}
	no := false
	other = options
	other.Reacquire = &no
	refused("a request that forbids it", "gpu", other, protocol.ReasonSessionReacquire)
	second := must[protocol.SessionResponse](t)(a.CreateSession(
		t.Context(), protocol.SessionCreate{WorkerID: "gpu", SessionOptions: options},
	))
	if second.Outcome != "reacquired" || second.Session.TTLExpiresAt != first.Session.TTLExpiresAt ||
		second.Session.Claims != 2 {
		t.Errorf("reacquired: %+v", second.Session)
	}
}

// A migration waits until the session's running tasks have ended and then moves the session to another worker; with
// force it does not wait. Both are in the audit log and the timeline.
func TestAMigrationWaitsForRunningTasks(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("a", "a1", time.Minute, time.Minute, 10)
		a.schedule("one", inSession("s"), inSession("s"))
		first := a.poll("a", protocol.KindActivity, 5)
		a.ours("b", "b1", time.Minute, time.Minute, 10)
		migrate := protocol.SessionOperation{SessionID: "s", Verb: "migrate", Identity: "eve", Reason: "maintenance"}
		if v := must[protocol.SessionView](t)(a.OperateSession(t.Context(), migrate)); v.Moving != "eve" ||
			*v.LeaseOwner != "a" {
			t.Fatalf("draining: %+v", v)
		}
		for _, w := range []string{"a", "b"} {
			if got := a.poll(w, protocol.KindActivity, 0); got != nil {
				t.Fatalf("while the session drains %s gets %+v", w, got)
			}
		}
		if r := a.result(first, "done"); r.Err != nil {
			t.Fatal(r.Err)
		}
		if v := must[protocol.SessionView](t)(a.Session(t.Context(), "", "s")); v.LeaseOwner != nil || v.KeptFor != "b" {
			t.Fatalf("drained: %+v", v)
		}
		if got := a.poll("a", protocol.KindActivity, 0); got != nil {
			t.Fatalf("the old holder gets %+v", got)
		}
		second := a.poll("b", protocol.KindActivity, 5)
		if second == nil || !second.Activity.Session.IsNew || second.Activity.Session.Epoch <= first.Activity.Session.Epoch {
			t.Fatalf("the next holder gets %+v", second)
		}
		migrate.Force, migrate.To = true, "a"
		if v := must[protocol.SessionView](t)(a.OperateSession(t.Context(), migrate)); v.LeaseOwner != nil ||
			v.KeptFor != "a" {
			t.Fatalf("forced: %+v", v)
		}
		want := "claimed draining released reclaimed released"
		if got := strings.Join(a.timeline("s"), " "); got != want {
			t.Errorf("timeline: %s, want %s", got, want)
		}
		v := must[protocol.SessionView](t)(a.Session(t.Context(), "", "s"))
		if e := v.Timeline[2]; e.By != "eve" || e.Worker != "a" || e.Ran != 1 {
			t.Errorf("the end of the first holding: %+v", e)
		}
		list, err := a.Audits(t.Context(), "default", true, 10)
		if err != nil || len(list) != 2 || list[0].Action != "session.migrate" ||
			!strings.Contains(list[0].Detail, "forced") {
			t.Errorf("audit: %+v %v", list, err)
		}
	})
}

// With the policy "fail", waiting tasks fail with the reason that the state was lost with the drained worker. With the
// policy "finish", the session stays with its release while an app of this release runs.
func TestReleasePolicies(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		running := apptest.Start(t, apptest.Options{Database: database})
		a := &app{running.Broker(), running.View(), running.Store(), t}
		register := func(id, release string) {
			t.Helper()
			must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
				WorkerID: id, Incarnation: id + "1", Release: release, TaskQueue: "default", AnyActivity: true,
				Capabilities: []string{broker.CapSessions},
			}))
		}
		a.register("flow")
		register("old", "test")
		options := protocol.SessionOptions{SessionID: "fail", ReleasePolicy: "fail"}
		a.schedule("one", with(options), with(options))
		finish := protocol.SessionOptions{SessionID: "finish", ReleasePolicy: "finish"}
		a.schedule("two", with(finish), with(finish))
		var held []*protocol.Task
		for _, want := range []string{"fail", "finish"} {
			got := a.poll("old", protocol.KindActivity, 5)
			if got == nil || got.Activity.Session.SessionID != want {
				t.Fatalf("%s: %+v", want, got)
			}
			held = append(held, got)
		}
		for _, task := range held {
			if r := a.result(task, "done"); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		must[protocol.DeregisterResponse](t)(a.Deregister(t.Context(), protocol.DeregisterRequest{WorkerID: "old"}))
		if f := a.failure("one", 2); f.Failure.ExceptionType != "SessionLost" ||
			!strings.HasPrefix(f.Failure.Message, "drained") {
			t.Errorf("the waiting task failed with %+v", f.Failure)
		}
		register("new", "next")
		if got := a.poll("new", protocol.KindActivity, 0); got != nil {
			t.Fatalf("a worker of the next release gets %+v while an app serves the old one", got)
		}
		running.Stop()
		running = apptest.Start(t, apptest.Options{Database: database, Change: func(o *appkg.Options) { o.Release = "next" }})
		a = &app{running.Broker(), running.View(), running.Store(), t}
		if got := a.poll("new", protocol.KindActivity, 25); got == nil || got.Activity.Session.SessionID != "finish" ||
			!got.Activity.Session.IsNew {
			t.Fatalf("when only the next release is served its worker gets %+v", got)
		}
		if got := strings.Join(a.timeline("finish"), " "); got != "claimed released unpinned reclaimed" {
			t.Errorf("timeline: %s", got)
		}
	})
}

// Events of sessions are counted, and the gauges have a series for every status.
func TestSessionsAreCounted(t *testing.T) {
	running := apptest.Start(t, apptest.Options{})
	a := &app{running.Broker(), running.View(), running.Store(), t}
	a.register("flow")
	a.ours("a", "a1", time.Minute, time.Minute, 10)
	run := a.start("one")
	handle := run.RunID + "-1"
	a.decide(
		a.poll("flow", protocol.KindWorkflow, 5), protocol.Command{Type: protocol.StartSession}, inSession(handle),
		inSession(handle), inSession("s"),
	)
	recovered := a.poll("a", protocol.KindActivity, 5)
	late := a.poll("a", protocol.KindActivity, 5)
	a.poll("a", protocol.KindActivity, 5)
	c := a.complete(protocol.CompleteItem{
		Kind: protocol.KindActivity, TaskID: recovered.Activity.TaskID, Owner: "a", AttemptID: recovered.Activity.AttemptID,
		Recovered: &protocol.Recovered{Rebuild: "load", Cause: "cold", Reason: "out_of_memory", Retries: 1},
	})
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	a.decide(a.poll("flow", protocol.KindWorkflow, 5), protocol.Command{Type: protocol.EndSession, SessionID: handle})
	if c := a.result(late, "late"); protocol.ReasonOf(c.Err) != protocol.ReasonStaleAttempt {
		t.Fatalf("late: %+v", c)
	}
	must[protocol.WorkerHeartbeatResponse](t)(a.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{
		WorkerID: "a", Incarnation: "a1", Sessions: []protocol.SessionRenewal{{SessionID: "s"}, {SessionID: "gone"}},
	}))
	want := []string{
		`sojourn_sessions{status="active"} 1`, `sojourn_sessions{status="closed"} 1`, `sojourn_sessions{status="expired"} 0`,
		`sojourn_sessions{status="failed"} 0`, `sojourn_sessions{status="orphaned"} 0`,
		`sojourn_session_claims_total{kind="new"} 2`,
		`sojourn_session_ends_total{how="closed"} 1`, `sojourn_session_rebuilds_total{reason="out_of_memory"} 1`,
		`sojourn_session_late_completions_total{why="session_ended"} 1`, `sojourn_session_renewals_total 1`,
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		res, err := http.Get(running.URL() + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		missing := ""
		for _, w := range want {
			if !strings.Contains(string(text), w+"\n") {
				missing = w
			}
		}
		if missing == "" {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no %s in\n%s", missing, text)
		}
	}
}
