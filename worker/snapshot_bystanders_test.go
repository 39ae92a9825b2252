package worker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// With default settings, OnHandOver of one session hangs, never returns, or returns more than any store accepts:
// meanwhile another session of the same worker and an activity without a session run as before.
func TestASlowSnapshotDelaysNoOtherSession(t *testing.T) {
	for way, carrier := range ways {
		for name, test := range map[string]struct {
			padding int
			never   bool
			want    string
			lost    string
		}{
			"hangs":            {want: "B 2"},
			"never returns":    {never: true, want: "B 1", lost: "snapshot_failed: context deadline exceeded"},
			"returns too much": {padding: 16 << 20, want: "B 1", lost: "snapshot_failed: 16.0 MiB encoded"},
		} {
			if test.never && way != "socket" {
				continue // it waits for the default timeout
			}
			t.Run(way+" "+name, func(t *testing.T) {
				t.Parallel()
				a := apptest.Start(t, apptest.Options{})
				var calls, plain atomic.Int64
				gate := make(chan struct{})
				open := sync.OnceFunc(func() { close(gate) })
				c := counting{
					padding: test.padding,
					hold:    func(string) { calls.Add(1); <-gate },
					options: func(o *worker.Options) {
						o.Registry.Activity("plain "+o.WorkerID, func(context.Context) (int64, error) { return plain.Add(1), nil })
					},
				}
				c.start(t, "A", carrier(a))
				if s, o := count(t, a), countIn(t, a, "other"); s != "A 1" || o != "A 1" {
					t.Fatal(s, o)
				}
				c.start(t, "B", carrier(a))
				t.Cleanup(open) // before the workers end
				migrate(t, a, "B")
				eventually(t, "A takes a snapshot", func() bool { return calls.Load() == 1 })
				waiting := startCount(t, a, "s")
				bystanders := func(from int) {
					t.Helper()
					for n := from; n < from+20; n++ {
						if got := countIn(t, a, "other"); got != fmt.Sprint("A ", n+1) {
							t.Errorf("call %d of the other session: %s", n, got)
						}
						run := end(t, a, startIn(t, a, "plain A", protocol.ActivityOptions{}))
						if got := result[int64](t, run); got != int64(n) {
							t.Errorf("activity %d without a session: %d", n, got)
						}
					}
				}
				bystanders(1)
				if events := events(t, a, waiting); strings.Contains(fmt.Sprint(events), "Completed") || calls.Load() != 1 {
					t.Errorf("the session moved before its snapshot: %v", events)
				}
				if !test.never {
					open()
				}
				if got := result[string](t, end(t, a, waiting)); got != test.want {
					t.Errorf("%s, want %s; %q", got, test.want, timelineOf(t, a))
				}
				lost := ""
				for _, line := range timelineOf(t, a) {
					if reason, ok := strings.CutPrefix(line, protocol.SessionSnapshotLost+" "); ok {
						lost = reason
					}
				}
				if (lost == "") != (test.lost == "") || !strings.HasPrefix(lost, test.lost) {
					t.Errorf("lost because of %q, want %q", lost, test.lost)
				}
				bystanders(21)
			})
		}
	}
}

// The snapshot of one session of a drained worker hangs: the other sessions move meanwhile.
func TestASlowSnapshotDelaysNoOtherSessionOfADrain(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		gate := make(chan struct{})
		open := sync.OnceFunc(func() { close(gate) })
		c := counting{hold: func(session string) {
			if session == "s" {
				<-gate
			}
		}}
		c.start(t, "A", ways["socket"](a))
		sessions := []string{"a", "s", "t", "z"}
		for _, s := range sessions {
			if got := countIn(t, a, s); got != "A 1" {
				t.Fatal(got)
			}
		}
		c.start(t, "B", ways["socket"](a))
		t.Cleanup(open) // before the workers end
		control(t, a, "POST", "/api/sojourn/fleet/drain", `{"worker_id":"A"}`)
		for _, s := range sessions {
			if s == "s" {
				continue
			}
			if got := countIn(t, a, s); got != "B 2" {
				t.Errorf("session %s: %s", s, got)
			}
		}
		open()
		if got := count(t, a); got != "B 2" {
			t.Errorf("after OnHandOver: %s; %q", got, timelineOf(t, a))
		}
	})
}

// The snapshots of a drain share transactions: 20 sessions cost at most ten times as many statements as one.
func TestStatementsOfADrainWithSnapshots(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := apptest.Start(t, apptest.Options{Database: database})
		cost := map[int]int64{}
		for _, sessions := range []int{1, 20} {
			id := fmt.Sprint("A", sessions)
			c := counting{options: func(o *worker.Options) { o.Sessions.Max = sessions }}
			stop := c.start(t, id, ways["socket"](a))
			for n := range sessions {
				if got := countIn(t, a, fmt.Sprint(id, "-", n)); got != id+" 1" {
					t.Fatal(got)
				}
			}
			stored := storedPayloads(t, database)
			before := a.Broker().Store().Stats()
			control(t, a, "POST", "/api/sojourn/fleet/drain", fmt.Sprintf(`{"worker_id":%q}`, id))
			eventually(t, "the snapshots are stored", func() bool {
				return storedPayloads(t, database) == stored+sessions
			})
			after := a.Broker().Store().Stats()
			cost[sessions] = after.Statements - before.Statements + after.Reads - before.Reads
			stop()
		}
		if cost[20] > 10*cost[1] {
			t.Errorf("statements and reads by number of sessions: %v", cost)
		}
	})
}
