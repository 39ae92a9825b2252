package dispatch

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

func notified(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestRunWatchersAreNotifiedOncePerBatch(t *testing.T) {
	var h Hub
	a, endA := h.WatchRun("r1")
	b, endB := h.WatchRun("r1")
	other, endOther := h.WatchRun("r2")
	for range 3 {
		h.Changed(store.Changed{Runs: []store.RunChange{{RunID: "r1"}, {RunID: "r3"}}})
	}
	if !notified(a) || !notified(b) || notified(a) || notified(other) {
		t.Fatal("want each watcher of r1 notified once, the watcher of r2 never")
	}
	endA()
	h.Changed(store.Changed{Runs: []store.RunChange{{RunID: "r1"}}})
	if notified(a) || !notified(b) {
		t.Fatal("want the ended watcher not notified, the other notified")
	}
	endB()
	endOther()
	endOther()
	if len(h.runs) != 0 {
		t.Fatalf("%d runs are still stored", len(h.runs))
	}
}

func TestWatchMergesUntilTaken(t *testing.T) {
	var h Hub
	all, cancels := h.Watch(TopicRuns|TopicSessions|TopicWorkers), h.Watch(TopicCancels)
	stop := store.CancelledAttempt{Worker: "w", TaskID: "r1-1", AttemptID: "r1-1-1"}
	s, w := engine.SessionKey{Namespace: "n", ID: "s"}, engine.WorkerKey{Namespace: "n", ID: "w"}
	h.Changed(store.Changed{Runs: []store.RunChange{{RunID: "r1", LastSeq: 3}}, Sessions: []engine.SessionKey{s}})
	if !notified(all.C) || notified(cancels.C) {
		t.Fatal("want only the watch of all topics notified")
	}
	h.Changed(store.Changed{
		Runs: []store.RunChange{
			{RunID: "r2", LastSeq: 1}, {RunID: "r1", LastSeq: 5, Closed: true, Cancelled: []store.CancelledAttempt{stop}},
		},
	})
	h.Changed(store.Changed{Sessions: []engine.SessionKey{s}, Workers: []engine.WorkerKey{w}})
	got, overflow := all.Take()
	if overflow || len(got.Runs) != 2 || got.Runs[0].LastSeq != 5 || !got.Runs[0].Closed || got.Runs[0].Cancelled != nil ||
		got.Runs[1].RunID != "r2" ||
		len(got.Sessions) != 1 || len(got.Workers) != 1 {
		t.Fatalf("took %+v", got)
	}
	got, _ = cancels.Take()
	if !notified(cancels.C) || len(got.Runs) != 1 || !slices.Equal(got.Runs[0].Cancelled, []store.CancelledAttempt{stop}) {
		t.Fatalf("the watch of cancelled attempts returned %+v", got)
	}
	if got, _ = all.Take(); len(got.Runs)+len(got.Sessions)+len(got.Workers) != 0 {
		t.Fatalf("second Take returned %+v", got)
	}
	all.Close()
	cancels.Close()
	notified(all.C)
	h.Changed(store.Changed{Workers: []engine.WorkerKey{w}})
	if notified(all.C) {
		t.Fatal("a closed watch was notified")
	}
}

func TestUnusedWatchIsBounded(t *testing.T) {
	var h Hub
	w := h.Watch(TopicRuns)
	for i := range 2 * watchLimit {
		h.Changed(store.Changed{Runs: []store.RunChange{{RunID: fmt.Sprint(i)}}})
	}
	got, overflow := w.Take()
	if len(got.Runs) != watchLimit || !overflow {
		t.Fatalf("stored %d, overflow %v", len(got.Runs), overflow)
	}
	if got, overflow = w.Take(); len(got.Runs) != 0 || overflow {
		t.Fatalf("after Take: stored %d, overflow %v", len(got.Runs), overflow)
	}
}
