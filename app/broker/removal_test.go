package broker_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// listed returns the IDs of all workers with a row.
func (o *harness) listed() (ids []string) {
	o.t.Helper()
	err := o.store.View(o.t.Context(), func(r store.Reader) error {
		list, err := r.Workers(o.t.Context(), store.WorkerQuery{Namespace: store.DefaultNamespace, Limit: 1000})
		for _, w := range list {
			ids = append(ids, w.ID)
		}
		return err
	})
	if err != nil {
		o.t.Error(err)
	}
	return ids
}

// A worker that sends heartbeats and dies without deregistering stays listed for 15 to 17 minutes, whether its app
// lives, restarts or ends. If the app ends, the heartbeats of the last 75 s may not have been stored. Live workers are
// not removed.
func TestSilentWorkerIsRemoved(t *testing.T) {
	const kept, late, unstored = 15 * time.Minute, 2 * time.Minute, 75 * time.Second
	for name, c := range map[string]struct{ shared, repeated, other bool }{
		"alone": {}, "its app is started again": {repeated: true}, "one of several": {shared: true},
		"of several, it is started again": {shared: true, repeated: true}, "its app is gone": {shared: true, other: true},
	} {
		inBubble(t, name, func(o *harness) {
			a, kill := o.app("a", c.shared)
			b := a
			if c.other {
				b, _ = o.app("b", true)
			}
			o.join(a, "ended", "p")
			o.join(b, "lives", "p")
			for range 8 {
				o.beat(a, "ended", "p", 0)
				o.beat(b, "lives", "p", 15*time.Second)
			}
			o.beat(a, "ended", "p", 0)
			silent := o.at()
			if c.repeated || c.other {
				kill()
			}
			if c.repeated {
				time.Sleep(5 * time.Minute)
				b, _ = o.app("a", c.shared)
				if !c.shared {
					silent = o.at() // heartbeats may have arrived until the app ended
				}
			}
			o.beat(b, "lives", "p", silent+kept-unstored-o.at()-time.Second)
			if got := o.listed(); !slices.Contains(got, "ended") {
				o.t.Errorf("%s after its last heartbeat the workers are %v", o.at()-silent, got)
			}
			o.beat(b, "lives", "p", unstored+late)
			if got := o.listed(); !slices.Equal(got, []string{"lives"}) {
				o.t.Errorf("%s after its last heartbeat the workers are %v", o.at()-silent, got)
			}
			for _, w := range must[[]protocol.WorkerView](o.t)(b.Workers(o.t.Context(), "", "", "")) {
				if w.Status != protocol.WorkerActive {
					o.t.Errorf("worker %s is %s", w.WorkerID, w.Status)
				}
			}
			o.join(b, "ended", "p") // the process was paused all the time
			o.beat(b, "ended", "p", 0)
		})
	}
}

// A worker without heartbeats is not removed while it has leases, because leases refer to its row.
func TestASilentWorkerThatHoldsSomethingIsNotRemoved(t *testing.T) {
	for name, shared := range map[string]bool{"alone": false, "with other apps": true} {
		inBubble(t, name, func(o *harness) {
			a, _ := o.app("a", shared)
			o.hired(a, "w", func(in *protocol.RegisterRequest) {
				in.Incarnation, in.AttemptLease = "p", 3000
				in.HeartbeatSecs = new(int64(10))
			})
			a.start("one")
			task := a.poll("w", protocol.KindWorkflow, 0)
			time.Sleep(49 * time.Minute)
			if got := o.listed(); !slices.Equal(got, []string{"w"}) {
				o.t.Fatalf("the workers are %v while it has %+v", got, task)
			}
			time.Sleep(2 * time.Minute) // the lease has expired
			run := task.Workflow.RunID
			if err := a.Due(o.t.Context(), store.Due{Kind: store.DueRun, Run: run}); err != nil {
				o.t.Fatal(err)
			}
			time.Sleep(7 * time.Minute)
			if got := o.listed(); len(got) != 0 {
				o.t.Errorf("there are %v", got)
			}
		})
	}
}

// However many workers end one after the other, the list of workers is read once a minute.
func TestEndingFleetIsCheckedOncePerMinute(t *testing.T) {
	const workers = 120
	inBubble(t, "alone", func(o *harness) {
		a, _ := o.app("a", false)
		for i := range workers {
			id := fmt.Sprint("w-", i)
			o.join(a, id, "p")
			o.beat(a, id, "p", 0)
			time.Sleep(5 * time.Second)
		}
		time.Sleep(2 * time.Minute) // no worker sends heartbeats
		if got := len(o.listed()); got != workers {
			o.t.Fatalf("%d workers are listed", got)
		}
		stats := o.store.(interface{ Stats() store.Stats })
		before := stats.Stats()
		time.Sleep(15 * time.Minute)
		if n := stats.Stats().Reads - before.Reads; n > 3*15 {
			o.t.Errorf("%d reads in the minutes in which they were removed", n)
		}
		if got := o.listed(); len(got) != 0 {
			o.t.Errorf("there are %v", got)
		}
	})
}

// A worker that only polls may work without heartbeats for any time. Workers that ended long ago are removed; a worker
// that polls is not, although its heartbeats are not stored.
func TestLongSilentWorkersAreRemoved(t *testing.T) {
	if testing.Short() {
		t.Skip("runs days of virtual time")
	}
	for name, shared := range map[string]bool{"alone": false, "with other apps": true} {
		inBubble(t, name, func(o *harness) {
			a, _ := o.app("one", shared)
			o.join(a, "gone", "p1")
			o.join(a, "polls", "p1")
			for range 6 { // three days in steps of half a day
				if got := len(o.listed()); got != 2 {
					o.t.Fatalf("after %v %d workers are listed, want both", o.at(), got)
				}
				time.Sleep(12 * time.Hour)
				must[protocol.PollResponse](o.t)(a.Poll(
					o.t.Context(), protocol.PollRequest{WorkerID: "polls", Incarnation: "p1", Timeout: new(int64)},
				))
				if _, err := a.Prune(o.t.Context()); err != nil {
					o.t.Fatal(err)
				}
			}
			if got := o.listed(); len(got) != 1 || got[0] != "polls" {
				o.t.Errorf("after %v the workers are %v, want the one that polls", o.at(), got)
			}
		})
	}
}
