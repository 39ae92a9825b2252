package sqldb

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// The guards make decisions on cached rows safe (recall.go). They are statements that run in the server, before the
// writes and in the same transaction, and that fail if a row differs from the cached one.

// guarded contains the rows on which a batch is based, with their expected versions, and the rows that must not exist,
// with the names of their advisory locks.
type guarded struct {
	runs, sessions, flows, fresh *db.Rowset
	names                        advisoryKeys
}

// Only one batch at a time is decided on cached rows, so there is one guarded, which is reused.
func newGuarded() *guarded {
	return &guarded{
		runs:     db.NewRowset(versionColumns),
		sessions: db.NewRowset(countedColumns),
		flows:    db.NewRowset(versionedFlow),
		fresh:    db.NewRowset(record.Workflows.Key()), names: advisoryKeys{},
	}
}

// clear removes the rows of the previous batch.
func (g *guarded) clear() {
	for _, rows := range []*db.Rowset{g.runs, g.sessions, g.flows, g.fresh} {
		rows.Clear()
	}
	clear(g.names)
}

// guardCalls returns the calls that precede the writes: first the stamp, which fails if the server is late, and then
// the locks, in the order in which every batch locks.
func (b *batch) guardCalls() []*db.Call {
	st := b.s.st
	b.guardsSent = true
	// Check the time first: if the server is late, the locks would be in vain.
	calls := append(b.openTransaction(), &db.Call{Stmt: st.stamp, Args: []any{
		b.s.cfg.App, b.number, b.decidedAt, maxClockAge.Microseconds(),
	}, Row: b.stamped})
	g := b.guarded
	if len(g.names) > 0 {
		calls = append(calls, &db.Call{Stmt: st.guardNames, Args: []any{slices.Sorted(maps.Keys(g.names))}})
	}
	if !g.fresh.Empty() {
		calls = append(calls, &db.Call{Stmt: st.guardFresh, Args: g.fresh.Arrays()})
	}
	if !g.flows.Empty() || !g.runs.Empty() || !g.sessions.Empty() {
		flows, runs, sessions := g.flows.Arrays(), g.runs.Arrays(), g.sessions.Arrays()
		rows := append(append(flows, runs[:2]...), sessions[:3]...)
		calls = append(calls, &db.Call{Stmt: st.guardRows, Args: rows})
		if !g.runs.Empty() || !g.sessions.Empty() {
			tasks := append([]any{runs[0], runs[2], sessions[0], sessions[1]}, sessions[3:]...)
			calls = append(calls, &db.Call{Stmt: st.guardTasks, Args: tasks})
		}
	}
	return calls
}

// stamped processes the result of a batch's stamp: the server's time, which claims use as well, and the version of the
// rows that the batch writes. A batch with this time is abandoned if the clock jumped. A batch that was decided on
// cached rows has passed its guards, and may already be committed.
func (b *batch) stamped(v []any) error {
	b.now, b.version = b.s.clock.At(db.Int(v[0]), b.since), db.Int(v[1])
	if b.recalled {
		return nil
	}
	return b.s.clockJumped()
}

// guardStatements prepares the statements of batches that are decided on cached rows. A guard that finds a difference
// casts a text to a number: this error ends the transaction in the server before anything is stored.
func (s *statements) guardStatements(d db.Dialect) {
	s.stamp = &db.Stmt{SQL: "INSERT INTO batches (app, batch, at)" +
		" VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)" +
		" ON CONFLICT (app) DO UPDATE SET batch = excluded.batch, at = excluded.at RETURNING" +
		" CASE WHEN at - $3::bigint BETWEEN 0 AND $4::bigint THEN at" +
		" ELSE ('batch of ' || $3::bigint || ' comes late')::bigint END, " + db.OwnVersion}
	s.guardNames = &db.Stmt{SQL: "SELECT ('name ' || h || ' is locked')::bigint FROM unnest($1::bigint[]) AS u(h)" +
		" WHERE NOT pg_try_advisory_xact_lock(h)"}
	s.guardFresh = &db.Stmt{SQL: "SELECT ('workflow ' || f.workflow_id || ' is there')::bigint FROM (" +
		d.Probe(record.Workflows.Key(), "t.workflow_id", "workflows", "", "") + ") AS f"}

	version := func(t *db.Table) []db.Column { return append(slices.Clip(t.Key()), db.Num("version")) }
	flows, runs, sessions := version(record.Workflows), version(record.Runs), version(record.Sessions)
	s.guardRows = &db.Stmt{SQL: strings.Join([]string{
		guardStatement("workflows", flows, 1), guardStatement("runs", runs, 1+len(flows)),
		guardStatement("sessions", sessions, 1+len(flows)+len(runs)),
	}, " UNION ALL ")}
	const tasks = "SELECT ('tasks of ' || c.id || ' are others')::bigint FROM" +
		" (SELECT k.%s AS id, %s AS same FROM %s OFFSET 0) AS c WHERE NOT c.same"
	ofRuns := valuesTable([]db.Column{db.Text("run_id"), db.Num("tasks")}, 1)
	ofSessions := valuesTable(slices.Concat(countedColumns[:2], countedColumns[3:]), 3)
	s.guardTasks = &db.Stmt{SQL: fmt.Sprintf(tasks, "run_id", "k.tasks = "+waitingOf, ofRuns) + " UNION ALL " +
		fmt.Sprintf(tasks, "session_id", "k.active = "+activeOf+" AND k.ready = "+readyOf, ofSessions)}

	// These statements read the open tasks of runs. For a run that did not change since it was cached, the statement
	// returns only that fact. The previous statement has locked the rows of the runs, so they no longer change.
	open := func(what, where string) string {
		return fmt.Sprintf(" UNION ALL SELECT p.* FROM k CROSS JOIN LATERAL"+
			" (SELECT t.run_id, t.kind, t.seq, t.body FROM %s AS t WHERE t.run_id = k.run_id%s OFFSET 0) AS p WHERE NOT k.same", what, where)
	}
	s.opensOf = &db.Stmt{SQL: fmt.Sprintf("WITH k AS MATERIALIZED (SELECT k.run_id, CASE p.version WHEN k.version THEN k.tasks = %s"+
		" ELSE false END AS same FROM %s CROSS JOIN LATERAL (SELECT %s AS version FROM runs AS t WHERE %s OFFSET 0) AS p)"+
		" SELECT k.run_id, '%s', 0, '' FROM k WHERE k.same%s%s", waitingOf, valuesTable(versionColumns, 1), db.VersionOf,
		keyCondition(record.Runs.Key()), sameKind, open("tasks", " AND t.seq > 0"), open("items", ""))}
}

// versionColumns are the columns by which a cached run is passed to a statement: the version of its row, and the number
// of its ready tasks.
var versionColumns = []db.Column{db.Text("run_id"), db.Num("version"), db.Num("tasks")}

// sameKind is the kind of the row that is returned for a run which has not changed since it was cached.
const sameKind = "same"

// counted are the columns by which a cached session is passed to statements: the version of its row, its owner, the
// number of its owner's tasks in it, and the number of its ready tasks. versionedFlow are the columns of a workflow ID.
var (
	countedColumns = []db.Column{
		db.Text("namespace"), db.Text("session_id"), db.Num("version"), db.Text("owner"), db.Num("active"), db.Num("ready"),
	}
	versionedFlow = []db.Column{db.Text("namespace"), db.Text("workflow_id"), db.Num("version")}
)

// waitingOf counts the ready tasks of a run. Its condition contains only the key, so that PostgreSQL uses the primary
// key. activeOf counts the tasks of a session's owner in the session, readyOf its ready tasks.
const (
	waitingOf = "(SELECT count(t.route) FROM tasks AS t WHERE t.run_id = k.run_id)"
	activeOf  = "(SELECT count(*) FROM tasks AS t" +
		" WHERE t.namespace = k.namespace AND t.owner = k.owner AND t.session_id = k.session_id)"
	readyOf = "(SELECT count(t.route) FROM tasks AS t" +
		" WHERE t.namespace = k.namespace AND t.session_id = k.session_id AND t.owner IS NULL)"
)

// valuesTable returns a table expression k of columns that are passed as arrays; the first of them is the nth
// parameter.
func valuesTable(columns []db.Column, n int) string {
	var names, arrays []string
	for i, c := range columns {
		names, arrays = append(names, c.Name), append(arrays, fmt.Sprintf("$%d::%s[]", n+i, c.Typ()))
	}
	all := strings.Join(names, ", ")
	return fmt.Sprintf("(SELECT * FROM unnest(%s) AS u(%s) ORDER BY %s) AS k", strings.Join(arrays, ", "), all, all)
}

// keyCondition returns the condition that a row t has the key k.
func keyCondition(key []db.Column) string {
	var on []string
	for _, c := range key {
		on = append(on, fmt.Sprintf("t.%s = k.%s", c.Name, c.Name))
	}
	return strings.Join(on, " AND ")
}

// guardStatement returns a statement that locks the rows of a table by their keys. The last column is the version that
// each row must have.
func guardStatement(t string, columns []db.Column, n int) string {
	key := columns[:len(columns)-1]
	return fmt.Sprintf("SELECT ('%s: row ' || k.%s || ' is another')::bigint FROM %s LEFT JOIN LATERAL"+
		" (SELECT %s AS version FROM %s AS t WHERE %s FOR UPDATE SKIP LOCKED) AS p ON true"+
		" WHERE p.version IS DISTINCT FROM k.version", t, key[len(key)-1].Name, valuesTable(columns, n), db.VersionOf, t, keyCondition(key))
}
