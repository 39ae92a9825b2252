package sqldb

// Plans lists the committer's statements that read or delete, for a look at how the database would run them.
func (s *Store) Plans() []string {
	st := s.st
	list := []string{st.owners.SQL, st.opens.SQL, st.held.SQL, st.holdings.SQL, st.reroute.SQL, st.arguments.SQL}
	for _, l := range []*loader{st.workflows, st.runs, st.sessions, st.chains, st.workers, st.receipts, st.tokens} {
		list = append(list, l.stmt.SQL)
	}
	for _, w := range []*writer{st.dropTasks, st.dropItems, st.dropSessions, st.dropWorkers, st.dropTokens} {
		list = append(list, w.stmts[len(w.stmts)-1].SQL)
	}
	pick, _ := s.st.pick(s.cfg.Dialect, 4)
	return append(list, pick.SQL)
}
