package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sojourn-run/sojourn/app/apptest"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// All tasks or runs of a namespace are counted once for all concurrent callers, until something changes: fifty requests
// for the queues cost one read more than fifty requests for builds, which count no tasks. A request after a change sees
// this change.
func TestTaskCountsAreSharedByCallers(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		a.register("w")
		const asked = 50
		reads := func(ask func()) int64 {
			before := a.store.Stats().Reads
			for range asked {
				ask()
			}
			return a.store.Stats().Reads - before
		}
		for n := 1; n <= 3; n++ {
			a.start(string(rune('a' + n)))
			q := must[protocol.QueueState](t)(a.Queue(t.Context(), "", "default"))
			if q.Stats.Workflow.Ready != 1 {
				t.Errorf("after start %d, with the earlier tasks leased, %d are ready", n, q.Stats.Workflow.Ready)
			}
			a.poll("w", protocol.KindWorkflow, 0)
			q = must[protocol.QueueState](t)(a.Queue(t.Context(), "", "default"))
			if q.Stats.Workflow.Ready != 0 || q.Stats.Workflow.Leased != n {
				t.Errorf("with %d leased: %+v", n, q.Stats.Workflow)
			}
			if o := must[protocol.Overview](t)(a.ExactOverview(t.Context(), "")); o.Counts["runs"]["running"] != n {
				t.Errorf("after %d starts the runs are %v", n, o.Counts["runs"])
			}
		}
		servers := reads(func() { must[protocol.BuildRollout](t)(a.BuildIDs(t.Context(), "", "default")) })
		for name, ask := range map[string]func(){
			"queues": func() { must[protocol.QueuePage](t)(a.Queues(t.Context(), protocol.QueueList{})) },
			"builds": func() { must[protocol.BuildCohort](t)(a.Cohort(t.Context(), "", "default", "b")) },
		} {
			most := servers + 5 // a second may pass, after which the tasks are counted again
			if name == "queues" && database != "" && !strings.HasPrefix(database, "sqlite") {
				// waiting query tasks are counted for each request: they are few, and no commit reports them
				most += asked
			}
			if n := reads(ask); n > most {
				t.Errorf("%d callers of %s cost %d reads, %d of them for the servers", asked, name, n, servers)
			}
		}
		// A list of sessions reads one page per caller, and counts once for all callers.
		sessions := func() { must[protocol.SessionPage](t)(a.Sessions(t.Context(), protocol.SessionList{})) }
		a.start("z")
		before := a.store.Stats().Reads
		sessions()
		if first, n := a.store.Stats().Reads-before, reads(sessions); n > asked*first-asked/2 {
			t.Errorf("%d callers of the sessions cost %d reads, the first one %d", asked, n, first)
		}
		for name, ask := range map[string]func(){
			"overview": func() { must[protocol.Overview](t)(a.Overview(t.Context(), "")) },
			"metrics":  func() { must[protocol.Overview](t)(a.ExactOverview(t.Context(), "")) },
			"order":    func() { must[protocol.QueueOrder](t)(a.Order(t.Context(), "", "default")) },
		} {
			if n := reads(ask); n > asked {
				t.Errorf("%d callers of %s cost %d reads", asked, name, n)
			}
		}
	})
}

// Counts for display are exact up to 10,000, and 10,001 means "more"; counts of the HTTP API for workers are exact.
func TestCountsForPeopleHaveALimit(t *testing.T) {
	apptest.Databases(t, func(t *testing.T, database string) {
		a := on(t, database)
		const many = 10_005
		numbers := fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) ", many)
		db := separateConnection(t, database)
		for _, made := range []string{
			"INSERT INTO runs (run_id, namespace, workflow_id, type, number, status, queue, started_at, last_seq, state) " +
				numbers + "SELECT 'R' || i, 'default', 'w' || i, 't', 1, 'running', 'q', i, 1, '{}' FROM n",
			"INSERT INTO tasks (run_id, seq, namespace, queue, kind, state, priority, ready_at, body) " +
				numbers + "SELECT 'R' || i, 1, 'default', 'q', 'activity', 'ready', 5, i, '{}' FROM n",
			"INSERT INTO sessions (namespace, session_id, door, status, epoch, updated_at, queue, claimed, terminal, word, body) " +
				numbers + "SELECT 'default', 's' || i, 'implicit', 'closed', i, i, 'q', 1, 1, '', '{}' FROM n",
		} {
			if _, err := db.ExecContext(t.Context(), made); err != nil {
				t.Fatal(err)
			}
		}
		counts := must[protocol.RunCounts](t)(a.RunCounts(t.Context(), ""))
		if counts.Runs["running"] != 10_001 || counts.UpTo != 10_000 {
			t.Errorf("runs are %v, up to %d", counts.Runs, counts.UpTo)
		}
		some := must[protocol.Overview](t)(a.Overview(t.Context(), ""))
		all := must[protocol.Overview](t)(a.ExactOverview(t.Context(), ""))
		if some.Counts["runs"]["running"] != 10_001 || some.UpTo != 10_000 || len(some.Queues) != 1 ||
			some.Queues[0].Ready != 10_001 {
			t.Errorf("people see %v runs, up to %d, and of tasks %+v", some.Counts["runs"], some.UpTo, some.Queues)
		}
		if n, exactly := some.Counts["sessions"]["closed"], all.Counts["sessions"]["closed"]; n != 10_001 || exactly != many {
			t.Errorf("people see %d sessions, of %d", n, exactly)
		}
		if all.Counts["runs"]["running"] != many || len(all.Queues) != 1 || all.Queues[0].Ready != many {
			t.Errorf("the contract's are %v runs, and of tasks %+v", all.Counts["runs"], all.Queues)
		}
	})
}
