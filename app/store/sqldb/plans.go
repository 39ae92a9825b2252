package sqldb

import (
	"context"

	"github.com/sojourn-run/sojourn/app/store"
)

// An index that is not used is found when it is too late, on a large table. So the statements can be listed, for a test
// to ask a database how it would run them.

// Plans lists the committer's statements that read or delete, for a look at how the database would run them.
func (s *Store) Plans() []string {
	st := s.st
	list := []string{
		st.owners.SQL, st.opens.SQL, st.held.SQL, st.holdings.SQL, st.reroute.SQL, st.tallies.SQL,
		st.dropLanes.SQL, st.lastEnded.SQL, st.leasedIn.SQL, st.openIn.SQL, st.ranIn.SQL,
	}
	if s.cfg.Dialect.Shared {
		list = append(list, st.opensOf.SQL, st.guardTasks.SQL)
	}
	for _, l := range []*loader{
		st.workflows, st.runs, st.sessions, st.chains, st.workers, st.receipts, st.tokens, st.former, st.bound,
	} {
		list = append(list, l.stmt.SQL)
	}
	for _, w := range []*writer{
		st.dropAttributes, st.dropTasks, st.dropItems, st.dropSessions, st.dropWorkers, st.dropTokens, st.dropTimelines,
		st.forgetTimelines,
		st.dropFormer, st.dropChains,
	} {
		list = append(list, w.stmts[len(w.stmts)-1].SQL)
	}
	pick, _ := s.st.pick(s.cfg.Dialect, 4)
	return append(append(list, pick.SQL), s.Reads().Plans()...)
}

// Plans lists statements of readers, for the same look.
func (p *Pool) Plans() []string {
	return []string{p.st.arguments, p.st.heads, uncarried(2), countsUpTo()}
}

// RunPlans lists the statements by which a listing of runs came to its page, for the same look.
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

// Counts lists the reads behind operators' numbers and views of a namespace, for the same look.
func (p *Pool) Counts(namespace string) []Read {
	sessions, ofSessions := sessionCounts(namespace)
	queues, ofQueues := queueStats(namespace, 1<<60)
	some, ofSome := queueStatsUpTo(namespace, 1<<60, 1_000)
	return []Read{
		{"runs", runCounts, []any{namespace}},
		{"sessions", sessions, ofSessions},
		{"queues", queues, ofQueues},
		{"queues up to", some, ofSome},
		{"due activities", dueActivities, []any{int64(1) << 60, namespace, int64(100)}},
		{"quarantined", quarantined(p.dialect), []any{namespace}},
		{"oldest ready", oldestReady, []any{namespace, "q", "activity", int64(3)}},
		{"order", queueOrder, []any{namespace, "q", int64(100)}},
	}
}
