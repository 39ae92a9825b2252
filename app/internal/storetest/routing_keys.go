package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// dropRoutingKeys removes routing keys that were not used for a day.
var dropRoutingKeys = store.Transaction{Decide: func(store.Rows, time.Time) (store.Writes, error) {
	return store.Writes{DropRoutingKeys: true}, nil
}}

// UnusedRoutingKeys checks that routing keys are removed a day after their last task, that routing keys with a waiting
// task stay, and that a removed routing key is created again with its next task. count returns the number of rows.
func UnusedRoutingKeys(t *testing.T, s Suite, count func(t *testing.T) int) {
	w := s.New(t)
	worker := w.Worker("w")
	want := func(what string, n int) {
		t.Helper()
		if got := count(t); got != n {
			t.Fatalf("%s: %d routing keys, want %d", what, got, n)
		}
	}
	w.Start("a")
	w.Decide(w.One(protocol.KindWorkflow, worker), Activity("left", ""))
	want("two tasks", 2)
	// Within an hour a routing key costs nothing, after it a row.
	rows := func(workflow string) int64 {
		before := w.S.Stats().Rows
		w.Start(workflow)
		n := w.S.Stats().Rows - before
		w.Decide(w.One(protocol.KindWorkflow, worker), protocol.Command{Type: protocol.CompleteWorkflow})
		return n
	}
	soon := rows("soon")
	w.Pass(time.Hour + time.Second)
	if late, second := rows("late"), rows("again"); late != soon+1 || second != soon {
		t.Errorf("a start writes %d rows, %d with a routing key not used for an hour, and %d after that", soon, late, second)
	}
	w.Pass(23 * time.Hour)
	w.Commit(dropRoutingKeys)
	want("used within a day", 2)
	w.Pass(2 * time.Hour) // the activity has waited for longer than that, the workflows' routing key is empty
	w.Commit(dropRoutingKeys)
	want("one is unused", 1)
	w.Start("b")
	want("used again", 2)
	w.One(protocol.KindWorkflow, worker)
	w.One(protocol.KindActivity, worker)
	w.Start("c")
	if err := w.S.Close(); err != nil {
		t.Fatal(err)
	}
	w.S = s.Open(t, "again", Options{Shift: func() time.Duration { return time.Duration(w.shift.Load()) }})
	w.One(protocol.KindWorkflow, worker)
}

// One app removes a routing key at the moment when another app, which has known the key for a day, makes a task ready
// in it: a claim still finds the task.
func testTwoRoutingKeys(t *testing.T, s Suite) {
	if !s.Shared {
		t.Skip("one process has this database to itself")
	}
	var shift atomic.Int64
	o := func(app string) Options {
		return Options{App: app, Shift: func() time.Duration { return time.Duration(shift.Load()) }}
	}
	one, two := s.Fixture(t, "a", o("one")), s.Fixture(t, "a", o("two"))
	worker := one.Worker("w")
	found := func(round int) {
		t.Helper()
		one.until(fmt.Sprintf("the task of round %d", round), func() bool {
			l := one.LeaseTasks(protocol.KindWorkflow, worker, 1)
			for _, l := range l {
				one.Decide(l, protocol.Command{Type: protocol.CompleteWorkflow})
			}
			return len(l) == 1
		})
	}
	two.Start("first")
	found(0)
	for round := 1; round <= 40; round++ {
		shift.Add(int64(25 * time.Hour))
		var wg sync.WaitGroup
		remove := func() {
			if _, err := one.S.Commit(context.Background(), dropRoutingKeys); err != nil {
				t.Error(err)
			}
		}
		if round%4 == 0 {
			remove()
		} else {
			wg.Go(remove)
		}
		two.Start(fmt.Sprint("flow", round))
		wg.Wait()
		found(round)
	}
}
