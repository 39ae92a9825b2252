package storetest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// activitiesOfClass returns n activities of a class, numbered in their types.
func activitiesOfClass(class string, weight, n int) (list []protocol.Command) {
	for i := range n {
		c := Activity(fmt.Sprintf("%s%d", class, i), "")
		c.FairnessKey, c.FairnessWeight = class, weight
		list = append(list, c)
	}
	return list
}

// claimTypes claims n activities one by one and returns their types, separated by spaces.
func (w *Fixture) claimTypes(n int) string {
	w.T.Helper()
	worker := NewWorker("w")
	var got []string
	for range n {
		l := w.One(protocol.KindActivity, worker)
		got = append(got, l.Activity.Type)
		w.Finish(l)
	}
	return strings.Join(got, " ")
}

func testFair(t *testing.T, s Suite) {
	w := s.New(t)
	w.Worker("w")
	w.Begun("burst", activitiesOfClass("a", 1, 40)...)
	if got := w.claimTypes(3); got != "a0 a1 a2" {
		t.Fatalf("a class alone came as %s", got)
	}
	w.Begun("other", activitiesOfClass("b", 1, 3)...)
	if got := w.claimTypes(6); got != "b0 a3 b1 a4 b2 a5" && got != "a3 b0 a4 b1 a5 b2" {
		t.Fatalf("beside a burst a second class came as %s", got)
	}
	// Weight 3 gets three tasks for every task of weight 1. Tasks without a key form a separate class. A class that
	// returns has no credit.
	w.Begun("heavy", activitiesOfClass("c", 3, 6)...)
	w.startWide("plain", 2)
	counts := map[byte]int{}
	for _, typ := range strings.Fields(w.claimTypes(8)) {
		counts[typ[0]]++
	}
	if counts['c'] < 4 || counts['c'] > 6 || counts['a'] < 1 || counts['a'] > 3 || counts['x'] < 1 {
		t.Fatalf("of 8 came %v by class", counts)
	}
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	w = s.Fixture(t, "a", Options{})
	w.Begun("late", activitiesOfClass("d", 1, 2)...)
	if got := w.claimTypes(6); !strings.Contains(got, "d0") || !strings.Contains(got, "d1") {
		t.Fatalf("after a restart a new class waited behind the burst: %s", got)
	}
	// The priority takes precedence over the class.
	hot := activitiesOfClass("a", 1, 2)
	for i := range hot {
		hot[i].Priority = new(1)
		hot[i].ActivityType = "hot"
	}
	w.Begun("hot", hot...)
	if got := w.claimTypes(2); got != "hot hot" {
		t.Fatalf("urgent tasks came as %s", got)
	}
}

// testFairRuns checks that workflow tasks are ranked by their run's key, and runs of one class stay in their order.
func testFairRuns(t *testing.T, s Suite) {
	w := s.New(t)
	worker := w.Worker("w")
	begin := func(class string, n int) {
		for i := range n {
			in := start(w, fmt.Sprint(class, i))
			in.Request.FairnessKey = class
			w.StartAs(in)
		}
	}
	begin("a", 6)
	begin("b", 2)
	var got []string
	for range 8 {
		got = append(got, w.One(protocol.KindWorkflow, worker).Head.WorkflowID)
	}
	if g := strings.Join(got, " "); g != "a0 b0 a1 b1 a2 a3 a4 a5" {
		t.Fatalf("runs came as %s", g)
	}
}

// testShared checks that a caller with few changes does not wait for all changes of a caller with many, neither for
// earlier batches nor in the same batch.
func testShared(t *testing.T, s Suite) {
	w := s.New(t)
	order := ""
	begin := func(class string, n int) (runs []string) {
		for i := range n {
			in := start(w, fmt.Sprint(class, i))
			in.Request.FairnessKey = class
			runs = append(runs, w.StartAs(in))
		}
		return runs
	}
	// changes returns one change for each run. A change appends the letter of its fairness class to order when it is
	// decided.
	changes := func(class string, runs []string) (list []store.Transaction) {
		for _, run := range runs {
			c := Step(run, engine.SignalRun{Name: "go"}, store.Keys{})
			decide := c.Decide
			note := sync.OnceFunc(func() { order += class }) // a batch may be decided again
			c.Decide = func(rows store.Rows, now time.Time) (store.Writes, error) {
				note()
				return decide(rows, now)
			}
			list = append(list, c)
		}
		return list
	}
	commits := func(list ...store.Transaction) int64 {
		t.Helper()
		order = ""
		before := w.S.Stats().Commits
		if err := errors.Join(w.together(list...)...); err != nil {
			t.Fatal(err)
		}
		return w.S.Stats().Commits - before
	}
	many := begin("a", 40)
	if n := commits(changes("a", many)...); n > 2 {
		t.Errorf("changes of a class alone took %d commits", n)
	}
	few := begin("b", 2)
	if n := commits(append(changes("a", many), changes("b", few)...)...); n < 4 {
		t.Errorf("42 changes of two classes were %d batches: who comes next waits for the end of a long one", n)
	}
	if last := strings.LastIndex(order, "b"); last > 4 {
		t.Errorf("in turn came %s", order)
	}
}

// testFairCost checks the cost of fairness: without a fairness key no task is ranked, so a step costs the same as
// before. A fair queue does not make steps in other queues more expensive.
func testFairCost(t *testing.T, s Suite) {
	w := s.New(t)
	cost := func(id string) int64 {
		before := w.S.Stats().Statements
		w.startWide(id, 3)
		return w.S.Stats().Statements - before
	}
	cost("warm")
	plain := cost("before")
	w.Queue = "fair"
	w.Begun("keyed", activitiesOfClass("a", 1, 2)...)
	w.Queue = Queue
	if got := cost("after"); got != plain {
		t.Fatalf("a step beside a fair queue took %d statements, %d before", got, plain)
	}
}

// testTwoFair lets two apps create tasks of one class at once: together they are one class in FIFO order.
func testTwoFair(t *testing.T, s Suite) {
	if !s.Shared {
		t.Skip("one process has this database to itself")
	}
	one, two := s.Fixture(t, "a", Options{App: "one"}), s.Fixture(t, "a", Options{App: "two"})
	one.Worker("w")
	one.Begun("first", activitiesOfClass("a", 1, 1)...)
	for i := range 10 {
		[]*Fixture{one, two}[i%2].Begun(fmt.Sprint("burst", i), activitiesOfClass("a", 1, 3)...)
	}
	two.Begun("other", activitiesOfClass("b", 1, 3)...)
	if got := two.claimTypes(6); strings.Count(got, "b") < 2 {
		t.Fatalf("beside a burst made by two apps a second class came as %s", got)
	}
}
