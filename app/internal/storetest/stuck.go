package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// stuckIDs lists the workflow IDs of stuck runs, sorted, and checks that their count is the same.
func (w *Fixture) stuckIDs() (ids []string) {
	w.T.Helper()
	w.View(func(r store.Reader) error {
		where := []store.Condition{{Field: store.FieldStuck, Test: store.Present}}
		list, err := r.Runs(w.T.Context(), store.RunQuery{Namespace: Namespace, Where: where, Limit: 1_000})
		if err != nil {
			return err
		}
		for i := range list.Heads {
			h := &list.Heads[i]
			if ids = append(ids, h.WorkflowID); h.Stuck() == nil {
				w.T.Errorf("run of %s is listed as stuck and does not say why", h.WorkflowID)
			}
		}
		where[0].Test = store.Absent
		rest, err := r.Runs(w.T.Context(), store.RunQuery{Namespace: Namespace, Where: where, Limit: 1_000})
		if err != nil {
			return err
		}
		for i := range rest.Heads {
			if s := rest.Heads[i].Stuck(); s != nil {
				w.T.Errorf("run of %s is not listed as stuck: %+v", rest.Heads[i].WorkflowID, s)
			}
		}
		n, err := r.StuckUpTo(w.T.Context(), Namespace, 1_000)
		if err != nil || n != len(ids) {
			w.T.Errorf("%d runs are counted as stuck, %d are listed (%v)", n, len(ids), err)
		}
		byReason, err := r.StuckCounts(w.T.Context())
		for _, c := range byReason {
			n -= c.Runs
		}
		if n != 0 {
			w.T.Errorf("counts by reason are %+v, %d stuck runs are listed", byReason, len(ids))
		}
		return err
	})
	slices.Sort(ids)
	return ids
}

// markStuck marks the runs whose tasks have been ready for a minute in routing keys that without says no worker serves,
// as an app does.
func (w *Fixture) markStuck(without func(store.ReadyRoutingKey) bool) {
	w.T.Helper()
	for {
		var runs []store.UnservedRun
		w.View(func(r store.Reader) error {
			keys, err := r.ReadyRoutingKeys(w.T.Context())
			if err != nil {
				return err
			}
			now, err := w.S.Now(w.T.Context())
			if err != nil {
				return err
			}
			var unserved []store.UnservedRoutingKey
			for _, l := range keys {
				if without(l) {
					unserved = append(unserved, store.UnservedRoutingKey{
						ReadyRoutingKey: l, Before: now.Add(-time.Minute), Reason: protocol.WaitTypeNotServed,
						Message: "why of " + l.Key.Type,
					})
				}
			}
			runs, err = r.Unserved(w.T.Context(), unserved, 1_000)
			return err
		})
		if len(runs) == 0 {
			return
		}
		w.Commit(store.Transaction{Background: true, Decide: func(store.Rows, time.Time) (store.Writes, error) {
			return store.Writes{Unserved: runs}, nil
		}})
	}
}

// testStuck marks runs by the routing keys of their tasks, keeps the marks while the runs make other steps, and removes
// them; the number of statements does not depend on the number of runs.
func testStuck(t *testing.T, s Suite) {
	sent := map[int]int64{}
	for _, n := range []int{3, 150} {
		w := s.Fixture(t, fmt.Sprint("runs", n), Options{})
		worker := w.Worker("w")
		for i := range n {
			w.StartAs(engine.Start{RunID: w.ID(), Number: 1, Request: protocol.StartRequest{
				Namespace: Namespace, WorkflowID: fmt.Sprintf("lost%03d", i), WorkflowType: "unknown", TaskQueue: w.Queue,
			}})
		}
		w.Start("well")
		unknown := func(l store.ReadyRoutingKey) bool { return l.Key.Type == "unknown" }
		w.markStuck(unknown)
		if ids := w.stuckIDs(); len(ids) != 0 {
			t.Fatalf("before a minute has passed, stuck are %v", ids)
		}
		w.Pass(2 * time.Minute)
		before := w.S.Stats()
		w.markStuck(unknown)
		after := w.S.Stats()
		sent[n] = after.Statements + after.Reads - before.Statements - before.Reads
		if ids := w.stuckIDs(); len(ids) != n || ids[0] != "lost000" {
			t.Fatalf("stuck are %v, want %d", ids, n)
		}
		var marked engine.Head
		w.View(func(r store.Reader) error {
			k, err := r.Workflow(t.Context(), engine.WorkflowKey{Namespace: Namespace, ID: "lost001"})
			if err != nil {
				return err
			}
			run, err := r.Run(t.Context(), k.RunID)
			marked = run.Head
			return err
		})
		want := engine.Stuck{Since: marked.Task.ReadyAt, Reason: protocol.WaitTypeNotServed, Message: "why of unknown"}
		if got := marked.Stuck(); got == nil || *got != want {
			t.Errorf("run is stuck %+v, want %+v", got, want)
		}
		// A step of the run does not change its mark, its end removes it from the list, and a worker removes the mark
		// of the others.
		w.Do(marked.ID, engine.SignalRun{Name: "s"})
		if ids := w.stuckIDs(); len(ids) != n {
			t.Errorf("after a signal, stuck are %v", ids)
		}
		w.Do(marked.ID, engine.EndRun{})
		if ids := w.stuckIDs(); len(ids) != n-1 {
			t.Errorf("after the end of one run, stuck are %v", ids)
		}
		worker.WorkflowTypes = append(worker.WorkflowTypes, "unknown")
		leased := w.LeaseTasks(protocol.KindWorkflow, worker, 1)
		w.markStuck(unknown)
		if ids := w.stuckIDs(); len(leased) != 1 || slices.Contains(ids, leased[0].Head.WorkflowID) {
			t.Errorf("a run whose task is leased is stuck: %v", ids)
		}
		w.markStuck(func(store.ReadyRoutingKey) bool { return false })
		if ids := w.stuckIDs(); len(ids) != 0 {
			t.Errorf("with a worker, stuck are %v", ids)
		}
	}
	if sent[150] != sent[3] {
		t.Errorf("marking 150 runs took %d statements, 3 runs took %d", sent[150], sent[3])
	}
}

// testFailing lists runs whose workflow task failed three times in a row or is quarantined, as of the commit of the
// failure.
func testFailing(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w")
	w.Start("panics")
	fail := func(message string) {
		t.Helper()
		l := w.One(protocol.KindWorkflow, worker)
		w.Do(l.Head.ID, engine.FailTask{
			Number: l.Head.Task.Number, Holder: engine.Holder{Owner: "w", Delivery: l.Head.Task.Delivery}, Hash: message,
			Failure: protocol.Failure{Message: message},
		})
		w.Pass(5 * time.Second)
		w.Sweep()
	}
	want := func(ids ...string) {
		t.Helper()
		if got := w.stuckIDs(); !slices.Equal(got, ids) {
			t.Fatalf("stuck are %v, want %v", got, ids)
		}
	}
	fail("boom")
	fail("boom")
	want()
	fail("boom")
	want("panics")
	l := w.One(protocol.KindWorkflow, worker)
	want("panics") // also while it is retried
	w.Decide(l, Activity("a", ""))
	want()
	w.One(protocol.KindActivity, worker)
	run := w.Start("mismatch")
	fail("nondeterministic workflow code")
	want("mismatch")
	w.Do(run, engine.Repair{})
	want()
	fail("nondeterministic workflow code")
	want("mismatch")
	w.Do(run, engine.EndRun{})
	want()
}
