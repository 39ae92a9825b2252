package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// acquire lets a worker acquire a session by an API request, without a task.
func (a *app) acquire(worker, session string) *protocol.SessionView {
	a.t.Helper()
	in := protocol.SessionCreate{WorkerID: worker, SessionOptions: protocol.SessionOptions{SessionID: session}}
	return must[protocol.SessionResponse](a.t)(a.CreateSession(a.t.Context(), in)).Session
}

// After a restore all sessions of a namespace are released, and every later acquisition gets an epoch above the
// watermark. Sessions of other namespaces keep their owners and epochs.
func TestSessionsOfARestoredDatabaseAreReleased(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		a.register("v")
		const n = 8
		epochs := map[string]int64{}
		for i := range n {
			id := fmt.Sprint("s", i)
			epochs[id] = a.acquire("w", id).Epoch
		}
		floor := time.Now().Add(time.Hour).UnixMicro()
		released, at, err := broker.ReleaseAll(t.Context(), a.store, "default", floor)
		if err != nil || released != n || at != floor {
			t.Fatalf("released %d sessions, floor %d, %v; want %d and %d", released, at, err, n, floor)
		}
		_, err = a.HeartbeatSession(t.Context(), protocol.SessionVerb{WorkerID: "w", SessionID: "s0", Epoch: epochs["s0"]})
		if err == nil {
			t.Error("the owner from before the restore renews its session")
		}
		for i := range n {
			id := fmt.Sprint("s", i)
			if got := a.acquire("v", id).Epoch; got <= floor {
				t.Errorf("session %s is acquired under epoch %d, the floor is %d", id, got, floor)
			}
		}
		if got := a.acquire("w", "new").Epoch; got <= floor {
			t.Errorf("a new session is acquired under epoch %d, the floor is %d", got, floor)
		}
		// Sessions of another namespace do not change.
		held := a.acquire("w", "held")
		if released, _, err = broker.ReleaseAll(t.Context(), a.store, "other", 0); err != nil || released != 0 {
			t.Errorf("released %d sessions of a namespace without any, %v", released, err)
		}
		must[protocol.SessionResponse](t)(a.HeartbeatSession(t.Context(), protocol.SessionVerb{
			WorkerID: "w", SessionID: "held", Epoch: held.Epoch,
		}))
		// Without a watermark from the operator, the clock is the watermark.
		before := time.Now().Add(-time.Minute).UnixMicro()
		if _, at, err = broker.ReleaseAll(t.Context(), a.store, "default", 1); err != nil || at < before {
			t.Errorf("the floor is %d, the clock was at %d, %v", at, before, err)
		}
	})
}

// A worker may report an epoch that the restored database does not know. An epoch more than a day ahead of the
// database's clock is ignored and counted; one within that day is not counted.
func TestATooHighEpochIsIgnoredAndCounted(t *testing.T) {
	inBubble(t, "", func(o *harness) {
		t := o.t
		registry := prometheus.NewRegistry()
		a, _ := o.appWith(broker.Options{
			Release: "test", App: "a", Log: apptest.Log(t), Metrics: broker.NewMetrics(registry),
		})
		a.register("w")
		release := func(ahead time.Duration) (known, next int64) {
			known = time.Now().Add(ahead).UnixMicro()
			must[protocol.SessionResponse](t)(a.ReleaseSession(t.Context(), protocol.SessionVerb{
				WorkerID: "w", SessionID: "s", Epoch: a.acquire("w", "s").Epoch, Reason: protocol.ReasonGivenUp, Known: known,
			}))
			next = a.acquire("w", "s").Epoch
			return known, next
		}
		counted := func() (n float64) {
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range families {
				if f.GetName() == "sojourn_session_epochs_ignored_total" {
					n = f.GetMetric()[0].GetCounter().GetValue()
				}
			}
			return n
		}
		if known, next := release(25 * time.Hour); next >= known || counted() != 1 {
			t.Errorf("epoch %d of tomorrow: the next one is %d, counted %v times", known, next, counted())
		}
		if known, next := release(23 * time.Hour); next <= known || counted() != 1 {
			t.Errorf("epoch %d of today: the next one is %d, counted %v times", known, next, counted())
		}
	})
}
