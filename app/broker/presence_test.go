package broker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// hired registers an HTTP worker that runs activities and holds sessions.
func (o *harness) hired(a *app, worker string, change func(*protocol.RegisterRequest)) {
	o.t.Helper()
	in := protocol.RegisterRequest{
		WorkerID: worker, TaskQueue: "default", WorkflowTypes: []string{"wf"}, ActivityTypes: []string{"turn"},
		Capabilities: []string{broker.CapSessions},
	}
	if change != nil {
		change(&in)
	}
	must[protocol.RegisterResponse](o.t)(a.Register(o.t.Context(), in))
}

// opened leases an attempt in a session with options to the worker, with a long lease.
func (o *harness) opened(a *app, worker string) (task *protocol.ActivityTask) {
	o.t.Helper()
	args, err := payload.EncodeArgs("x")
	if err != nil {
		o.t.Fatal(err)
	}
	a.start("one")
	a.taken(a.decide(a.poll(worker, protocol.KindWorkflow, 0), protocol.Command{
		Type: protocol.ScheduleActivity, ActivityType: "turn", Arguments: args,
		WorkerSession: &protocol.SessionOptions{SessionID: "s", Lease: 6000},
	}))
	return a.poll(worker, protocol.KindActivity, 0).Activity
}

// session returns the row of a session.
func (o *harness) session(id string) (s engine.Session) {
	o.t.Helper()
	err := o.store.View(o.t.Context(), func(r store.Reader) (err error) {
		s, err = r.Session(o.t.Context(), engine.SessionKey{Namespace: "default", ID: id})
		return err
	})
	if err != nil {
		o.t.Fatal(err)
	}
	return s
}

// lost waits until a session has lost its owner, and returns how long that took.
func (o *harness) lost(id string, most time.Duration) time.Duration {
	o.t.Helper()
	began := o.at()
	for o.session(id).Status == protocol.SessionActive {
		if time.Sleep(time.Second); o.at() > began+most {
			o.t.Fatalf("after %s session %s is still held", o.at()-began, id)
		}
	}
	return o.at() - began
}

// A worker that sent no heartbeat for the length of its leases gets no task on its open poll; another worker gets the
// task immediately. After its next heartbeat the worker gets tasks again.
func TestASilentWorkerGetsNothingOnAPollItLeftOpen(t *testing.T) {
	for _, apps := range []int{1, 2} {
		inBubble(t, fmt.Sprint(apps, " apps"), func(o *harness) {
			a, _ := o.app("a", apps > 1)
			at := a
			if apps > 1 { // the task is created at the other app
				at, _ = o.app("b", true)
			}
			o.hired(a, "w", func(in *protocol.RegisterRequest) {
				in.Incarnation, in.AttemptLease, in.HeartbeatSecs = "p", 30, new(int64(10))
			})
			hold := int64(60)
			open := make(chan protocol.PollResponse, 1)
			go func() {
				open <- must[protocol.PollResponse](o.t)(a.Poll(o.t.Context(), protocol.PollRequest{
					WorkerID: "w", Incarnation: "p", Kinds: []protocol.TaskKind{protocol.KindWorkflow}, Timeout: &hold,
				}))
			}()
			time.Sleep(36 * time.Second)
			o.hired(at, "spare", nil)
			at.start("one")
			if at.poll("spare", protocol.KindWorkflow, 0) == nil {
				o.t.Error("the task was dispatched to the worker without heartbeats")
			}
			if got := <-open; got.Status != protocol.PollEmpty || len(got.Tasks) > 0 {
				o.t.Errorf("the open poll of the worker: %+v", got)
			}
			at.start("two")
			if a.poll("w", protocol.KindWorkflow, 0) == nil {
				o.t.Error("after a new heartbeat the worker gets nothing")
			}
		})
	}
}

// Every accepted request of a worker, at any app, counts as a heartbeat: a worker that sends only one kind of request,
// for longer than the heartbeat timeout, keeps its leases.
func TestEveryAcceptedRequestOfAWorkerIsAHeartbeat(t *testing.T) {
	beat := func(o *harness, a *app, task *protocol.ActivityTask) error {
		got, err := a.HeartbeatTask(
			o.t.Context(),
			protocol.HeartbeatRequest{TaskID: task.TaskID, Owner: task.LeaseOwner, AttemptID: task.AttemptID, Beat: true},
		)
		if err == nil && !got.CanContinue {
			err = fmt.Errorf("the response says stop: %+v", got)
		}
		return err
	}
	ways := map[string]func(o *harness, a *app, task *protocol.ActivityTask) error{
		"activity heartbeat": beat,
		"session heartbeat": func(o *harness, a *app, task *protocol.ActivityTask) error {
			_, err := a.HeartbeatSession(
				o.t.Context(), protocol.SessionVerb{WorkerID: "w", SessionID: "s", Epoch: task.Session.Epoch},
			)
			return err
		},
		"create": func(o *harness, a *app, _ *protocol.ActivityTask) error {
			_, err := a.CreateSession(
				o.t.Context(),
				protocol.SessionCreate{WorkerID: "w", SessionOptions: protocol.SessionOptions{SessionID: "s", Lease: 6000}},
			)
			return err
		},
		"poll": func(o *harness, a *app, _ *protocol.ActivityTask) error {
			none := int64(0)
			_, err := a.Poll(
				o.t.Context(),
				protocol.PollRequest{WorkerID: "w", Kinds: []protocol.TaskKind{protocol.KindActivity}, Timeout: &none},
			)
			return err
		},
		"workflow heartbeat": func(o *harness, a *app, _ *protocol.ActivityTask) error {
			_, err := a.HeartbeatTask(o.t.Context(), protocol.HeartbeatRequest{
				Kind: protocol.KindWorkflow, TaskID: o.decision.TaskID, Owner: "w", Attempt: o.decision.Attempt,
			})
			return err
		},
		"completion and claim": func(o *harness, a *app, _ *protocol.ActivityTask) error {
			if done := a.decide(&protocol.Task{Kind: protocol.KindWorkflow, Workflow: o.decision}, protocol.Command{
				Type: protocol.CompleteWorkflow,
			}); done.Err != nil {
				return done.Err
			}
			o.decide(a)
			return nil
		},
	}
	for name, way := range ways {
		for _, apps := range []int{1, 2} {
			inBubble(t, fmt.Sprintf("%s, %d apps", name, apps), func(o *harness) {
				a, _ := o.app("a", apps > 1)
				receiver := a
				if apps > 1 { // one app leased the task, and the other app receives the heartbeat
					receiver, _ = o.app("b", true)
				}
				o.hired(a, "w", func(in *protocol.RegisterRequest) { in.Process = []byte(`{"process_id": 1}`) })
				task := o.opened(a, "w")
				o.decide(a)
				for range 12 {
					time.Sleep(20 * time.Second)
					if err := way(o, receiver, task); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(50 * time.Second)
				if s := o.session("s"); s.Status != protocol.SessionActive || s.Owner != "w" {
					t.Errorf("the session is %s of %q", s.Status, s.Owner)
				}
				// the worker has sent no heartbeat for 65 s by then
				if took := o.lost("s", time.Minute); took > 15*time.Second {
					t.Errorf("and is lost %s later", took)
				}
			})
		}
	}
}

// decide leases a workflow task to the worker, and claims the task again by its ID.
func (o *harness) decide(a *app) {
	o.t.Helper()
	o.runs++
	a.start(fmt.Sprintf("flow-%d", o.runs))
	o.decision = a.poll("w", protocol.KindWorkflow, 0).Workflow
	must[protocol.PollResponse](o.t)(a.LeaseTask(
		o.t.Context(), protocol.LeaseRequest{WorkerID: "w", Kind: protocol.KindWorkflow, TaskID: o.decision.TaskID},
	))
}

// An HTTP worker that announced heartbeats loses its workflow tasks and attempts within 75 s without a heartbeat, and
// its sessions within 65 s. This also holds at an app that restarted after the announcement, and at another app. An
// attempt that sends its own heartbeats keeps its lease.
func TestAnHTTPWorkerWithoutHeartbeatsLosesItsTasks(t *testing.T) {
	changes := map[string]func(*protocol.RegisterRequest){
		"its metrics":  func(in *protocol.RegisterRequest) { in.Process = []byte(`{"process_id": 1}`) },
		"its interval": func(in *protocol.RegisterRequest) { in.HeartbeatSecs = new(int64(30)) },
		"a heartbeat":  nil,
	}
	for name, change := range changes {
		for _, shared := range []bool{false, true} {
			inBubble(t, fmt.Sprintf("%s, shared %t", name, shared), func(o *harness) {
				a, _ := o.app("a", shared)
				if shared {
					o.app("b", true)
				}
				o.hired(a, "w", change)
				if change == nil {
					o.beat(a, "w", "", 0)
				}
				task := o.opened(a, "w")
				run := a.start("two").RunID
				a.poll("w", protocol.KindWorkflow, 0)
				last := o.at()
				o.lost("s", 65*time.Second)
				if at := o.at() - last; at < 60*time.Second || at > 65*time.Second {
					t.Errorf("the session is lost after %s", at)
				}
				o.freed(run, 10*time.Second)
				o.hired(a, "v", nil)
				redelivered := a.poll("v", protocol.KindActivity, 1)
				if at := o.at() - last; redelivered == nil || redelivered.Activity.TaskID != task.TaskID || at > 75*time.Second {
					t.Errorf("after %s another worker gets %+v", at, redelivered)
				}
			})
		}
	}
	inBubble(t, "said before the app was started again", func(o *harness) {
		a, kill := o.app("a", false)
		o.hired(a, "w", nil)
		o.beat(a, "w", "", 0)
		run := a.start("one").RunID
		a.poll("w", protocol.KindWorkflow, 0)
		kill()
		back, _ := o.app("a", false)
		must[protocol.PollResponse](t)(back.Poll(
			o.t.Context(),
			protocol.PollRequest{WorkerID: "w", Kinds: []protocol.TaskKind{protocol.KindActivity}, Timeout: new(int64)},
		))
		last := o.at()
		if at := o.freed(run, 75*time.Second) - last; at < 60*time.Second {
			t.Errorf("released %s after the last heartbeat", at)
		}
	})
	for _, shared := range []bool{false, true} {
		inBubble(t, fmt.Sprintf("only polls, shared %t", shared), func(o *harness) {
			a, _ := o.app("a", shared)
			o.hired(a, "w", nil)
			task := o.opened(a, "w")
			run := a.start("two").RunID
			a.poll("w", protocol.KindWorkflow, 0)
			time.Sleep(290 * time.Second)
			if s := o.session("s"); o.owner(run) != "w" || s.Status != protocol.SessionActive {
				t.Errorf("the task is leased to %q, the session %s", o.owner(run), s.Status)
			}
			if got := a.result(&protocol.Task{Kind: protocol.KindActivity, Activity: task}, "done"); got.Err != nil {
				t.Errorf("the result: %v", got.Err)
			}
		})
	}
}

// Two apps receive heartbeats of a worker in turn. The first app does not release the worker's tasks while the other
// app receives heartbeats, and the app that received the last heartbeat detects the loss in time.
func TestAppWithTheLastHeartbeatExpiresTheWorker(t *testing.T) {
	for _, gap := range []time.Duration{
		5 * time.Second, 17 * time.Second, 29 * time.Second, 41 * time.Second, 55 * time.Second,
	} {
		inBubble(t, gap.String(), func(o *harness) {
			a, _ := o.app("a", true)
			b, _ := o.app("b", true)
			o.hired(a, "w", func(in *protocol.RegisterRequest) { in.HeartbeatSecs = new(int64(30)) })
			o.opened(a, "w")
			for i := range 9 { // app b receives the last heartbeat
				time.Sleep(gap)
				o.beat([]*app{b, a}[i%2], "w", "", 0)
			}
			last := o.at()
			for _, quiet := range []time.Duration{gap, 0} {
				o.beat(b, "w", "", 0)
				last = o.at()
				time.Sleep(quiet)
			}
			o.lost("s", 66*time.Second)
			if at := o.at() - last; at < 60*time.Second || at > 65*time.Second {
				t.Errorf("the session is lost after %s", at)
			}
		})
	}
}

// Heartbeats are stored in batches, not one by one.
func TestHeartbeatsAreStoredInBatches(t *testing.T) {
	inBubble(t, "of 200 workers", func(o *harness) {
		a, _ := o.app("a", true)
		const workers = 200
		for i := range workers {
			o.hired(a, fmt.Sprint("w", i), nil)
		}
		hear := func() {
			for i := range workers {
				must[protocol.PollResponse](t)(a.Poll(o.t.Context(), protocol.PollRequest{
					WorkerID: fmt.Sprint("w", i), Kinds: []protocol.TaskKind{protocol.KindActivity}, Timeout: new(int64),
				}))
			}
			time.Sleep(10 * time.Second)
		}
		hear()
		before := o.store.Stats()
		for range 30 {
			hear()
		}
		if n := o.store.Stats().Commits - before.Commits; n > 5*2*(2+1+2) {
			// five minutes with fifty workers per commit, and the app's own heartbeats
			t.Errorf("%d commits in five minutes", n)
		}
	})
}

// staleEverywhere fails if a view of an app shows the worker as stale earlier than 60 s after its last heartbeat, or as
// alive later than 62 s after it.
func (o *harness) staleEverywhere(worker, run string, silentSince time.Duration, apps ...*app) {
	o.t.Helper()
	for _, silent := range []time.Duration{5, 20, 40, 51, 59, 62, 64, 70, 90, 115, 125, 135} {
		silent *= time.Second
		time.Sleep(silentSince + silent - o.at())
		for i, a := range apps {
			for view, stale := range o.staleViews(a, worker, run) {
				if stale != (silent > 60*time.Second) {
					o.t.Errorf("after %s of silence %s of app %d: stale is %t", silent, view, i, stale)
				}
			}
		}
	}
}

// staleViews returns, for each view of an app, whether it shows the worker as stale.
func (o *harness) staleViews(a *app, worker, run string) map[string]bool {
	o.t.Helper()
	ctx := o.t.Context()
	views := map[string]bool{}
	active := must[[]protocol.WorkerView](o.t)(a.Workers(ctx, "", "", string(protocol.WorkerActive)))
	views["the list of active workers"] = !slices.ContainsFunc(active, func(w protocol.WorkerView) bool {
		return w.WorkerID == worker
	})
	views["the worker"] = must[protocol.WorkerView](o.t)(a.Worker(ctx, "", worker)).Status == protocol.WorkerStale
	for _, p := range must[protocol.QueueState](o.t)(a.View.Queue(ctx, "", "default")).Pollers {
		if p.WorkerID == worker {
			views["the queue"] = p.Stale
		}
	}
	for _, b := range must[protocol.BuildRollout](o.t)(a.BuildIDs(ctx, "", "default")).BuildIDs {
		views["the build"] = b.StaleWorkers == 1 && b.ActiveWorkers == 0
	}
	task := must[protocol.RunView](o.t)(a.Describe(ctx, protocol.Target{RunID: run})).Pending.Task
	views["the wait reason"] = task.Wait.Reason == protocol.WaitNoWorker
	return views
}

// A killed worker is stale 60 s after its last heartbeat in every view of every app, and stays stale, also if several
// apps received its heartbeats.
func TestAKilledWorkerIsStaleAfterAMinuteInEveryView(t *testing.T) {
	long := func(in *protocol.RegisterRequest) { in.Incarnation, in.HeartbeatSecs = "p", new(int64(10)) }
	for _, c := range []struct {
		name  string
		apps  int
		kind  func(*protocol.RegisterRequest)
		beats []int // index of the app that receives each heartbeat, 10 s apart
	}{
		{"one app", 1, long, []int{0, 0, 0}},
		{"no heartbeat after the registration", 2, long, nil},
		{"heartbeats at one app", 2, long, []int{0, 0, 0, 0, 0, 0, 0, 0}},
		{"HTTP worker, heartbeats at one app", 2, nil, []int{0, 0, 0, 0, 0, 0, 0, 0}},
		{"last heartbeat at the other app", 2, long, []int{0, 0, 0, 0, 0, 0, 0, 1}},
		{"heartbeats at both apps in turn", 2, long, []int{0, 1, 0, 1, 0, 1, 0, 1, 0, 1}},
		{"HTTP worker, heartbeats at both apps in turn", 2, nil, []int{0, 1, 0, 1, 0, 1, 0, 1, 0, 1}},
	} {
		inBubble(t, c.name, func(o *harness) {
			var apps []*app
			for i := range c.apps {
				a, _ := o.app(string(rune('a'+i)), c.apps > 1)
				apps = append(apps, a)
			}
			o.hired(apps[0], "w", c.kind)
			incarnation := ""
			if c.kind != nil {
				incarnation = "p"
			}
			for _, i := range c.beats {
				time.Sleep(10 * time.Second)
				o.beat(apps[i], "w", incarnation, 0)
			}
			silent := o.at()
			o.staleEverywhere("w", apps[0].start("waits").RunID, silent, apps...)
		})
	}
}

// A worker that sends heartbeats is active in the view of every app at all times, for any pauses between heartbeats and
// any order of the apps that receive them.
func TestAWorkerWithHeartbeatsIsActiveAtEveryApp(t *testing.T) {
	for name, c := range map[string]struct {
		pauses []int // seconds between heartbeats; the list is repeated
		apps   []int // apps that receive the heartbeats; the list is repeated
	}{
		"one stored pause, then short pauses": {[]int{20, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, []int{0}},
		"pauses of 30 s":                      {[]int{30}, []int{0}},
		"both apps in turn":                   {[]int{10}, []int{0, 1}},
		"one app, then the other":             {[]int{10}, []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1}},
		"one heartbeat at the other app":      {[]int{10}, []int{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
	} {
		inBubble(t, name, func(o *harness) {
			a, _ := o.app("a", true)
			b, _ := o.app("b", true)
			apps := []*app{a, b}
			o.join(a, "w", "p")
			for i := 0; o.at() < 5*time.Minute; i++ {
				for range c.pauses[i%len(c.pauses)] {
					time.Sleep(time.Second)
					for k, seen := range apps {
						if w := must[protocol.WorkerView](o.t)(seen.Worker(o.t.Context(), "", "w")); w.Status != protocol.WorkerActive {
							o.t.Fatalf("after %s app %d shows the worker as %s", o.at(), k, w.Status)
						}
					}
				}
				o.beat(apps[c.apps[i%len(c.apps)]], "w", "p", 0)
			}
		})
	}
}

// On PostgreSQL the row of a worker without heartbeats expires Alive after the last one, not StoreAlive later. So an
// app that received no heartbeat of the worker also shows it as stale in time.
func TestTheRowOfASilentWorkerIsExactOnPostgres(t *testing.T) {
	database := apptest.Postgres(t)
	with := broker.Options{Alive: time.Second, StoreAlive: time.Hour, Quiet: 200 * time.Millisecond}
	one, a, _ := onPostgresWith(t, database, "a", with)
	_, b, _ := onPostgresWith(t, database, "b", with)
	one.join(a, "w", "p")
	one.beat(a, "w", "p", 0)
	b.eventually("the other app shows the worker as stale", func() bool {
		return must[protocol.WorkerView](t)(b.Worker(t.Context(), "", "w")).Status == protocol.WorkerStale
	})
}
