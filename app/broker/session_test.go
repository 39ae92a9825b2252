package broker_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ours registers a worker like a Go worker: with an incarnation and session settings.
func (a *app) ours(id, incarnation string, lease, idle time.Duration, most int) {
	a.t.Helper()
	must[protocol.RegisterResponse](a.t)(a.Register(a.t.Context(), protocol.RegisterRequest{
		WorkerID: id, Incarnation: incarnation, TaskQueue: "default", WorkflowTypes: []string{"wf"}, AnyActivity: true,
		Capabilities: []string{broker.CapSessions}, MaxSessions: &most,
		Session: &protocol.SessionSettings{LeaseMS: lease.Milliseconds(), BufferMS: 100, IdleMS: idle.Milliseconds()},
	}))
}

// expires returns once the app has recorded that the lease of a session expired.
func (a *app) expires(id string) {
	a.t.Helper()
	comes(a.t, "the expiry of session "+id, func() bool {
		return must[protocol.SessionView](a.t)(a.Session(a.t.Context(), "", id)).Status != protocol.SessionActive
	})
}

func inSession(id string) protocol.Command {
	p, _ := payload.EncodeArgs("x")
	return protocol.Command{Type: protocol.ScheduleActivity, ActivityType: "turn", Arguments: p, SessionID: id}
}

// schedule starts a run whose first task issues these commands.
func (a *app) schedule(workflow string, commands ...protocol.Command) {
	a.t.Helper()
	a.start(workflow)
	wf := a.poll("flow", protocol.KindWorkflow, 5)
	if wf == nil || wf.Workflow.WorkflowID != workflow {
		a.t.Fatalf("task of %s: %+v", workflow, wf)
	}
	if c := a.decide(wf, commands...); c.Err != nil {
		a.t.Fatal(c.Err)
	}
}

func TestASessionStaysWithTheWorkerThatClaimedIt(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("a", "a1", time.Minute, time.Minute, 10)
		a.ours("b", "b1", time.Minute, time.Minute, 10)
		a.schedule("one", inSession("s"), inSession("s"), greet())
		first := a.poll("a", protocol.KindActivity, 5)
		if first == nil || first.Activity.Session == nil || !first.Activity.Session.IsNew ||
			first.Activity.Session.Epoch == 0 {
			t.Fatalf("first claim: %+v", first)
		}
		plain := a.poll("b", protocol.KindActivity, 5)
		if plain == nil || plain.Activity.ActivityType != "greet" {
			t.Fatalf("the other worker gets %+v, want the activity without a session", plain)
		}
		if got := a.poll("b", protocol.KindActivity, 0); got != nil {
			t.Fatalf("the other worker gets %+v of the session", got)
		}
		second := a.poll("a", protocol.KindActivity, 5)
		if second == nil || second.Activity.Session.IsNew || second.Activity.Session.Epoch != first.Activity.Session.Epoch {
			t.Fatalf("second task: %+v", second)
		}
		v := must[protocol.SessionView](t)(a.Session(t.Context(), "", "s"))
		if v.Active != 2 || *v.LeaseOwner != "a" || v.Origin != "implicit" || len(v.Timeline) != 1 {
			t.Fatalf("session: %+v", v)
		}
		for _, task := range []*protocol.Task{first, second, plain} {
			if c := a.result(task, "ok"); c.Err != nil {
				t.Fatal(c.Err)
			}
		}
		if v = must[protocol.SessionView](t)(a.Session(t.Context(), "", "s")); v.Active != 0 ||
			v.Status != protocol.SessionActive {
			t.Fatalf("session after its tasks: %+v", v)
		}
	})
}

// Test case IS-M12: a worker that restarts with the same ID gets its sessions and its leased tasks back immediately.
func TestARestartedWorkerReclaimsAtOnce(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("n1", "first", time.Hour, time.Hour, 10)
		a.ours("b", "b1", time.Hour, time.Hour, 10)
		a.schedule("one", inSession("s"))
		lost := a.poll("n1", protocol.KindActivity, 5)
		a.ours("n1", "second", time.Hour, time.Hour, 10)
		if got := a.poll("b", protocol.KindActivity, 0); got != nil {
			t.Fatalf("the other worker gets %+v", got)
		}
		redelivered := a.poll("n1", protocol.KindActivity, 5)
		if redelivered == nil || redelivered.Activity.Attempt != 2 || !redelivered.Activity.Session.IsNew ||
			redelivered.Activity.Session.Epoch <= lost.Activity.Session.Epoch {
			t.Fatalf("after the restart: %+v, was %+v", redelivered, lost)
		}
		if c := a.result(lost, "late"); protocol.ReasonOf(c.Err) != protocol.ReasonStaleAttempt {
			t.Fatalf("the old process's result: %+v", c)
		}
		_, err := a.Poll(t.Context(), protocol.PollRequest{WorkerID: "n1", Incarnation: "first"})
		if protocol.ReasonOf(err) != protocol.ReasonStaleRegistration {
			t.Fatalf("the old process polls: %v", err)
		}
	})
}

// The sweeper ends a session lease that is not renewed, by the store's clock. Another worker then acquires the session
// under a higher epoch.
func TestAnExpiredSessionIsAcquiredByAnotherWorker(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("a", "a1", 300*time.Millisecond, time.Minute, 10)
		a.ours("b", "b1", time.Minute, time.Minute, 10)
		a.schedule("one", inSession("s"), inSession("s"))
		first := a.poll("a", protocol.KindActivity, 5)
		start := time.Now()
		second := a.poll("b", protocol.KindActivity, 20)
		if second == nil || !second.Activity.Session.IsNew || second.Activity.Session.Epoch <= first.Activity.Session.Epoch {
			t.Fatalf("after the lease: %+v", second)
		}
		if early := time.Since(start); early < 200*time.Millisecond {
			t.Fatalf("acquired %s after the first acquisition, before its lease ended", early)
		}
		if c := a.result(first, "mine"); c.Err != nil {
			t.Fatalf("the attempt's own lease is valid, so its result must be accepted: %+v", c)
		}
		v := must[protocol.SessionView](t)(a.Session(t.Context(), "", "s"))
		if *v.LeaseOwner != "b" || v.Active != 1 {
			t.Fatalf("a result of the old holder touched the session: %+v", v)
		}
	})
}

// Test cases IS-M7, IS-P15, IS-P16: a worker at its maximum number of sessions acquires no session, but continues its
// sessions and tasks without a session.
func TestAWorkerAtItsSessionLimitContinuesItsSessions(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("a", "a1", time.Minute, time.Minute, 1)
		a.ours("none", "n1", time.Minute, time.Minute, 0)
		a.schedule("one", inSession("s1"), inSession("s2"), inSession("s1"), greet())
		for i, want := range []string{"s1", "s1", ""} {
			got := a.poll("a", protocol.KindActivity, 5)
			session := ""
			if got != nil && got.Activity.Session != nil {
				session = got.Activity.Session.SessionID
			}
			if got == nil || session != want {
				t.Fatalf("task %d: %+v, want one of session %q", i, got, want)
			}
		}
		if got := a.poll("a", protocol.KindActivity, 0); got != nil {
			t.Fatalf("at its cap the worker gets %+v", got)
		}
		if got := a.poll("none", protocol.KindActivity, 0); got != nil {
			t.Fatalf("a worker without sessions gets %+v", got)
		}
		a.ours("b", "b1", time.Minute, time.Minute, 1)
		if got := a.poll("b", protocol.KindActivity, 5); got == nil || got.Activity.Session.SessionID != "s2" {
			t.Fatalf("the next worker gets %+v", got)
		}
	})
}

// Ending a workflow-scoped session cancels what runs in it; late results are refused.
func TestAnEndedSessionEndsItsTasks(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow", broker.CapCancellation)
		a.ours("a", "a1", time.Minute, time.Minute, 10)
		run := a.start("one")
		handle := run.RunID + "-1"
		a.decide(a.poll("flow", protocol.KindWorkflow, 5), protocol.Command{Type: protocol.StartSession}, inSession(handle))
		task := a.poll("a", protocol.KindActivity, 5)
		if task == nil || task.Activity.Session.SessionID != handle {
			t.Fatalf("task: %+v", task)
		}
		must[protocol.CommandReceipt](t)(a.RequestCancellation(
			t.Context(), protocol.EndRequest{Target: protocol.Target{WorkflowID: "one"}},
		))
		c := a.decide(
			a.poll("flow", protocol.KindWorkflow, 5), protocol.Command{Type: protocol.EndSession, SessionID: handle},
			inSession(handle),
		)
		if c.Err != nil {
			t.Fatal(c.Err)
		}
		if c := a.result(task, "late"); protocol.ReasonOf(c.Err) != protocol.ReasonStaleAttempt {
			t.Fatalf("a late result: %+v", c)
		}
		v := must[protocol.SessionView](t)(a.Session(t.Context(), "", handle))
		if v.Status != protocol.SessionClosed || v.Scope != "workflow" || v.Active != 0 {
			t.Fatalf("session: %+v", v)
		}
		page := must[protocol.HistoryPage](t)(a.History(
			t.Context(), protocol.HistoryQuery{Target: protocol.Target{WorkflowID: "one"}},
		))
		var types []string
		for _, e := range page.Events {
			types = append(types, e.Type())
		}
		want := []string{
			"WorkflowStarted", "SessionStarted", "ActivityScheduled", "WorkflowCancellationRequested", "SessionEnded",
			"ActivityCancelled", "ActivityScheduled", "ActivityFailed",
		}
		if len(types) != len(want) {
			t.Fatalf("history: %v, want %v", types, want)
		}
	})
}

// Session requests create, heartbeat and close work for the owner; another worker and an old epoch change nothing.
func TestSessionVerbs(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w1")
		a.register("w2")
		create := protocol.SessionCreate{WorkerID: "w1", SessionOptions: protocol.SessionOptions{SessionID: "gpu", Lease: 60}}
		c := must[protocol.SessionResponse](t)(a.CreateSession(t.Context(), create))
		if c.Outcome != "created" || c.Status != 201 || c.Session.TTL != 1800 || *c.Session.LeaseOwner != "w1" {
			t.Fatalf("created: %+v", c.Session)
		}
		if c = must[protocol.SessionResponse](t)(a.CreateSession(t.Context(), create)); c.Outcome != "reused" {
			t.Fatalf("again: %+v", c)
		}
		create.WorkerID = "w2"
		if _, err := a.CreateSession(t.Context(), create); protocol.ReasonOf(err) != protocol.ReasonSessionOwned {
			t.Fatalf("a stranger creates: %v", err)
		}
		verb := protocol.SessionVerb{WorkerID: "w2", SessionID: "gpu"}
		if _, err := a.HeartbeatSession(t.Context(), verb); protocol.ReasonOf(err) != protocol.ReasonSessionOwner {
			t.Fatalf("a stranger renews: %v", err)
		}
		verb.WorkerID, verb.Epoch = "w1", c.Session.Epoch-1
		if _, err := a.CloseSession(t.Context(), verb); protocol.ReasonOf(err) != protocol.ReasonSessionOwner {
			t.Fatalf("an old epoch closes: %v", err)
		}
		verb.Epoch = c.Session.Epoch
		if r := must[protocol.SessionResponse](t)(a.HeartbeatSession(t.Context(), verb)); r.Outcome != "heartbeat_recorded" ||
			r.Session.TTLExpiresAt != c.Session.TTLExpiresAt {
			t.Fatalf("renewed: %+v", r.Session)
		}
		if r := must[protocol.SessionResponse](t)(a.CloseSession(t.Context(), verb)); r.Outcome != "closed" ||
			*r.Session.LeaseOwner != "w1" {
			t.Fatalf("closed: %+v", r)
		}
		if r := must[protocol.SessionResponse](t)(a.CloseSession(t.Context(), verb)); r.Outcome != "already_closed" {
			t.Fatalf("closed a second time: %+v", r)
		}
		if _, err := a.CreateSession(t.Context(), create); protocol.ReasonOf(err) != protocol.ReasonSessionClosed {
			t.Fatalf("a closed id: %v", err)
		}
	})
}
