package sqldb

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
)

// The guards are what makes it safe to decide on rows from memory (recall.go). They run in the server, ahead of
// the writes and in the same transaction, and make it fail when any of those rows is not what was remembered.

// guarded are the rows that a batch was decided on, with the versions they have to have, and the rows that must
// not be there, with the names they are locked under.
type guarded struct {
	runs, sessions, flows, fresh *rowset
	names                        names
}

func newGuarded() guarded {
	return guarded{
		runs:     newRowset([]column{text("run_id"), text("version"), text("tasks")}),
		sessions: newRowset([]column{text("namespace"), text("session_id"), text("version"), text("tasks")}),
		flows:    newRowset([]column{text("namespace"), text("workflow_id"), text("version")}),
		fresh:    newRowset(workflowsTable.key()), names: names{},
	}
}

// guards are the calls ahead of the writes: the stamp, which fails when the server is late, and then the locks,
// in the order in which every batch locks.
func (b *batch) guards() []*Call {
	st := b.s.st
	// The time first: were the server late, all of the locks would have been taken for nothing.
	calls := append(b.opening(), &Call{Stmt: st.stamp, Args: []any{
		b.s.cfg.App, b.number, b.decidedAt, mostLate.Microseconds(),
	}, Row: func(v []any) error {
		b.s.clock.at(integer(v[0]))
		return nil
	}})
	g := &b.guarded
	if len(g.names) > 0 {
		calls = append(calls, &Call{Stmt: st.guardNames, Args: []any{slices.Sorted(maps.Keys(g.names))}})
	}
	if !g.fresh.empty() {
		calls = append(calls, &Call{Stmt: st.guardFresh, Args: g.fresh.arrays()})
	}
	if !g.flows.empty() || !g.runs.empty() || !g.sessions.empty() {
		flows, runs, sessions := g.flows.arrays(), g.runs.arrays(), g.sessions.arrays()
		rows := append(append(flows, runs[:2]...), sessions[:3]...)
		calls = append(calls, &Call{Stmt: st.guardRows, Args: rows})
		tasks := append(slices.Clone(runs[:1]), runs[2], sessions[0], sessions[1], sessions[3])
		if !g.runs.empty() || !g.sessions.empty() {
			calls = append(calls, &Call{Stmt: st.guardTasks, Args: tasks})
		}
	}
	return calls
}

// readVersions is the call, behind the writes, that reads the versions of what may be remembered. It is in the
// same transaction, so nobody can write in between. Runs and sessions with many tasks are left out, because
// their guards would have to read them all.
func (b *batch) readVersions() []*Call {
	b.versions, b.sessionVersions, b.flowVersions = nil, nil, nil
	runs, sessions, flows := newRowset(runsTable.key()), newRowset(sessionsTable.key()), newRowset(workflowsTable.key())
	for id, r := range b.runs {
		// Of a run whose head alone was loaded the other rows are not known, and one that is over is not decided
		// on again.
		if r.Run == nil || r.partial || !r.Status.Open() || r.Activities.Len() > mostRemembered {
			continue
		}
		runs.s(id)
		k := engine.WorkflowKey{Namespace: r.Namespace, ID: r.WorkflowID}
		if f := b.workflows[k]; f != nil && f.Workflow != nil {
			flows.s(k.Namespace).s(k.ID)
		}
	}
	for k, s := range b.sessions {
		if s.Session != nil && !s.deleted && s.row != nil && s.counted && !s.Many && s.tasks() <= mostRemembered {
			sessions.s(k.Namespace).s(k.ID)
		}
	}
	if runs.empty() && sessions.empty() {
		return nil
	}
	args := append(append(runs.arrays(), sessions.arrays()...), flows.arrays()...)
	return []*Call{{Stmt: b.s.st.versions, Args: args, Row: b.version}}
}

// version notes one version. That of a session or a workflow id comes with its namespace, that of a run
// without.
func (b *batch) version(v []any) error {
	what, namespace, id, row, tasks := str(v[0]), str(v[1]), str(v[2]), str(v[3]), str(v[4])
	switch what {
	case "run":
		if b.versions == nil {
			b.versions = map[string]recalled{}
		}
		b.versions[id] = recalled{b.runs[id], row, tasks}
	case "session":
		if b.sessionVersions == nil {
			b.sessionVersions = map[engine.SessionKey]recalledSession{}
		}
		k := engine.SessionKey{Namespace: namespace, ID: id}
		b.sessionVersions[k] = recalledSession{b.sessions[k], row, tasks}
	default:
		if b.flowVersions == nil {
			b.flowVersions = map[engine.WorkflowKey]recalledFlow{}
		}
		k := engine.WorkflowKey{Namespace: namespace, ID: id}
		b.flowVersions[k] = recalledFlow{b.workflows[k].Workflow, row}
	}
	return nil
}

// tasks is how many open tasks are counted in a session.
// Those of other epochs too: their rows are among those that the guard reads.
func (s *session) tasks() int {
	n := s.Active + s.Ready
	for _, k := range s.Strays {
		n += k
	}
	return n
}

// guardStatements are the statements of batches that are decided on what is remembered. A guard that finds something
// wrong says so by a text that is no number: that ends the transaction in the server, before any of it is stored.
func (s *statements) guardStatements(d Dialect) {
	s.stamp = &Stmt{SQL: "INSERT INTO batches (app, batch, at)" +
		" VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)" +
		" ON CONFLICT (app) DO UPDATE SET batch = excluded.batch, at = excluded.at RETURNING" +
		" CASE WHEN at - $3::bigint BETWEEN 0 AND $4::bigint THEN at" +
		" ELSE ('batch of ' || $3::bigint || ' comes late')::bigint END"}
	s.guardNames = &Stmt{SQL: "SELECT ('name ' || h || ' is locked')::bigint FROM unnest($1::bigint[]) AS u(h)" +
		" WHERE NOT pg_try_advisory_xact_lock(h)"}
	s.guardFresh = &Stmt{SQL: "SELECT ('workflow ' || f.workflow_id || ' is there')::bigint FROM (" +
		d.probe(workflowsTable.key(), "t.workflow_id", "workflows", "", "") + ") AS f"}

	version := func(t *table) []column { return append(slices.Clip(t.key()), text("version")) }
	flows, runs, sessions := version(workflowsTable), version(runsTable), version(sessionsTable)
	s.guardRows = &Stmt{SQL: strings.Join([]string{
		guard("workflows", flows, 1), guard("runs", runs, 1+len(flows)), guard("sessions", sessions, 1+len(flows)+len(runs)),
	}, " UNION ALL ")}
	const tasks = "SELECT ('tasks of ' || c.id || ' are others')::bigint FROM (SELECT k.%s AS id, k.version, %s AS tasks" +
		" FROM %s OFFSET 0) AS c WHERE c.tasks <> c.version"
	s.guardTasks = &Stmt{SQL: fmt.Sprintf(tasks, "run_id", tasksOf, given(runs, 1)) + " UNION ALL " +
		fmt.Sprintf(tasks, "session_id", tasksIn, given(sessions, 1+len(runs)))}

	const read = "SELECT '%s', %s, k.%s, p.version, %s FROM %s CROSS JOIN LATERAL" +
		" (SELECT t.xmin::text AS version FROM %s AS t WHERE %s OFFSET 0) AS p"
	s.versions = &Stmt{SQL: strings.Join([]string{
		fmt.Sprintf(read, "run", "''", "run_id", tasksOf, given(runsTable.key(), 1), "runs", same(runsTable.key())),
		fmt.Sprintf(read, "session", "k.namespace", "session_id", tasksIn, given(sessionsTable.key(), 2), "sessions",
			same(sessionsTable.key())),
		fmt.Sprintf(read, "workflow", "k.namespace", "workflow_id", "''", given(workflowsTable.key(), 4), "workflows",
			same(workflowsTable.key())),
	}, " UNION ALL ")}
}

// tasksOf and tasksIn are the versions of the tasks of a run, and of those in a session.
const (
	tasksOf = "(SELECT coalesce(string_agg(t.seq || ' ' || t.xmin::text, ',' ORDER BY t.seq), '') FROM tasks AS t" +
		" WHERE t.run_id = k.run_id)"
	tasksIn = "(SELECT coalesce(string_agg(t.run_id || ' ' || t.seq || ' ' || t.xmin::text, ','" +
		" ORDER BY t.run_id, t.seq), '') FROM tasks AS t WHERE t.namespace = k.namespace AND t.session_id = k.session_id)"
)

// given is a table expression k of text columns given as arrays, the first being the nth parameter, in their order.
func given(columns []column, n int) string {
	var names, arrays []string
	for i, c := range columns {
		names, arrays = append(names, c.name), append(arrays, fmt.Sprintf("$%d::text[]", n+i))
	}
	all := strings.Join(names, ", ")
	return fmt.Sprintf("(SELECT * FROM unnest(%s) AS u(%s) ORDER BY %s) AS k", strings.Join(arrays, ", "), all, all)
}

// same is the condition that a row t has the key k.
func same(key []column) string {
	var on []string
	for _, c := range key {
		on = append(on, fmt.Sprintf("t.%s = k.%s", c.name, c.name))
	}
	return strings.Join(on, " AND ")
}

// guard locks the rows of a table by their keys, the last column being the version each has to have.
func guard(t string, columns []column, n int) string {
	key := columns[:len(columns)-1]
	return fmt.Sprintf("SELECT ('%s: row ' || k.%s || ' is another')::bigint FROM %s LEFT JOIN LATERAL"+
		" (SELECT t.xmin::text AS version FROM %s AS t WHERE %s FOR UPDATE SKIP LOCKED) AS p ON true"+
		" WHERE p.version IS DISTINCT FROM k.version", t, key[len(key)-1].name, given(columns, n), t, same(key))
}
