package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A fleet that rests on a database that apps share is stored twice a minute, in one change with the app's own row,
// whatever its size and whenever each worker came; and the rows stay true: the other app never misses one.
func TestAFleetAtRestIsStoredInStep(t *testing.T) {
	for _, workers := range []int{20, 200} {
		inBubble(t, fmt.Sprint(workers), func(o *harness) {
			a, _ := o.app("a", true)
			for i := range workers {
				id := fmt.Sprintf("w-%d", i)
				o.join(a, id, "p")
				time.Sleep(70 * time.Millisecond) // each comes at a time of its own
			}
			beat := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); {
					for i := range workers {
						_, err := a.WorkerHeartbeat(o.t.Context(), protocol.WorkerHeartbeat{
							WorkerID: fmt.Sprintf("w-%d", i), Incarnation: "p", Told: true,
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
			if n := now.Commits - before.Commits; n < 15 || n > 22 {
				o.t.Errorf("%d workers: %d commits in ten minutes of rest", workers, n)
			}
			if n := now.Reads - before.Reads; n > 22 {
				o.t.Errorf("%d workers: %d reads in ten minutes of rest", workers, n)
			}
			b, _ := o.app("b", true)
			for _, w := range must[[]protocol.WorkerView](o.t)(b.Workers(o.t.Context(), "", "", "")) {
				if w.Status != protocol.WorkerActive {
					o.t.Errorf("worker %s is %s to the other app", w.WorkerID, w.Status)
				}
			}
		})
	}
}
