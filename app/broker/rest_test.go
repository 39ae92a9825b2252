package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// On a database that several apps share, the heartbeats of an idle fleet are stored once a minute, in one transaction
// with the app's own row, whatever its size and whenever each worker registered. The rows stay correct: the other app
// never considers a worker dead.
func TestHeartbeatsOfAnIdleFleetAreStoredTogether(t *testing.T) {
	for _, workers := range []int{20, 200} {
		inBubble(t, fmt.Sprint(workers), func(o *harness) {
			a, _ := o.app("a", true)
			for i := range workers {
				id := fmt.Sprintf("w-%d", i)
				o.join(a, id, "p")
				time.Sleep(70 * time.Millisecond) // each worker registers at a different time
			}
			beat := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); {
					for i := range workers {
						_, err := a.WorkerHeartbeat(o.t.Context(), protocol.WorkerHeartbeat{
							WorkerID: fmt.Sprintf("w-%d", i), Incarnation: "p", FromSettings: true,
						})
						if err != nil {
							o.t.Fatal(err)
						}
						time.Sleep(10 * time.Second / time.Duration(workers))
					}
				}
			}
			beat(2 * time.Minute)
			stats := o.store.(interface{ Stats() store.Stats })
			before := stats.Stats()
			beat(10 * time.Minute)
			now := stats.Stats()
			if n := now.Commits - before.Commits; n < 8 || n > 11 {
				o.t.Errorf("%d workers: %d commits in ten minutes of rest", workers, n)
			}
			if n := now.Reads - before.Reads; n > 11 {
				o.t.Errorf("%d workers: %d reads in ten minutes of rest", workers, n)
			}
			b, _ := o.app("b", true)
			for _, w := range must[[]protocol.WorkerView](o.t)(b.Workers(o.t.Context(), "", "", "")) {
				if w.Status != protocol.WorkerActive {
					o.t.Errorf("the other app shows worker %s as %s", w.WorkerID, w.Status)
				}
			}
		})
	}
}

// On PostgreSQL such a transaction takes three statements for any number of workers, and the app reads the live apps
// once. With the periodic check for due rows every half minute, one more statement each, this makes six statements per
// minute.
func TestAnIdleFleetOnPostgresCostsSixStatementsAMinute(t *testing.T) {
	database := apptest.Postgres(t)
	const alive = time.Second // in place of a minute
	one, a, _ := onPostgres(t, database, "a", alive)
	_, b, _ := onPostgres(t, database, "b", alive)
	const workers = 300
	id := func(i int) string { return fmt.Sprintf("w-%d", i) }
	app := func(i int) *app {
		if i%2 == 0 {
			return a
		}
		return b
	}
	for i := range workers {
		one.join(app(i), id(i), "p")
	}
	beats := func(d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(alive / 6) {
			for i := range workers {
				_, err := app(i).WorkerHeartbeat(t.Context(), protocol.WorkerHeartbeat{
					WorkerID: id(i), Incarnation: "p", FromSettings: true,
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	beats(2 * alive)
	before := one.store.Stats()
	beats(5 * alive)
	now := one.store.Stats()
	commits := now.Commits - before.Commits
	if commits < 3 {
		t.Fatalf("%d commits: the fleet's liveness is not stored", commits)
	}
	if n := now.Statements - before.Statements; n > 3*commits {
		t.Errorf("%d statements in %d commits", n, commits)
	}
	if n := now.Reads - before.Reads; n > commits {
		t.Errorf("%d reads beside %d commits", n, commits)
	}
}
