package invariants

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Sessions acquired by a request count towards the maximum like sessions acquired by a task, also for concurrent
// requests at both apps.
func TestClaimsAtOnceDoNotPassTheCap(t *testing.T) {
	test := func(t *testing.T, w *harness) {
		for round := range 10 {
			ns := w.namespace(fmt.Sprintf("cap%d", round))
			must[protocol.RegisterResponse](t)(w.apps[0].Broker().Register(t.Context(), worker(ns, "a", "a1", 2, time.Hour)))
			var tasks []protocol.Command
			for i := range 4 {
				tasks = append(tasks, inSession(fmt.Sprintf("task%d", i)))
			}
			w.decide(ns, "wf", tasks...)
			var got atomic.Int64
			var wait sync.WaitGroup
			for i := range 12 {
				b := w.apps[i%len(w.apps)].Broker()
				wait.Go(func() {
					if i%3 == 0 {
						task, err := poll(t.Context(), b, ns, "a", "a1", 0)
						if err != nil {
							t.Error(err)
						}
						if task != nil && task.Session.IsNew {
							got.Add(1)
						}
						return
					}
					_, err := b.CreateSession(t.Context(), protocol.SessionCreate{
						WorkerID: "a", Namespace: ns, Incarnation: "a1",
						SessionOptions: protocol.SessionOptions{SessionID: fmt.Sprintf("verb%d", i)},
					})
					switch reason := protocol.ReasonOf(err); {
					case err == nil:
						got.Add(1)
					case reason != protocol.ReasonSessionLimit:
						t.Errorf("a session at the cap: %v", err)
					}
				})
			}
			wait.Wait()
			if n := got.Load(); n != 2 {
				t.Errorf("round %d: the worker holds %d sessions, its most is 2", round, n)
			}
		}
	}
	t.Run("sqlite", func(t *testing.T) { test(t, onSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { test(t, onPostgres(t, 2)) })
}

// A superseded process acquires no session at an app that has not seen the new registration, neither by a poll nor by a
// request. That app reads the new registration then and rejects the process.
func TestASupersededProcessClaimsNothingAtAnotherApp(t *testing.T) {
	w := onPostgres(t, 2)
	ns := w.namespace("superseded")
	here, there := w.apps[0].Broker(), w.apps[1].Broker()
	must[protocol.RegisterResponse](t)(here.Register(t.Context(), worker(ns, "a", "a1", 10, time.Hour)))
	w.decide(ns, "one", inSession("s"))
	first := must[*protocol.ActivityTask](t)(poll(t.Context(), there, ns, "a", "a1", 30))
	if first == nil {
		t.Fatal("the first process gets nothing")
	}
	must[protocol.RegisterResponse](t)(here.Register(t.Context(), worker(ns, "a", "a2", 10, time.Hour)))
	later := must[*protocol.ActivityTask](t)(poll(t.Context(), here, ns, "a", "a2", 30))
	if later == nil || later.Session.Epoch <= first.Session.Epoch {
		t.Fatalf("the second process gets %+v", later)
	}
	w.decide(ns, "two", inSession("s"), inSession("new"))
	if task, err := poll(t.Context(), there, ns, "a", "a1", 0); task != nil {
		t.Errorf("the superseded process gets %+v, %v", task.Session, err)
	}
	_, err := there.CreateSession(t.Context(), protocol.SessionCreate{
		WorkerID: "a", Namespace: ns, Incarnation: "a1", SessionOptions: protocol.SessionOptions{SessionID: "verb"},
	})
	if protocol.ReasonOf(err) != protocol.ReasonStaleRegistration {
		t.Errorf("the superseded process asks for a session: %v", err)
	}
}

// The held poll of a superseded process at another app is rejected, although that app did not see the new registration
// and the process has no lease. Its successor receives both plain tasks and the tasks of the session.
func TestASupersededProcessIsRefusedAtEveryApp(t *testing.T) {
	w := onPostgres(t, 2)
	ns := w.namespace("refused")
	here, there := w.apps[0].Broker(), w.apps[1].Broker()
	must[protocol.RegisterResponse](t)(there.Register(t.Context(), worker(ns, "a", "a1", 10, time.Hour)))
	w.decide(ns, "one", inSession("s"))
	first := must[*protocol.ActivityTask](t)(poll(t.Context(), there, ns, "a", "a1", 30))
	if first == nil {
		t.Fatal("the first process gets nothing")
	}
	if a := finish(t.Context(), there, ns, first, nil); a.Err != nil {
		t.Fatal(a.Err)
	}
	w.step(ns, "one", protocol.Command{Type: protocol.CompleteWorkflow})
	waited := make(chan error)
	go func() {
		task, err := poll(context.Background(), there, ns, "a", "a1", 30)
		if task != nil {
			err = fmt.Errorf("it got %s", task.AttemptID)
		}
		waited <- err
	}()
	must[protocol.RegisterResponse](t)(here.Register(t.Context(), worker(ns, "a", "a2", 10, time.Hour)))
	if err := <-waited; protocol.ReasonOf(err) != protocol.ReasonStaleRegistration {
		t.Errorf("the superseded process that waited: %v", err)
	}
	w.decide(ns, "two", activity(), inSession("s"))
	if task, err := poll(t.Context(), there, ns, "a", "a1", 0); task != nil ||
		protocol.ReasonOf(err) != protocol.ReasonStaleRegistration {
		t.Errorf("the superseded process asks again: %v, %v", task, err)
	}
	for range 2 {
		if task := must[*protocol.ActivityTask](t)(poll(t.Context(), here, ns, "a", "a2", 30)); task == nil {
			t.Error("its successor does not get the work")
		}
	}
	_, err := there.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{Namespace: ns, WorkerID: "a", Incarnation: "a1"})
	if protocol.ReasonOf(err) != protocol.ReasonStaleRegistration {
		t.Errorf("its heartbeat: %v", err)
	}
}

// A client of the HTTP contract sends no incarnation: it polls as its newest registration, at any app.
func TestAWorkerThatNamesNoProcessPollsAsTheNewestAtEveryApp(t *testing.T) {
	w := onPostgres(t, 2)
	ns := w.namespace("nameless")
	register := func(b *broker.Broker) {
		r := worker(ns, "a", "", 10, time.Hour)
		must[protocol.RegisterResponse](t)(b.Register(t.Context(), r))
	}
	here, there := w.apps[0].Broker(), w.apps[1].Broker()
	register(there)
	w.decide(ns, "one", inSession("s"))
	first := must[*protocol.ActivityTask](t)(poll(t.Context(), there, ns, "a", "", 30))
	register(here)
	var later *protocol.ActivityTask
	for late := time.Now().Add(time.Minute); later == nil && time.Now().Before(late); {
		// A poll that began before the app read the new registration ends empty when the app reads it.
		later = must[*protocol.ActivityTask](t)(poll(t.Context(), there, ns, "a", "", 30))
	}
	if first == nil || later == nil || later.AttemptID == first.AttemptID || later.Session.Epoch <= first.Session.Epoch {
		t.Fatalf("the worker gets %+v, then %+v", first, later)
	}
	created := must[protocol.SessionResponse](t)(there.CreateSession(t.Context(), protocol.SessionCreate{
		WorkerID: "a", Namespace: ns, SessionOptions: protocol.SessionOptions{SessionID: "verb"},
	}))
	if created.Outcome != "created" {
		t.Errorf("its session is %s", created.Outcome)
	}
}

// An app without connections of the workers reports the right reason of a wait and the right owner of a session.
func TestReasonsAreRightAtEveryApp(t *testing.T) {
	w := onPostgres(t, 2)
	ns := w.namespace("reasons")
	here, there := w.apps[0].Broker(), w.apps[1].Broker()
	must[protocol.RegisterResponse](t)(here.Register(t.Context(), worker(ns, "holder", "h1", 10, time.Hour)))
	needs := activity()
	needs.Requirements = []string{"gpu"}
	w.decide(ns, "one", inSession("s"), inSession("s"), needs)
	if task := must[*protocol.ActivityTask](t)(poll(t.Context(), here, ns, "holder", "h1", 30)); task == nil {
		t.Fatal("the holder gets nothing")
	}
	for i, b := range []*broker.Broker{here, there} {
		run := must[protocol.RunView](t)(w.apps[i].View().Describe(
			t.Context(), protocol.Target{Namespace: ns, WorkflowID: "one"},
		))
		for k, want := range []string{
			"", "session s is held by worker holder, which is busy or not polling",
			"needs gpu, which worker holder does not offer",
		} {
			if got := run.Pending.Activities[k].Why; !strings.Contains(got, want) || want == "" && got != "" {
				t.Errorf("app %d says of activity %d: %q, want %q", i, k, got, want)
			}
		}
		s := must[protocol.SessionView](t)(b.View().Session(t.Context(), ns, "s"))
		if s.Holder == nil || s.Holder.Stale || s.Holder.Status != protocol.WorkerActive {
			t.Errorf("app %d says that session s is held by %+v", i, s.Holder)
		}
	}
}
