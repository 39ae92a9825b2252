package read

import (
	"context"

	"github.com/sojourn-run/sojourn/app/store"
)

// An unused index is noticed only when a table has become large. So a test lists the statements and reads the query
// plans of a database.

// Plans lists statements that are always the same.
func (p *Pool) Plans() []string {
	return []string{p.st.arguments, p.st.heads, p.st.currents, p.st.inboxSizes, uncarried(2), countsUpTo()}
}

// RunPlans runs a listing of runs and returns its statements, to inspect their query plans.
func (p *Pool) RunPlans(ctx context.Context, q store.RunQuery) (list []string, err error) {
	l := p.reader().listing(ctx, q)
	l.trace = func(statement string) { list = append(list, statement) }
	_, err = l.find(conditions(q), store.RunPosition{Start: q.AfterStart, Run: q.AfterRun})
	return list, err
}

// Read is a statement with its arguments.
type Read struct {
	Name, Query string
	Args        []any
}

// Counts returns the statements that count and list the rows of a namespace for the dashboard, to inspect their query
// plans.
func (p *Pool) Counts(namespace string) []Read {
	sessions, ofSessions := sessionCounts(namespace)
	queues, ofQueues := queueStats(namespace, 1<<60)
	some, ofSome := queueStatsUpTo(namespace, 1<<60, 1_000)
	return []Read{
		{"runs", runCounts, []any{namespace}},
		{"sessions", sessions, ofSessions},
		{"sessions up to", sessionCountsUpTo(p.dialect), []any{namespace, int64(1_000)}},
		{"queues", queues, ofQueues},
		{"queues up to", some, ofSome},
		{"due activities", dueActivities, []any{int64(1) << 60, namespace, int64(100)}},
		{"quarantined", quarantined(p.dialect), []any{namespace}},
		{"stuck up to", stuckUpTo(), []any{namespace, int64(1_000)}},
		{"oldest ready", oldestReady, []any{namespace, "q", "activity", int64(3)}},
		{"usage", usageOfRuns, []any{namespace, int64(0), "", int64(usagePage)}},
		{"held", heldRuns, []any{namespace, int64(100)}},
		{"inbox", inboxSignals, []any{namespace, int64(1), int64(100)}},
		{"order", queueOrder, []any{namespace, "q", int64(100)}},
		{"find exact", findExact, []any{namespace, "k3", "K3", ""}},
		{"find prefix", findPrefix, []any{namespace, "", "\U0010ffff", int64(5)}},
		{"batch jobs", batchJobsBefore, []any{namespace, int64(1) << 60, "", int64(100)}},
		{"closed batch jobs", closedBatchJobs, []any{namespace, int64(1) << 60, int64(100)}},
		{"batch runs", batchRunsAfter, []any{namespace, "j", int64(0), "", int64(100)}},
	}
}
