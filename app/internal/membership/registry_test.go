package membership

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

func process(incarnation string) *engine.Worker {
	return &engine.Worker{Namespace: "default", ID: "w", Incarnation: incarnation, Queues: []string{"main"}}
}

var key = process("").Key()

// known returns the process that the registry has for the worker.
func known(r *Registry) string {
	if w := r.Get(key); w != nil {
		return w.Incarnation
	}
	return "nobody"
}

// A row that was read before a registration ended is not cached: it may be the row of the ended registration.
func TestARowReadBeforeAnEndIsNotCached(t *testing.T) {
	r := New(Options{Alive: time.Minute, Shared: true})
	r.Put(process("1"))
	before := r.Mark()
	r.RemoveProcess(store.Process{Worker: key, Incarnation: "1"})
	r.PutRead(process("1"), before)
	r.CacheRow(process("1"), before)
	if got := known(r); got != "nobody" {
		t.Errorf("known is %s", got)
	}
	r.CacheRow(process("2"), r.Mark())
	if got := known(r); got != "2" {
		t.Errorf("of a row read since: %s", got)
	}
}

// The end of one process does not remove a later process with the same ID.
func TestTheEndOfAProcessLeavesALaterOneAlone(t *testing.T) {
	for name, end := range map[string]func(*Registry){
		"gone":    func(r *Registry) { r.RemoveProcess(store.Process{Worker: key, Incarnation: "1"}) },
		"swapped": func(r *Registry) { r.Swap(key, process("1"), nil) },
		"missed":  func(r *Registry) { r.Forget(key, TrackedWorker{Worker: process("1")}) },
	} {
		r := New(Options{Alive: time.Minute})
		r.Put(process("1"))
		end(r)
		if got := known(r); got != "nobody" {
			t.Errorf("%s: known is %s", name, got)
		}
		r.Put(process("2"))
		end(r)
		if got := known(r); got != "2" {
			t.Errorf("%s, and another registered: known is %s", name, got)
		}
	}
}

// A worker with a heartbeat since the read is not forgotten.
func TestWorkerWithANewHeartbeatIsNotRemoved(t *testing.T) {
	r := New(Options{Alive: time.Minute})
	r.Put(process("1"))
	seen := r.All("default")[key]
	r.With(key, (*TrackedWorker).RecordHeartbeat)
	r.Forget(key, seen)
	if got := known(r); got != "1" {
		t.Errorf("known is %s", got)
	}
}

// A worker is alive for Options.Alive after its last heartbeat at this app. If apps share the database, the stored
// expiry counts for workers of other apps.
func TestHowLongAWorkerIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracked := func(r *Registry) (h TrackedWorker) {
			r.With(key, func(now *TrackedWorker) { h = *now })
			return h
		}
		r := New(Options{Alive: time.Minute})
		r.Put(process("1"))
		if r.Alive(tracked(r), time.Now()) {
			t.Error("a worker without a heartbeat is alive")
		}
		r.With(key, (*TrackedWorker).RecordHeartbeat)
		time.Sleep(time.Minute)
		if !r.Alive(tracked(r), time.Now()) {
			t.Error("dead after a minute")
		}
		time.Sleep(time.Nanosecond)
		if r.Alive(tracked(r), time.Now()) {
			t.Error("alive after more than that")
		}
		stored := process("1")
		stored.AliveUntil = history.At(time.Now().Add(time.Minute))
		for _, shared := range []bool{false, true} {
			r := New(Options{Alive: time.Minute, Shared: shared})
			if got := r.Alive(TrackedWorker{Worker: stored}, time.Now()); got != shared {
				t.Errorf("by what is stored, with other apps %t: %t", shared, got)
			}
		}
	})
}

// The workers of an ended app are checked at once, and the app knows when the next app would expire.
func TestWorkersCheckedAfterTheEndOfAnApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o Orphans
		soon, later := time.Now().Add(time.Minute), time.Now().Add(time.Hour)
		o.Update("own", map[string]time.Time{"own": soon, "x": later, "y": soon.Add(time.Second)})
		if !o.Due.IsZero() || !o.Gone.Equal(soon.Add(time.Second)) {
			t.Errorf("with all there: due %v, gone %v", o.Due, o.Gone)
		}
		o.Update("own", map[string]time.Time{"own": soon, "x": later})
		if !o.Due.Equal(time.Now()) || !o.Gone.Equal(later) {
			t.Errorf("without one: due %v, gone %v", o.Due, o.Gone)
		}
	})
}

// A queue is served while a worker of it is known.
func TestWhichQueuesAreServed(t *testing.T) {
	r := New(Options{Alive: time.Minute})
	r.Put(process("1"))
	if got := r.Served(); !slices.Equal(got, []engine.QueueKey{{Namespace: "default", Name: "main"}}) {
		t.Errorf("served are %v", got)
	}
	r.Remove(key)
	if got := r.Served(); len(got) > 0 {
		t.Errorf("of nobody: %v", got)
	}
}
