package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Entries of ended processes, polls and runs are removed from memory even if no new entries are added.
func TestEntriesOfRemovedWorkersAreEvicted(t *testing.T) {
	now := time.Now()
	process := func(id, incarnation string) store.Process {
		return store.Process{Worker: engine.WorkerKey{Namespace: "default", ID: id}, Incarnation: incarnation}
	}
	var sticky stickyRuns
	for i := range 10 {
		run := fmt.Sprint("run-", i)
		sticky.add(run, stickyWorker{process("lives", "2"), 3})
		sticky.add(run, stickyWorker{process("gone", "1"), 2})
	}
	sticky.add("only", stickyWorker{process("gone", "1"), 1})
	sticky.sweep(func(p store.Process) bool { return p == process("lives", "2") })
	if sticky.size != 10 || sticky.runs.Len() != 10 || sticky.lastEvent("run-3", process("lives", "2")) != 3 {
		t.Errorf("%d workers and %d runs are still stored", sticky.size, sticky.runs.Len())
	}

	polls := pollMemory{polls: map[pollKey]*pollEntry{
		{id: "old"}: {at: now.Add(-pollRetention - time.Second)}, {id: "new"}: {at: now.Add(-pollRetention + time.Second)},
		{id: "open"}: {},
	}}
	polls.sweep(now)
	if len(polls.polls) != 2 || polls.polls[pollKey{id: "old"}] != nil {
		t.Errorf("polls %v are still stored", polls.polls)
	}

	var ended endedRuns
	w := process("lives", "2").Worker
	ended.add(w, []string{"a", "b"}, now)
	ended.add(w, []string{"c"}, now.Add(endedListTime/2))
	ended.sweep(now.Add(endedListTime))
	if got := fmt.Sprint(ended.pending(w)); got != "[c]" {
		t.Errorf("the worker is notified of %s", got)
	}
	ended.sweep(now.Add(2 * endedListTime))
	if len(ended.of) != 0 {
		t.Errorf("%v is left", ended.of)
	}
	for i := range maxEndedRuns + 10 {
		ended.add(w, []string{fmt.Sprint(i)}, now)
	}
	if n := len(ended.pending(w)); n != maxEndedRuns {
		t.Errorf("%d runs wait for a heartbeat", n)
	}

	var prefetch historyPrefetch
	prefetch.add("run", []history.Event{{Seq: 1}})
	prefetch.add("other", []history.Event{{Seq: 1}})
	prefetch.drop("run")
	if prefetch.runs[0].events != nil || prefetch.takePage("other", 0, 1, 10) == nil {
		t.Error("the events of a closed run are still stored, or those of an open run are not")
	}
}

// recordedEvictions are the closed runs of which workers were notified, by worker.
type recordedEvictions map[string][]string

func (n recordedEvictions) SendIntent(string, string, protocol.Intent, protocol.PauseNotice) bool {
	return false
}
func (n recordedEvictions) SettingsChanged(string)                                   {}
func (n recordedEvictions) YieldSession(string, string, protocol.SessionNotice) bool { return false }

func (n recordedEvictions) EvictRuns(_, worker string, e protocol.EvictNotice) {
	n[worker] = append(n[worker], e.Runs...)
}

// Every worker with a closed run in its sticky cache is notified of it, immediately and in the responses to its
// heartbeats, and of no other run.
func TestWorkersThatCacheAnEndedRunAreNotified(t *testing.T) {
	b, to := &Broker{}, recordedEvictions{}
	b.notices.Store(new(Notices(to)))
	for run, workers := range map[string][]string{"ended": {"a", "b"}, "other": {"a"}, "third": {"c"}} {
		for _, id := range workers {
			b.sticky.add(run, stickyWorker{store.Process{Worker: engine.WorkerKey{Namespace: "default", ID: id}}, 1})
		}
	}
	b.evictClosedRuns([]string{"ended", "unknown"})
	if got := fmt.Sprint(map[string][]string(to)); got != "map[a:[ended] b:[ended]]" {
		t.Errorf("notified: %s", got)
	}
	for id, want := range map[string]string{"a": "[ended]", "b": "[ended]", "c": "[]"} {
		if got := fmt.Sprint(b.ended.pending(engine.WorkerKey{Namespace: "default", ID: id})); got != want {
			t.Errorf("heartbeats of %s are answered with %s, want %s", id, got, want)
		}
	}
	if len(b.sticky.workersOf("ended")) != 0 || len(b.sticky.workersOf("other")) != 1 {
		t.Error("a closed run is still stored, or an open one is not")
	}
}
