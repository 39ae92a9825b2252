package apptest_test

import (
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
)

// A worker's network breaks without a TCP reset, and the worker reconnects, perhaps to another app. The polls of the
// broken connection are still held: a task leased by one of them would wait for the end of its lease.
func TestPollsOfABrokenConnectionGetNothingOnceTheWorkerIsBack(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a, b := apptest.Two(t, apptest.Options{Database: database})
		const process = `,"incarnation":"one","held_tasks":[]`
		before := register(caller{t, a, ""}, "w", process)
		answers := make(chan response, 2)
		for _, kind := range []string{"workflow", "activity"} {
			go func() { answers <- before.pollWith(kind, `,"incarnation":"one","timeout_seconds":60`) }()
		}
		waiting(t, a, 2)
		after := register(caller{t, b, ""}, "w", process)
		for range 2 {
			select {
			case s := <-answers:
				if s.status != 200 || s.body["task"] != nil {
					t.Errorf("a poll of before: %d %.300s", s.status, s.raw)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("a poll of before is held still")
			}
		}
		after.start("after-1")
		after.decide(taskOf(t, after.pollWith("workflow", `,"incarnation":"one","timeout_seconds":5`)), finish)
	})
}
