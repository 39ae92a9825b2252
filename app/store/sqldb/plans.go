package sqldb

import (
	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// Without this check, an unused index would be noticed too late, on a large table. The list of statements lets a test
// ask a database for their query plans.

// Plans returns the committer's statements that read or delete, so that their query plans can be checked.
func (s *Store) Plans() []string {
	st := s.st
	list := []string{
		st.owners.SQL, st.opens.SQL, st.held.SQL, st.holdings.SQL, st.reroute.SQL, st.sessionCounts.SQL,
		st.dropRoutingKeys.SQL, st.dropInbox.SQL, st.lastEnded.SQL, st.leasedIn.SQL, st.openIn.SQL, st.ranIn.SQL,
	}
	if s.cfg.Dialect.Shared {
		list = append(list, st.opensOf.SQL, st.guardTasks.SQL)
	}
	for _, l := range []*db.Loader{
		st.workflows, st.runs, st.sessions, st.chains, st.workers, st.receipts, st.tokens, st.inherited, st.bound,
		st.batchJobs,
	} {
		list = append(list, l.Stmt.SQL)
	}
	for _, w := range []*db.Writer{
		st.dropAttributes, st.dropTasks, st.dropItems, st.dropSessions, st.dropSessionArguments, st.dropSessionSnapshots,
		st.dropWorkers,
		st.dropTokens, st.dropTimelines,
		st.forgetTimelines,
		st.deleteInherited, st.dropChains, st.dropBatchJobs, st.dropBatchRuns,
	} {
		list = append(list, w.Stmts[len(w.Stmts)-1].SQL)
	}
	pick, _ := s.st.pick(s.cfg.Dialect, 4)
	return append(append(list, pick.SQL), s.Reads().Plans()...)
}
