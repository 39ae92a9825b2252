package sqldb

import (
	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// An index that is not used is found when it is too late, on a large table. So the statements can be listed, for a test
// to ask a database how it would run them.

// Plans returns the committer's statements that read or delete, to inspect the query plans of the database.
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
	} {
		list = append(list, l.Stmt.SQL)
	}
	for _, w := range []*db.Writer{
		st.dropAttributes, st.dropTasks, st.dropItems, st.dropSessions, st.dropSessionArguments, st.dropWorkers,
		st.dropTokens, st.dropTimelines,
		st.forgetTimelines,
		st.deleteInherited, st.dropChains,
	} {
		list = append(list, w.Stmts[len(w.Stmts)-1].SQL)
	}
	pick, _ := s.st.pick(s.cfg.Dialect, 4)
	return append(append(list, pick.SQL), s.Reads().Plans()...)
}
