package storetest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func testBatchOf64(t *testing.T, s Suite) {
	w := s.New(t)
	const n = 64
	w.schedule(n * 10)
	worker := w.Worker("w")
	var leased []store.Leased
	seen := map[string]bool{}
	for _, l := range w.leaseAll(worker, n*10) { // one of each run, so that each completion wakes another run
		if !seen[l.Head.ID] {
			seen[l.Head.ID] = true
			leased = append(leased, l)
		}
	}
	leased = leased[:n]
	var changes []store.Transaction
	for _, l := range leased {
		changes = append(changes, Finishing(l))
	}
	before := w.S.Stats()
	for _, err := range w.together(changes...) {
		if err != nil {
			t.Fatal(err)
		}
	}
	after := w.S.Stats()
	// The batch before, which blocked the committer, refused its change: it only reads the clock of a shared database.
	sent := after.Statements - before.Statements
	if s.Shared {
		sent--
	}
	if commits := after.Commits - before.Commits; commits != 1 {
		t.Fatalf("%d commits, want 1", commits)
	}
	rows := after.Rows - before.Rows
	t.Logf("%d statements, %d rows", sent, rows)
	// for each run an event, its own row, and its workflow task in place of the activity; the rows of both batches
	if rows > 3*n+2 {
		t.Errorf("64 completions wrote %d rows, want %d", rows, 3*n+2)
	}
	if sent > s.Statements {
		t.Fatalf("64 completions took %d statements, want at most %d", sent, s.Statements)
	}
}

func testSessionBatchOf64(t *testing.T, s Suite) {
	w := s.New(t)
	const n = 64
	worker := w.Worker("w", Sessions(n, time.Hour))
	for i := range n {
		w.startInSessions(fmt.Sprint("s", i))
	}
	var changes []store.Transaction
	for _, l := range w.leaseAll(worker, n) {
		changes = append(changes, Finishing(l))
	}
	before := w.S.Stats()
	for _, err := range w.together(changes...) {
		if err != nil {
			t.Fatal(err)
		}
	}
	sent := w.S.Stats().Statements - before.Statements
	if s.Shared {
		sent--
	}
	t.Logf("%d statements", sent)
	if sent > s.Statements+2 {
		t.Fatalf("64 completions in sessions took %d statements, want at most %d", sent, s.Statements+2)
	}
}

func (w *Fixture) leaseAll(worker *engine.Worker, n int) (list []store.Leased) {
	for len(list) < n {
		list = append(list, w.LeaseTasks(protocol.KindActivity, worker, min(256, n-len(list)))...)
	}
	return list
}

func testOneOf1000(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w")
	commands := make([]protocol.Command, 1000)
	for i := range commands {
		commands[i] = Activity("x", "")
	}
	w.Begun("wide", commands...)
	leased := w.leaseAll(worker, 1000)
	before := w.S.Stats().Reads
	w.View(func(r store.Reader) error { // the owner of a lease gets the notification only by this
		one, err := r.Step(t.Context(), leased[0].Head.ID, leased[0].Activity.Seq)
		if a, ok := one.Activities.Get(leased[0].Activity.Seq); !ok || one.Activities.Len() != 1 ||
			a.Delivery != leased[0].Activity.Delivery {
			t.Errorf("one step of 1,000 is %d, delivery %d", one.Activities.Len(), a.Delivery)
		}
		head, e := r.Step(t.Context(), leased[0].Head.ID, 0)
		if head.Activities.Len() != 0 || head.LastSeq != one.LastSeq {
			t.Errorf("the head comes with %d activities and ends at %d", head.Activities.Len(), head.LastSeq)
		}
		_, none := r.Step(t.Context(), "none", 1)
		if !errors.Is(none, store.ErrNotFound) {
			t.Errorf("a run that is not: %v", none)
		}
		return errors.Join(err, e)
	})
	if read := w.S.Stats().Reads - before; read > 5 {
		t.Errorf("%d reads for two looks at a lease", read)
	}
	for range 2 { // the first one causes a workflow task, the second one finds it
		before := w.S.Stats()
		w.Finish(leased[0])
		leased = leased[1:]
		if rows := w.S.Stats().Rows - before.Rows; rows > 6 {
			t.Fatalf("finishing one of 1,000 activities wrote %d rows, want at most 6", rows)
		}
	}
}

func testCold(t *testing.T, s Suite) {
	w := s.New(t)
	wait := protocol.Command{Type: protocol.OpenSignalWait, SignalName: "s"}
	run := w.Begun(
		"long", Activity("x", ""), Activity("y", ""), protocol.Command{Type: protocol.StartTimer, Delay: new(int64(100))},
		wait,
	)
	for range 300 {
		w.Do(run, engine.SignalRun{Name: "s"})
		w.Decide(w.One(protocol.KindWorkflow, NewWorker("w")), wait)
	}
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	cold := s.Fixture(t, "a", Options{})
	got := cold.Run(run)
	if open := got.Activities.Len() + got.Timers.Len() + got.Signals.Len() + got.Waits.Len(); open > 5 ||
		got.LastSeq < 600 {
		t.Fatalf("run has %d open rows behind %d events", open, got.LastSeq)
	}
	before := cold.S.Stats()
	cold.Do(run, engine.SignalRun{Name: "s"})
	if sent := cold.S.Stats().Statements - before.Statements; sent > 12 {
		t.Fatalf("a signal to a cold run took %d statements", sent)
	}
}

// If very many tasks wait, most of them are no longer cached when they are leased one after another in the order in
// which they were scheduled; after a restart none is.
func testClaimOfCold(t *testing.T, s Suite) {
	w := s.New(t)
	const wide = 200
	begun := func(workflow string) {
		commands := make([]protocol.Command, wide)
		for i := range commands {
			commands[i] = Activity("x", "")
			commands[i].Arguments.Blob = fmt.Sprint(workflow, i)
		}
		w.Begun(workflow, commands...)
	}
	var left []string
	// claimed leases n tasks one by one and returns the average cost: statements and round trips of the committer, and
	// other reads.
	claimed := func(n int) (statements, trips, reads float64) {
		worker, before := NewWorker("w"), w.S.Stats()
		for range n {
			l := w.One(protocol.KindActivity, worker)
			if !l.Cached {
				w.View(func(r store.Reader) error {
					k := store.EventKey{Run: l.Head.ID, Seq: l.Activity.Event}
					found, err := r.Arguments(t.Context(), []store.EventKey{k})
					l.Arguments = found[k]
					return err
				})
			}
			if l.Arguments != left[0] {
				t.Fatalf("claimed what was scheduled with %q, want %q", l.Arguments, left[0])
			}
			left = left[1:]
		}
		now, each := w.S.Stats(), func(was, is int64) float64 { return float64(is-was) / float64(n) }
		return each(before.Statements, now.Statements), each(before.RoundTrips, now.RoundTrips), each(before.Reads, now.Reads)
	}
	for _, workflow := range []string{"a", "b", "c"} {
		begun(workflow)
		for i := range wide {
			left = append(left, fmt.Sprint(workflow, i))
		}
	}
	claimed(1) // reads that happen once
	statements, trips, _ := claimed(wide / 2)
	if s.Shared { // whether a run has more ready tasks is queried together with COMMIT if it is unknown
		statements++
	}
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	w = s.Fixture(t, "a", Options{})
	for _, n := range []int{wide / 2, wide} { // of one run, and into the next
		st, tr, reads := claimed(n)
		t.Logf("%d: %.2f statements, %.2f round trips, %.2f reads; remembered %.2f, %.2f", n, st, tr, reads, statements, trips)
		if st > statements+0.2 || tr > trips+0.2 || reads > 0.05 {
			t.Errorf("%d: want no more than of what is remembered, and 0.05 reads", n)
		}
	}
	// The next claim delivers all events that any app added to the run meanwhile.
	other := w
	if s.Shared {
		other = s.Fixture(t, "a", Options{App: "two"})
	}
	l := w.One(protocol.KindActivity, NewWorker("w"))
	other.Do(l.Head.ID, engine.SignalRun{Name: "s"})
	next := w.One(protocol.KindActivity, NewWorker("w"))
	if next.Head.ID != l.Head.ID || next.Head.LastSeq != l.Head.LastSeq+1 {
		t.Errorf("a claim shows run %s up to event %d, want %s up to %d", next.Head.ID, next.Head.LastSeq, l.Head.ID,
			l.Head.LastSeq+1)
	}
}
