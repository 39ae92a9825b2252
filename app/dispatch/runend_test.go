package dispatch

import (
	"fmt"
	"testing"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

func closedRun(id, next string) store.RunChange {
	return store.RunChange{Namespace: "ns", WorkflowID: "w", RunID: id, Closed: true, ContinuedTo: next}
}

func openRun(id string) store.RunChange {
	return store.RunChange{Namespace: "ns", WorkflowID: "w", RunID: id}
}

func changed(runs ...store.RunChange) store.Changed { return store.Changed{Runs: runs} }

func remote(runs ...store.RunChange) store.Changed { return store.Changed{Runs: runs, Remote: true} }

var flow = engine.WorkflowKey{Namespace: "ns", ID: "w"}

// The end of a chain of runs is found in any order, and in any number of notifications, in which its runs are reported
// as closed.
func TestRunEndsFollowAChain(t *testing.T) {
	for name, notices := range map[string][]store.Changed{
		"one by one":    {changed(closedRun("1", "2")), changed(closedRun("2", "3")), changed(closedRun("3", ""))},
		"in one notice": {changed(closedRun("3", ""), closedRun("1", "2"), closedRun("2", "3"))},
		"in reverse":    {remote(closedRun("3", "")), remote(closedRun("2", "3")), remote(closedRun("1", "2"))},
	} {
		t.Run(name, func(t *testing.T) {
			var h Hub
			w := h.WatchRunEnds(flow, "")
			defer w.Stop()
			run := "1"
			for i, n := range notices {
				h.Changed(n)
				<-w.C
				last, missed := w.Last(run)
				if run = last.RunID; missed || last.Closed != (i == len(notices)-1) {
					t.Errorf("after notice %d: %+v, %v", i, last, missed)
				}
			}
			if run != "3" {
				t.Errorf("the last run is %s", run)
			}
		})
	}
}

// A subscription to one run that is extended to its workflow ID reports lost notifications if the next run may have
// closed before.
func TestRunEndsOfARunAreExtendedToItsWorkflow(t *testing.T) {
	var h Hub
	ns := engine.WorkflowKey{Namespace: "ns"}
	early, late := h.WatchRunEnds(ns, "1"), h.WatchRunEnds(ns, "1")
	defer early.Stop()
	defer late.Stop()
	early.Extend("w")
	h.Changed(changed(closedRun("1", "2")))
	h.Changed(changed(closedRun("2", "")))
	late.Extend("w")
	if last, missed := early.Last("1"); last.RunID != "2" || !last.Closed || missed {
		t.Errorf("extended in time: %+v, %v", last, missed)
	}
	if last, missed := late.Last("1"); last.RunID != "2" || last.Closed || !missed {
		t.Errorf("extended late: %+v, %v", last, missed)
	}
	late.Extend("w")
	if _, missed := late.Last("2"); missed {
		t.Error("one loss was reported twice")
	}
}

// The outcome of a closed run is kept if the run changes again before Last is called. Lost notifications, and too many
// notifications, are reported.
func TestRunEndsKeepTheOutcomeAndReportLosses(t *testing.T) {
	var h Hub
	w := h.WatchRunEnds(flow, "")
	other := h.WatchRunEnds(engine.WorkflowKey{Namespace: "ns", ID: "other"}, "")
	defer other.Stop()
	end := closedRun("1", "")
	end.Closing = &store.Closing{}
	h.Changed(changed(end))
	h.Changed(changed(closedRun("1", "")))
	if last, missed := w.Last("1"); last.Closing != end.Closing || missed {
		t.Errorf("changed after its end: %+v, %v", last, missed)
	}
	for i := range 3 * maxRunEnds {
		h.Changed(changed(closedRun(fmt.Sprint("unrelated-", i), "")))
	}
	if len(w.closed) > maxRunEnds {
		t.Errorf("RunEnds stores %d runs", len(w.closed))
	}
	if _, missed := w.Last("1"); !missed {
		t.Error("dropped notices are not reported")
	}
	h.missed()
	for _, each := range []*RunEnds{w, other} {
		<-each.C
		if _, missed := each.Last("1"); !missed {
			t.Error("lost notices are not reported")
		}
	}
	w.Stop()
	if len(h.ends.byWorkflow) != 1 {
		t.Errorf("%d subscriptions remain", len(h.ends.byWorkflow))
	}
}

// A run is known to be open only if this app committed it and no app has reported its end.
func TestOpenRunsAreKnownUntilTheyClose(t *testing.T) {
	var h Hub
	open := func(k engine.WorkflowKey, run string) string {
		w := h.WatchRunEnds(k, run)
		defer w.Stop()
		return w.Open
	}
	is := func(what, byID, byRun string) {
		t.Helper()
		if got := open(flow, ""); got != byID {
			t.Errorf("%s: the open run of the workflow ID is %q, want %q", what, got, byID)
		}
		for _, k := range []engine.WorkflowKey{flow, {Namespace: "ns"}} {
			if got := open(k, byRun); byRun != "" && got != byRun {
				t.Errorf("%s: run %s of %v: the open run is %q", what, byRun, k, got)
			}
		}
	}
	h.Changed(remote(openRun("1")))
	is("committed elsewhere", "", "")
	h.Changed(changed(openRun("1")))
	is("committed here", "1", "1")
	for _, k := range []engine.WorkflowKey{{Namespace: "another"}, {Namespace: "ns", ID: "another"}} {
		if open(k, "1") != "" {
			t.Errorf("the run is known under %v", k)
		}
	}
	w := h.WatchRunEnds(engine.WorkflowKey{Namespace: "ns"}, "1")
	defer w.Stop()
	h.Changed(changed(openRun("2"), closedRun("1", "2"))) // the notifications arrive in another order than the commits
	is("continued", "2", "2")
	if last, missed := w.Last("1"); last.RunID != "2" || last.Closed || missed {
		t.Errorf("a subscription by run ID: %+v, %v", last, missed)
	}
	h.Changed(remote(closedRun("2", "")))
	if last, missed := w.Last("2"); last.RunID != "2" || !last.Closed || missed {
		t.Errorf("a subscription by run ID to a chain: %+v, %v", last, missed)
	}
	is("closed elsewhere", "", "")
	h.Changed(changed(openRun("2")))
	is("a late notice of an earlier commit", "", "")
	h.Changed(changed(openRun("3")))
	h.missed()
	is("after a loss", "", "")
	for i := range 3 * maxOpenRuns {
		id := fmt.Sprint("many-", i)
		h.Changed(changed(store.RunChange{Namespace: "ns", WorkflowID: id, RunID: id}))
		h.Changed(remote(store.RunChange{Namespace: "ns", WorkflowID: id, RunID: "r" + id, Closed: true}))
	}
	if e := &h.ends; len(e.open) > maxOpenRuns || len(e.current) > maxOpenRuns || len(e.remote) > maxOpenRuns {
		t.Errorf("%d open, %d current and %d closed runs are held", len(e.open), len(e.current), len(e.remote))
	}
}
