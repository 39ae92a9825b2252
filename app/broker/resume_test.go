package broker_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// suspends registers a worker that suspends sessions whose lease expired.
func (a *app) suspends(id string, lease time.Duration, most int) {
	a.t.Helper()
	slots := 100
	must[protocol.RegisterResponse](a.t)(a.Register(a.t.Context(), protocol.RegisterRequest{
		WorkerID: id, Incarnation: id + "1", TaskQueue: "default", WorkflowTypes: []string{"wf"}, AnyActivity: true,
		Capabilities: []string{broker.CapSessions}, MaxSessions: &most, ActivitySlots: &slots,
		Session: &protocol.SessionSettings{
			LeaseMS: lease.Milliseconds(), BufferMS: 100, IdleMS: time.Hour.Milliseconds(), Resumes: true,
		},
	}))
}

// One worker asks an app to resume its sessions while another worker polls another app for tasks of these sessions.
// Each session is either resumed under its epoch or acquired under a higher one.
func TestAResumeAndAnAcquisitionAtOnceHaveOneWinner(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for leases in real time")
	}
	apptest.Databases(t, func(t *testing.T, database string) {
		const sessions, lease = 12, 4 * time.Second
		a := on(t, database)
		b := a
		if !strings.HasPrefix(database, "sqlite:") {
			b = on(t, database)
		}
		a.register("flow")
		a.suspends("a", lease, 100)
		ids := map[string]int64{}
		var resume []protocol.SessionRenewal
		var all []protocol.Command
		for i := range sessions {
			all = append(all, inSession(fmt.Sprintf("s%d", i)))
		}
		a.schedule("one", all...)
		for range sessions {
			got := a.poll("a", protocol.KindActivity, 30)
			if r := a.result(got, 1); r.Err != nil {
				t.Fatal(r.Err)
			}
			held := got.Activity.Session
			ids[held.SessionID] = held.Epoch
			resume = append(resume, protocol.SessionRenewal{SessionID: held.SessionID, Epoch: held.Epoch, Resume: true})
		}
		a.decide(a.poll("flow", protocol.KindWorkflow, 30), all...)
		for id := range ids {
			a.expires(id)
		}
		b.suspends("b", lease, 100)
		var wait sync.WaitGroup
		var beat protocol.WorkerHeartbeatResponse
		wait.Go(func() {
			beat = must[protocol.WorkerHeartbeatResponse](t)(a.WorkerHeartbeat(
				t.Context(), protocol.WorkerHeartbeat{WorkerID: "a", Incarnation: "a1", Sessions: resume},
			))
		})
		acquired := map[string]int64{}
		for range sessions / 2 {
			if got := b.poll("b", protocol.KindActivity, 0); got != nil {
				acquired[got.Activity.Session.SessionID] = got.Activity.Session.Epoch
			}
		}
		wait.Wait()
		for _, s := range beat.Sessions {
			epoch, taken := acquired[s.SessionID]
			switch {
			case s.Held && taken:
				t.Errorf("session %s was resumed under epoch %d and acquired under %d", s.SessionID, s.Epoch, epoch)
			case s.Held && s.Epoch != ids[s.SessionID], taken && epoch <= ids[s.SessionID],
				!s.Held && !taken:
				t.Errorf("session %s had epoch %d: resumed %+v, acquired under %d", s.SessionID, ids[s.SessionID], s, epoch)
			}
		}
		t.Logf("%d of %d sessions were acquired by the other worker", len(acquired), sessions)
	})
}

// A task of a suspended session keeps its epoch if it is dispatched to the previous owner. If that process gave the
// epoch up, it gets a higher epoch.
func TestATaskKeepsTheEpochUnlessItWasGivenUp(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		const lease = 300 * time.Millisecond
		a := on(t, database)
		a.register("flow")
		a.suspends("a", lease, 100)
		step := func() (epoch int64, isNew bool) {
			t.Helper()
			got := a.poll("a", protocol.KindActivity, 30)
			if r := a.result(got, 1); r.Err != nil {
				t.Fatal(r.Err)
			}
			a.expires("s")
			a.decide(a.poll("flow", protocol.KindWorkflow, 30), inSession("s"))
			return got.Activity.Session.Epoch, got.Activity.Session.IsNew
		}
		a.schedule("one", inSession("s"))
		first, _ := step()
		second, isNew := step()
		if second != first || isNew {
			t.Errorf("epoch %d, new %t, after %d", second, isNew, first)
		}
		got := must[protocol.WorkerHeartbeatResponse](t)(a.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{
			WorkerID: "a", Incarnation: "a1",
			Sessions: []protocol.SessionRenewal{{SessionID: "s", Epoch: second, GivenUp: true}},
		}))
		if s := got.Sessions[0]; s.Held || s.Reason != protocol.ReasonGivenUp {
			t.Errorf("a release in a heartbeat: %+v", s)
		}
		third, isNew := step()
		if third <= second || !isNew {
			t.Errorf("after the epoch was given up: epoch %d, new %t, after %d", third, isNew, second)
		}
		v := must[protocol.SessionView](t)(a.Session(t.Context(), "", "s"))
		var what []string
		for _, e := range v.Timeline {
			what = append(what, e.What)
		}
		if all := strings.Join(what, " "); !strings.Contains(all, "resumed") {
			t.Errorf("the timeline is %s", all)
		}
	})
}

// The sessions that one heartbeat resumes are stored in one transaction, with the same statements for any number of
// them.
func TestTheSessionsOfAHeartbeatAreResumedTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("resumes 150 sessions")
	}
	var mu sync.Mutex
	spent := map[string][]store.Stats{}
	for _, sessions := range []int{10, 150} {
		apptest.Databases(t, func(t *testing.T, database string) {
			a := on(t, database)
			a.register("flow")
			a.suspends("w", 2*time.Second, sessions)
			var all []protocol.Command
			for i := range sessions {
				all = append(all, inSession(fmt.Sprint(i)))
			}
			a.schedule("one", all...)
			var resume []protocol.SessionRenewal
			for range sessions {
				got := a.poll("w", protocol.KindActivity, 30)
				if r := a.result(got, 1); r.Err != nil {
					t.Fatal(r.Err)
				}
				held := got.Activity.Session
				resume = append(resume, protocol.SessionRenewal{SessionID: held.SessionID, Epoch: held.Epoch, Resume: true})
			}
			for _, r := range resume {
				a.expires(r.SessionID)
			}
			stats := a.store.(interface{ Stats() store.Stats })
			before := stats.Stats()
			beat := must[protocol.WorkerHeartbeatResponse](t)(a.WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{
				WorkerID: "w", Incarnation: "w1", FromSettings: true, Sessions: resume,
			}))
			now := stats.Stats()
			for i, s := range beat.Sessions {
				if !s.Held || s.Epoch != resume[i].Epoch {
					t.Errorf("session %s: %+v, want it resumed under epoch %d", s.SessionID, s, resume[i].Epoch)
				}
			}
			kind, _, _ := strings.Cut(database, ":")
			mu.Lock()
			defer mu.Unlock()
			spent[kind] = append(spent[kind], store.Stats{
				Statements: now.Statements - before.Statements, Changes: now.Changes - before.Changes,
			})
		})
	}
	for kind, s := range spent {
		// Allow for other transactions of the app in the same period, and for the limited number of parameters of a
		// statement.
		if s[1].Changes > s[0].Changes+2 || s[1].Statements > s[0].Statements+10 {
			t.Errorf("%s: 10 sessions %+v, 150 sessions %+v, want as many changes", kind, s[0], s[1])
		}
	}
}
