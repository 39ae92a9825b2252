package broker_test

import (
	"strings"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (a *app) operate(verb string, t protocol.FleetTarget) protocol.FleetDrainState {
	a.t.Helper()
	return must[protocol.FleetDrainState](a.t)(a.Fleet().OperateFleet(a.t.Context(), protocol.FleetRequest{
		FleetTarget: t, Verb: verb, Identity: "op", Reason: "kernel",
	}))
}

// turned polls once as a worker and returns the status.
func (a *app) turned(worker, incarnation string, wait int64) protocol.PollStatus {
	a.t.Helper()
	return must[protocol.PollResponse](a.t)(a.Poll(a.t.Context(), protocol.PollRequest{
		WorkerID: worker, Incarnation: incarnation, Timeout: &wait, Kinds: []protocol.TaskKind{protocol.KindActivity},
	})).Status
}

// eventually waits for a condition that the app's background work establishes.
func (a *app) eventually(what string, is func() bool) {
	a.t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			a.t.Fatalf("never: %s", what)
		}
	}
}

// A drain at one app applies to the workers of every app: waiting polls end, running tasks may finish, and no task is
// dispatched. Resuming reverts it.
func TestDrainReachesWorkersOfOtherApps(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		sender, at := twoApps(t, database)
		at.register("flow")
		at.ours("w", "w1", time.Minute, time.Hour, 10)
		at.schedule("one", greet(), greet())
		runs := at.task("w", protocol.KindActivity, "one")
		at.taken(at.result(at.task("w", protocol.KindActivity, "one"), "done"))
		if at.poll("w", protocol.KindActivity, 0) != nil {
			t.Fatal("there is a third activity")
		}
		open := make(chan protocol.PollStatus, 1)
		go func() { open <- at.turned("w", "w1", 60) }()
		at.eventually("a poll is held", func() bool {
			waiting := 0
			for _, q := range at.Dispatch().Queues() {
				waiting += q.Waiting
			}
			return waiting > 0
		})

		state := sender.operate(protocol.FleetDrain, protocol.FleetTarget{WorkerID: "w"})
		if state.State != protocol.DrainRuns || state.Workers != 1 || state.Leases != 1 || state.Outcome != "draining" ||
			state.By != "op" || state.Reason != "kernel" {
			t.Errorf("drained: %+v", state)
		}
		if got := <-open; got != protocol.PollDraining {
			t.Errorf("the open poll ends with %s", got)
		}
		if got := at.turned("w", "w1", 60); got != protocol.PollDraining {
			t.Errorf("the next poll ends with %s", got)
		}
		beat := must[protocol.WorkerHeartbeatResponse](t)(at.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{
			WorkerID: "w", Incarnation: "w1",
		}))
		if beat.Intent != protocol.IntentPause {
			t.Errorf("the response to a heartbeat has intent %q", beat.Intent)
		}
		view := must[protocol.WorkerView](t)(sender.Worker(t.Context(), "default", "w"))
		if view.Status != protocol.WorkerDraining || view.Drain == nil || view.Drain.WorkerID != "w" {
			t.Errorf("the worker has status %s, drained by %+v", view.Status, view.Drain)
		}
		if _, err := at.CreateSession(t.Context(), protocol.SessionCreate{
			WorkerID: "w", Incarnation: "w1", SessionOptions: protocol.SessionOptions{SessionID: "wanted"},
		}); protocol.ReasonOf(err) != protocol.ReasonWorkerDraining {
			t.Errorf("the worker claims a session: %v", err)
		}
		slots := func() int {
			return must[protocol.QueueState](t)(sender.Queue(t.Context(), "default", "default")).Admission.Activity.Slots
		}
		if got := slots(); got != 100 { // only the slots of the worker that is not drained
			t.Errorf("the queue has %d slots while it is drained", got)
		}
		at.taken(at.result(runs, "done")) // the running task may finish
		drained := func() protocol.FleetDrainState {
			all := must[protocol.FleetDrains](t)(sender.FleetDrains(t.Context(), "default"))
			if len(all.Drains) != 1 {
				t.Fatalf("drains: %+v", all)
			}
			return all.Drains[0]
		}
		if s := drained(); s.State != protocol.DrainEnded || s.Drained != 1 || s.Leases != 0 {
			t.Errorf("after its tasks have ended: %+v", s)
		}
		// the workflow's next activity waits, with the drain as its reason
		at.taken(at.decide(at.task("flow", protocol.KindWorkflow, "one"), greet()))

		later := at // an app that started after all others were killed
		if at != sender {
			later = on(t, database)
		}
		if got := later.turned("w", "w1", 0); got != protocol.PollDraining {
			t.Errorf("an app that started later responds %s", got)
		}
		if s := sender.operate(protocol.FleetResume, protocol.FleetTarget{WorkerID: "w"}); s.Outcome != "resumed" {
			t.Errorf("resumed: %+v", s)
		}
		sender.operate(protocol.FleetResume, protocol.FleetTarget{WorkerID: "w"}) // resuming again has no effect
		at.eventually("the worker gets work again", func() bool { return at.turned("w", "w1", 1) == protocol.PollLeased })
		audits := must[[]any](t)(func() ([]any, error) {
			list, err := sender.Audits(t.Context(), "default", false, 10)
			var actions []any
			for _, a := range list {
				actions = append(actions, a.Action)
			}
			return actions, err
		}())
		if len(audits) < 3 || audits[0] != "fleet.resume" || audits[2] != "fleet.drain" {
			t.Errorf("noted: %v", audits)
		}
	})
}

// A drain of a group, build or release works like a drain of one worker, and also applies to workers that register
// later.
func TestAFleetIsDrainedByGroupBuildAndRelease(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		join := func(id string) {
			must[protocol.RegisterResponse](t)(a.Register(t.Context(), protocol.RegisterRequest{
				WorkerID: id, Incarnation: id, TaskQueue: "default", AnyActivity: true, BuildID: "b-" + id[:1],
				Release: "r-" + id[:1],
			}))
		}
		join("x1")
		join("y1")
		for i, target := range []protocol.FleetTarget{{BuildID: "b-x"}, {Release: "r-x"}} {
			s := a.operate(protocol.FleetDrain, target)
			if s.Workers != i+1 || s.State != protocol.DrainEnded {
				t.Errorf("%s: %+v", target.Text(), s)
			}
			later := "x2" + target.Text()
			join(later)
			for worker, want := range map[string]protocol.PollStatus{
				"x1": protocol.PollDraining, later: protocol.PollDraining, "y1": protocol.PollEmpty,
			} {
				if got := a.turned(worker, worker, 0); got != want {
					t.Errorf("%s: %s gets %s, want %s", target.Text(), worker, got, want)
				}
			}
			a.operate(protocol.FleetResume, target)
			if got := a.turned("x1", "x1", 0); got != protocol.PollEmpty {
				t.Errorf("%s resumed: %s", target.Text(), got)
			}
		}
		for name, target := range map[string]protocol.FleetTarget{
			"nobody": {}, "two": {Group: "g", BuildID: "b"}, "one too long": {Group: strings.Repeat("g", 256)},
		} {
			if _, err := a.Fleet().OperateFleet(t.Context(), protocol.FleetRequest{
				FleetTarget: target, Verb: protocol.FleetDrain,
			}); protocol.ReasonOf(err) != protocol.ReasonValidation {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := a.Fleet().OperateFleet(t.Context(), protocol.FleetRequest{
			FleetTarget: protocol.FleetTarget{WorkerID: "none"}, Verb: protocol.FleetDrain,
		}); protocol.ReasonOf(err) != protocol.ReasonWorkerNotFound {
			t.Errorf("an unknown worker: %v", err)
		}
	})
}

// Sessions of a drained worker are released when no task runs in them. If the worker is resumed before that, it keeps
// them.
func TestSessionsOfADrainedWorkerContinueElsewhere(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("flow")
		a.ours("w", "w1", time.Minute, time.Hour, 10)
		a.schedule("one", inSession("busy"), inSession("idle"))
		first, second := a.task("w", protocol.KindActivity, "one"), a.task("w", protocol.KindActivity, "one")
		if first.Activity.Session.SessionID != "busy" {
			first, second = second, first
		}
		a.taken(a.result(second, "done"))
		a.operate(protocol.FleetDrain, protocol.FleetTarget{WorkerID: "w"})
		status := func(session string) (s engine.Session) {
			v := must[protocol.SessionView](t)(a.Session(t.Context(), "default", session))
			if v.LeaseOwner != nil {
				s.Owner = *v.LeaseOwner
			}
			s.Moving, s.Reason = v.Moving, v.EndedReason
			return s
		}
		a.eventually("the idle session is free", func() bool { return status("idle").Owner == "" })
		a.eventually("the busy one is to follow", func() bool { return status("busy").Moving == "op" })
		a.operate(protocol.FleetResume, protocol.FleetTarget{WorkerID: "w"})
		a.eventually("the busy one stays", func() bool { s := status("busy"); return s.Owner == "w" && s.Moving == "" })
		a.operate(protocol.FleetDrain, protocol.FleetTarget{WorkerID: "w"})
		a.eventually("the busy one is to follow", func() bool { return status("busy").Moving == "op" })
		a.taken(a.result(first, "done"))
		if s := status("busy"); s.Owner != "" {
			t.Errorf("with its last activity: %+v", s)
		}
		a.ours("v", "v1", time.Minute, time.Hour, 10)
		a.taken(a.decide(a.task("flow", protocol.KindWorkflow, "one"), inSession("busy")))
		redelivered := a.poll("v", protocol.KindActivity, 30)
		if redelivered == nil || !redelivered.Activity.Session.IsNew || redelivered.Activity.Session.SessionID != "busy" {
			t.Errorf("the other worker gets %+v", redelivered)
		}
	})
}

// fakeNotices implements Notices and records the notices to workers.
type fakeNotices struct {
	intent   func(worker string, i protocol.Intent)
	settings func(namespace string)
}

func (h fakeNotices) SendIntent(_, worker string, i protocol.Intent, _ protocol.PauseNotice) bool {
	if h.intent != nil {
		h.intent(worker, i)
	}
	return true
}

func (h fakeNotices) SettingsChanged(namespace string) {
	if h.settings != nil {
		h.settings(namespace)
	}
}

// At the deadline of a drain, a worker with running tasks is asked to exit, and an idle worker is not. A worker that is
// not connected is deregistered, and its tasks are not dispatched again before their leases expire.
func TestADrainsDeadlineAndEviction(t *testing.T) {
	inBubble(t, "deadline", func(o *harness) {
		t := o.t
		a, _ := o.app("a", false)
		intents := map[string][]protocol.Intent{}
		a.Fleet().SetNotices(
			fakeNotices{intent: func(worker string, i protocol.Intent) { intents[worker] = append(intents[worker], i) }},
		)
		task := o.running(a, "p")
		o.hired(a, "idle", func(in *protocol.RegisterRequest) { in.Incarnation, in.BuildID = "q", "b" })
		for _, w := range []string{"w", "idle"} {
			must[protocol.FleetDrainState](t)(a.Fleet().OperateFleet(t.Context(), protocol.FleetRequest{
				FleetTarget: protocol.FleetTarget{WorkerID: w}, Verb: protocol.FleetDrain, Deadline: 60,
			}))
		}
		live := func(d time.Duration) {
			for range int(d / time.Second) {
				time.Sleep(time.Second)
				for w, p := range map[string]string{"w": "p", "idle": "q"} {
					must[protocol.WorkerHeartbeatResponse](t)(a.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{
						WorkerID: w, Incarnation: p,
					}))
				}
			}
		}
		live(55 * time.Second)
		if len(intents["w"]) != 1 || intents["w"][0] != protocol.IntentPause {
			t.Errorf("before the deadline worker w received the notice %q", intents["w"])
		}
		live(10 * time.Second)
		if len(intents["w"]) != 2 || intents["w"][1] != protocol.IntentLeave {
			t.Errorf("after the deadline worker w received the notice %q", intents["w"])
		}
		if len(intents["idle"]) != 1 {
			t.Errorf("the worker without tasks received the notice %q", intents["idle"])
		}
		a.taken(a.result(task, "done")) // the running task may still finish
	})
	inBubble(t, "eviction", func(o *harness) {
		t := o.t
		a, _ := o.app("a", false)
		task := o.running(a, "")
		must[protocol.FleetDrainState](t)(a.Fleet().OperateFleet(t.Context(), protocol.FleetRequest{
			FleetTarget: protocol.FleetTarget{WorkerID: "w"}, Verb: protocol.FleetEvict,
		}))
		if got := a.turned("w", "", 0); got != protocol.PollDraining {
			t.Errorf("it polls: %s", got)
		}
		registered := func() bool {
			_, err := a.Worker(t.Context(), "default", "w")
			return err == nil
		}
		beat := func() error {
			_, err := a.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{WorkerID: "w"})
			return err
		}
		if err := beat(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		if err := beat(); err != nil {
			t.Errorf("before the deadline: %v", err)
		}
		time.Sleep(15 * time.Second)
		if err := beat(); protocol.ReasonOf(err) != protocol.ReasonWorkerNotRegistered {
			t.Errorf("after the deadline: %v", err)
		}
		if got := a.poll("spare", protocol.KindActivity, 0); got != nil {
			t.Errorf("a task that may still run was dispatched to another worker: %+v", got)
		}
		a.taken(a.result(task, "done"))
		o.hired(a, "w", nil) // an HTTP worker that is alive registers again: the drain still applies
		if got := a.turned("w", "", 0); got != protocol.PollDraining || !registered() {
			t.Errorf("the worker registered again: %s", got)
		}
	})
}
