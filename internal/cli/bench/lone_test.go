package bench

import (
	"testing"
)

// The costs in the store of a lone workflow with five sequential activities are limits that may only decrease. On
// SQLite they are 7 commits, 28 statements and 28 rows: one commit for the start, one for the first task and one for
// each result with its eager workflow task. On PostgreSQL they are 7 commits, 42 statements and 28 rows in 7 round
// trips, since a process decides with cached data. On a busy machine some tasks find no waiting poll, and heartbeats of
// the worker add further costs.
func TestALoneWorkflowCostsTheStoreNoMoreThanItDid(t *testing.T) {
	most := map[string]struct{ commits, statements, trips, rows float64 }{
		"sqlite":   {commits: 8, statements: 32, trips: 8.5, rows: 32},
		"postgres": {commits: 8, statements: 48, trips: 8.5, rows: 32},
	}
	onStores(t, func(t *testing.T, kind string, n *node) {
		atMost := most[kind]
		const ops = 40
		if _, err := runTogether(1)(t.Context(), n, 5); err != nil { // warm-up: some statements run only once
			t.Fatal(err)
		}
		before := n.app.Store().Stats()
		if _, err := runTogether(1)(t.Context(), n, ops); err != nil {
			t.Fatal(err)
		}
		now := n.app.Store().Stats()
		for _, c := range []struct {
			what   string
			got    int64
			atMost float64
		}{
			{"commits", now.Commits - before.Commits, atMost.commits},
			{"statements", now.Statements - before.Statements, atMost.statements},
			{"round trips", now.RoundTrips - before.RoundTrips, atMost.trips},
			{"rows", now.Rows - before.Rows, atMost.rows},
			{"candidates of claims", now.Candidates - before.Candidates, 1},
		} {
			each := float64(c.got) / ops
			t.Logf("%.2f %s", each, c.what)
			if each > c.atMost {
				t.Errorf("%.2f %s a workflow, want at most %v", each, c.what, c.atMost)
			}
		}
	})
}
