package invariants

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

func resources(t testing.TB, text string) protocol.Resources {
	t.Helper()
	return must[protocol.Resources](t)(protocol.ParseResources(text))
}

// needing returns an activity in a session that needs resources; it is never evicted.
func needing(t testing.TB, id, needs string) protocol.Command {
	return withOptions(protocol.SessionOptions{
		SessionID: id, Lease: 3600, Pinned: true, MaxActivities: 10, Resources: resources(t, needs),
	})
}

// used returns how much of a resource the sessions of a worker use.
func (w *harness) used(ns, worker, name string) string {
	w.t.Helper()
	for _, one := range must[[]protocol.WorkerView](w.t)(w.apps[0].View().Workers(w.t.Context(), ns, "", "")) {
		if one.WorkerID == worker {
			return one.Resources[name].Used.String()
		}
	}
	w.t.Fatalf("no worker %s", worker)
	return ""
}

// 50 sessions need one of three licences each, and 20 polls at each app race for them.
func TestConcurrentAcquisitionsDoNotExceedResources(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { raceForLicences(t, onSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { raceForLicences(t, onPostgres(t, 2)) })
}

func raceForLicences(t *testing.T, w *harness) {
	const have, sessions = 3, 50
	ns := w.namespace("licences")
	register := func(text string) {
		t.Helper()
		in := worker(ns, "a", "a1", 1000, time.Hour)
		in.Resources = resources(t, text)
		must[protocol.RegisterResponse](t)(w.apps[0].Broker().Register(t.Context(), in))
	}
	register("licence=3")
	var commands []protocol.Command
	for i := range sessions {
		commands = append(commands, needing(t, fmt.Sprintf("s%d", i), "licence=1"))
	}
	var race sync.WaitGroup
	var mu sync.Mutex
	var got []*protocol.ActivityTask
	race.Go(func() {
		for i := 0; i < sessions; i += 10 { // some tasks find a waiting poll, others wait for a claim
			w.decide(ns, fmt.Sprintf("run%d", i), commands[i:i+10]...)
		}
	})
	for i := range 20 * len(w.apps) {
		race.Go(func() {
			for range 3 {
				task, err := poll(t.Context(), w.apps[i%len(w.apps)].Broker(), ns, "a", "a1", 1)
				if err != nil {
					t.Error(err)
				}
				if task != nil {
					mu.Lock()
					got = append(got, task)
					mu.Unlock()
				}
			}
		})
	}
	race.Wait()
	if len(got) != have {
		t.Fatalf("%d sessions were acquired, want %d", len(got), have)
	}
	if n := w.used(ns, "a", "licence"); n != "3" {
		t.Errorf("the worker uses %s licences, want 3", n)
	}
	release := func(task *protocol.ActivityTask) {
		t.Helper()
		if a := finish(t.Context(), w.apps[0].Broker(), ns, task, nil); a.Err != nil {
			t.Fatal(a.Err)
		}
		_, err := w.apps[0].Broker().ReleaseSession(t.Context(), protocol.SessionVerb{
			Namespace: ns, WorkerID: "a", SessionID: task.Session.SessionID,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	last := w.apps[len(w.apps)-1].Broker()
	release(got[0])
	task := must[*protocol.ActivityTask](t)(poll(t.Context(), last, ns, "a", "a1", 30))
	if task == nil {
		t.Fatal("the free licence is not used")
	}
	if more := must[*protocol.ActivityTask](t)(poll(t.Context(), last, ns, "a", "a1", 1)); more != nil {
		t.Errorf("a fourth session was acquired: %s", more.Session.SessionID)
	}

	// With fewer resources the worker keeps its sessions and acquires no more until enough of them have ended.
	register("licence=2")
	if n := w.used(ns, "a", "licence"); n != "3" {
		t.Errorf("after a registration with less the worker uses %s licences, want 3", n)
	}
	release(task)
	if more := must[*protocol.ActivityTask](t)(poll(t.Context(), last, ns, "a", "a1", 1)); more != nil {
		t.Errorf("with 2 of 2 licences in use a session was acquired: %s", more.Session.SessionID)
	}
	release(got[1])
	if more := must[*protocol.ActivityTask](t)(poll(t.Context(), last, ns, "a", "a1", 30)); more == nil {
		t.Error("with 1 of 2 licences in use no session was acquired")
	}
}

// Tasks of sessions for which a worker has too little are in index ranges that its claims do not read: they delay
// neither other sessions nor activities without a session.
func TestSessionsThatDoNotFitAreNotRead(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { unread(t, onSQLite(t)) })
	t.Run("postgres", func(t *testing.T) { unread(t, onPostgres(t, 1)) })
}

func unread(t *testing.T, w *harness) {
	reads := map[int][]int64{}
	for _, n := range []int{few, blocked} {
		ns := w.namespace(fmt.Sprint("large", n))
		b, ctx := w.apps[0].Broker(), t.Context()
		in := worker(ns, "a", "a1", 100_000, time.Hour)
		in.Resources = resources(t, "gpu_mem=80GiB")
		must[protocol.RegisterResponse](t)(b.Register(ctx, in))
		w.decide(ns, "first", needing(t, "first", "gpu_mem=60GiB"))
		if task := must[*protocol.ActivityTask](t)(poll(ctx, b, ns, "a", "a1", 30)); task == nil {
			t.Fatal("the first session was not acquired")
		}
		for i := 0; i < n; i += 250 {
			var commands []protocol.Command
			for k := range min(250, n) {
				commands = append(commands, needing(t, fmt.Sprintf("large%d", i+k), "gpu_mem=24GiB"))
			}
			w.decide(ns, fmt.Sprint("large", i), commands...)
		}
		w.decide(ns, "small", activity(), needing(t, "small", "gpu_mem=16GiB"))
		none := int64(0)
		for _, want := range []int{2, 0} {
			before := w.apps[0].Store().Stats().Candidates
			p := must[protocol.PollResponse](t)(ask(ctx, b, protocol.PollRequest{
				Namespace: ns, WorkerID: "a", Incarnation: "a1", Max: 10, Timeout: &none,
			}))
			if len(p.Tasks) != want {
				t.Errorf("next to %d sessions that do not fit, a poll receives %d tasks, want %d", n, len(p.Tasks), want)
			}
			reads[n] = append(reads[n], w.apps[0].Store().Stats().Candidates-before)
		}
	}
	if fmt.Sprint(reads[few]) != fmt.Sprint(reads[blocked]) || reads[blocked][1] != 0 {
		t.Errorf("ready tasks read by two polls: %v", reads)
	}
}
