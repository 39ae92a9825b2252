package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// What is remembered of processes, polls and runs that are gone leaves without new ones coming in its place.
func TestWhatIsRememberedOfWhatIsGoneLeaves(t *testing.T) {
	now := time.Now()
	process := func(id, incarnation string) store.Process {
		return store.Process{Worker: engine.WorkerKey{Namespace: "default", ID: id}, Incarnation: incarnation}
	}
	var sticky stickyRuns
	for i := range 10 {
		run := fmt.Sprint("run-", i)
		sticky.put(run, stickyWorker{process("lives", "2"), 3})
		sticky.put(run, stickyWorker{process("gone", "1"), 2})
	}
	sticky.put("only", stickyWorker{process("gone", "1"), 1})
	sticky.sweep(func(p store.Process) bool { return p == process("lives", "2") })
	if sticky.size != 10 || sticky.runs.Len() != 10 || sticky.seen("run-3", process("lives", "2")) != 3 {
		t.Errorf("%d workers of %d runs are left", sticky.size, sticky.runs.Len())
	}

	polls := pollMemory{polls: map[pollKey]*pollEntry{
		{id: "old"}: {at: now.Add(-pollKept - time.Second)}, {id: "new"}: {at: now.Add(-pollKept + time.Second)},
		{id: "open"}: {},
	}}
	polls.sweep(now)
	if len(polls.polls) != 2 || polls.polls[pollKey{id: "old"}] != nil {
		t.Errorf("polls %v are left", polls.polls)
	}

	var ended endedRuns
	w := process("lives", "2").Worker
	ended.add(w, []string{"a", "b"}, now)
	ended.add(w, []string{"c"}, now.Add(endedTold/2))
	ended.sweep(now.Add(endedTold))
	if got := fmt.Sprint(ended.pending(w)); got != "[c]" {
		t.Errorf("the worker is told of %s", got)
	}
	ended.sweep(now.Add(2 * endedTold))
	if len(ended.of) != 0 {
		t.Errorf("%v is left", ended.of)
	}
	for i := range mostEnded + 10 {
		ended.add(w, []string{fmt.Sprint(i)}, now)
	}
	if n := len(ended.pending(w)); n != mostEnded {
		t.Errorf("%d runs wait for a heartbeat", n)
	}

	var ahead ahead
	ahead.put("run", []history.Event{{Seq: 1}})
	ahead.put("other", []history.Event{{Seq: 1}})
	ahead.drop("run")
	if ahead.runs[0].events != nil || ahead.takePage("other", 0, 1, 10) == nil {
		t.Error("the events of a run that has ended are kept, or those beside them are not")
	}
}
