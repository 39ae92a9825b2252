package sqldb

import (
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Statements are made once for a dialect: both databases run the same ones but for what they spell differently.

// statements are all statements of the committer for one dialect, made once.
type statements struct {
	begin, commit *Stmt
	batch         *Stmt // writes (app, batch); on a shared database it also reads the clock
	advisory      *Stmt // tries to lock numbers, and returns those somebody else has
	reroute       *Stmt
	owners        *Stmt // of runs: workflow keys by run id, unlocked
	opens         *Stmt // open rows of runs
	opensOf       *Stmt // of shared databases: the same of runs that are not as they are remembered, see recall.go
	held          *Stmt // sessions held, by worker; and the words of those that fall back, with -1
	holdings      *Stmt // each of them
	tallies       *Stmt // what sessions leave to their tasks
	lastEnded     *Stmt // in one session, latest first
	leasedIn      *Stmt
	openIn        *Stmt
	ranIn         *Stmt
	floors        *Stmt
	lanes         *Stmt
	dropLanes     *Stmt         // not used since a time; on a database of one app it returns them
	readyIn       *Stmt         // of shared databases: where the first ready tasks of some runs wait
	picks         map[int]*Stmt // candidates of a claim by number of ranges; 0 for arrays

	// of batches that are decided on what is remembered, see recall.go
	stamp, guardNames, guardFresh, guardRows, guardTasks *Stmt

	workflows, runs, sessions, chains, workers, receipts, tokens *loader
	namespaces                                                   *loader
	// children of earlier runs by key; those of a chain that go by a close policy
	former, bound                     *loader
	putFormer, dropFormer, dropChains *writer
	succeedTasks                      *writer // rows of tasks go to others of the same runs

	addWorkflows, putWorkflows *writer

	putRuns, moveRuns, addEvents, putTasks, dropTasks, putItems, dropItems, putSessions, dropSessions       *writer
	addTimeline, putEpochs, putWorkers, dropWorkers, putReceipts, putTokens, dropTokens, addAudit, addLanes *writer

	schedules, queues, tags    *loader
	putTags, addTags, dropTags *writer
	pruneTags                  *Stmt
	putQueues, dropQueues      *writer
	// by queue of a namespace
	leased                                                             map[protocol.TaskKind]*Stmt
	putSchedules, dropSchedules, addScheduleEvents, dropScheduleEvents *writer
	addAttributes, dropAttributes                                      *writer
	addLogs, dropLogs, dropRunLogs                                     *writer
	// of sessions; of namespaces
	dropTimelines, forgetTimelines                                                                               *writer
	putNamespaces, dropNamespaces, dropRuns, dropEvents, dropRunTasks, dropRunItems, dropWorkflows, dropReceipts *writer
}

// separator stands between the parts of a route, the word last.
const separator = "\x1f"

// Made at the start, so that the text of a statement is the same each time and it is prepared once on its
// connection.
func newStatements(d Dialect) *statements {
	s := &statements{
		begin:     &Stmt{SQL: d.Begin, Control: true},
		commit:    &Stmt{SQL: "COMMIT", Control: true},
		owners:    &Stmt{SQL: d.probe(runsTable.key(), "t.run_id, t.namespace, t.workflow_id", "runs", "", "")},
		opens:     &Stmt{SQL: openRows(d)},
		tallies:   &Stmt{SQL: tallies(d, false)},
		lastEnded: &Stmt{SQL: lastEnded(d)},
		leasedIn:  &Stmt{SQL: leasedIn},
		openIn:    &Stmt{SQL: openIn(d, "t.run_id, t.seq, t.body")},
		ranIn:     &Stmt{SQL: ranIn(d)},
		floors:    &Stmt{SQL: "SELECT namespace, floor FROM epochs"},
		lanes:     &Stmt{SQL: "SELECT namespace, queue, kind, lane, used_at FROM lanes"},
		dropLanes: &Stmt{SQL: unusedLanes(d)},
		picks:     map[int]*Stmt{},

		workflows: d.load(workflowsTable, workflowsTable.key(), ""),
		runs:      d.load(runsTable, runsTable.key(), ""),
		sessions:  d.load(sessionsTable, sessionsTable.key(), ""),
		chains:    d.load(sessionsTable, []column{text("namespace"), text("workflow_id")}, "t.workflow_id IS NOT NULL"),
		workers:   d.load(workersTable, workersTable.key(), ""),
		receipts:  d.load(receiptsTable, receiptsTable.key(), ""),
		tokens:    d.load(tokensTable, tokensTable.key(), ""),

		former:     d.load(formerTable, formerTable.key(), ""),
		bound:      d.load(formerTable, formerChain, "t.bound = 1"),
		putFormer:  d.upsert(formerTable),
		dropFormer: d.remove(formerTable),
		dropChains: d.removeBy(formerTable, formerChain),

		addWorkflows: d.insert(workflowsTable),
		putWorkflows: d.upsert(workflowsTable),
		putRuns:      d.upsert(runsTable),
		moveRuns:     d.upsert(runsTable, "status", "closed_at"),
		addEvents:    d.insert(eventsTable),
		putTasks:     d.upsert(tasksTable),
		dropTasks:    d.remove(tasksTable),
		succeedTasks: d.succeed(tasksTable),
		putItems:     d.upsert(itemsTable),
		dropItems:    d.remove(itemsTable),
		putSessions:  d.upsert(sessionsTable),
		dropSessions: d.remove(sessionsTable),
		addTimeline:  d.insert(timelineTable),
		putEpochs:    d.raise(epochsTable),
		putWorkers:   d.upsert(workersTable),
		dropWorkers:  d.remove(workersTable),
		putReceipts:  d.upsert(receiptsTable),
		putTokens:    d.upsert(tokensTable),
		dropTokens:   d.remove(tokensTable),
		addAudit:     d.insert(auditTable),
		addLanes:     d.raise(lanesTable),

		namespaces: d.load(namespacesTable, namespacesTable.key(), ""),
		schedules:  d.load(schedulesTable, schedulesTable.key(), ""),
		queues:     d.load(queuesTable, queuesTable.key(), ""),
		putQueues:  d.upsert(queuesTable),
		dropQueues: d.removeBy(queuesTable, queuesTable.columns[:1]),
		leased:     leasedByQueue(),
		tags:       d.load(fairnessTable, fairnessTable.key(), ""),
		putTags:    d.raise(fairnessTable),
		addTags:    d.ensure(fairnessTable),
		pruneTags: &Stmt{
			SQL: "DELETE FROM fairness WHERE namespace = $1 AND queue = $2 AND kind = $3 AND tier = $4 AND class <> '' AND tag <= $5",
		},
		dropTags:           d.removeBy(fairnessTable, fairnessTable.columns[:1]),
		putSchedules:       d.upsert(schedulesTable),
		dropSchedules:      d.remove(schedulesTable),
		addScheduleEvents:  d.insert(scheduleEventsTable),
		dropScheduleEvents: d.removeBy(scheduleEventsTable, schedulesTable.key()),

		putNamespaces:  d.upsert(namespacesTable),
		dropNamespaces: d.remove(namespacesTable),
		dropRuns:       d.remove(runsTable),
		dropEvents:     d.removeBy(eventsTable, eventRun),
		dropRunTasks:   d.removeBy(tasksTable, taskRun),
		dropRunItems:   d.removeBy(itemsTable, itemRun),
		dropWorkflows:  d.remove(workflowsTable),
		dropReceipts:   d.removeBy(receiptsTable, receiptFlow),

		addAttributes:  d.insert(attributesTable),
		dropAttributes: d.removeBy(attributesTable, attributeRun),

		addLogs:     d.ensureOf(logsTable, runsTable),
		dropLogs:    d.remove(logsTable),
		dropRunLogs: d.removeBy(logsTable, logRun),

		dropTimelines:   d.removeBy(timelineTable, timelineSession),
		forgetTimelines: d.removeBy(timelineTable, timelineTable.columns[:1]),
	}
	// The word of a route is what follows its last separator: trimming every other character from the right leaves the
	// rest.
	words := []column{text("namespace"), text("session_id"), text("word")}
	held := d.probe(workersTable.key(), "t.namespace, t.owner",
		"(SELECT namespace, owner AS worker_id, owner FROM sessions"+
			" WHERE owner IS NOT NULL AND status = 'active' AND lease_until > $now)", "", "")
	s.held = &Stmt{SQL: "SELECT h.namespace, h.owner, count(*) FROM (" + held + ") AS h GROUP BY h.namespace, h.owner" +
		" UNION ALL SELECT DISTINCT o.namespace, o.word, -1 FROM sessions AS o WHERE o.namespace = $ns AND substr(o.word, 1, 1) = '~'"}
	s.holdings = &Stmt{SQL: d.probe(workersTable.key(), "t.namespace, t.owner, t.session_id, t.lease_until",
		"(SELECT namespace, owner AS worker_id, owner,"+
			" session_id, lease_until FROM sessions WHERE owner IS NOT NULL AND status = 'active')", "", "")}
	const moved = " SET route = rtrim(route, replace(route, char(31), '')) || k.word FROM " // char(31) is the separator
	const where = "t.namespace = k.namespace AND t.session_id = k.session_id AND t.owner IS NULL AND t.route IS NOT NULL"
	const told = " RETURNING tasks.namespace, tasks.queue, tasks.kind, tasks.route"
	if !d.Shared {
		s.held.SQL = strings.NewReplacer("$now", "?2", "$ns", "?3").Replace(s.held.SQL)
		s.batch = &Stmt{
			SQL: "INSERT INTO batches (app, batch, at) VALUES (?, ?, ?) ON CONFLICT (app) DO UPDATE SET batch = excluded.batch, at = excluded.at",
		}
		s.reroute = &Stmt{
			SQL: "UPDATE tasks" + moved + d.list(words) + " AS k WHERE " + strings.ReplaceAll(where, "t.", "tasks.") + told,
		}
		return s
	}
	s.guardStatements(d)
	s.held.SQL = strings.NewReplacer("$now", "$3", "$ns", "$4").Replace(s.held.SQL)
	s.readyIn = &Stmt{SQL: "SELECT DISTINCT r.namespace, r.queue, r.kind FROM unnest($1::text[]) AS k(run_id) CROSS JOIN LATERAL (SELECT t.namespace, t.queue, t.kind" +
		" FROM tasks AS t WHERE t.run_id = k.run_id AND t.route IS NOT NULL ORDER BY t.seq LIMIT 32) AS r"}
	s.advisory = &Stmt{SQL: "SELECT h FROM unnest($1::bigint[]) AS u(h) WHERE NOT pg_try_advisory_xact_lock(h)"}
	s.pruneTags = &Stmt{SQL: "DELETE FROM fairness WHERE ctid = ANY(ARRAY(SELECT ctid FROM fairness WHERE namespace = $1 AND queue = $2 AND kind = $3 AND tier = $4" +
		" AND class <> '' AND tag <= $5 FOR UPDATE SKIP LOCKED))"}
	s.batch = &Stmt{SQL: "INSERT INTO batches (app, batch, at) VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)" +
		" ON CONFLICT (app) DO UPDATE SET batch = excluded.batch, at = excluded.at RETURNING at, " + ownVersion}
	s.reroute = &Stmt{SQL: "UPDATE tasks" + strings.Replace(
		moved, "char", "chr", 1,
	) + "(SELECT p.place, k.word FROM " + d.list(words) +
		" AS k CROSS JOIN LATERAL (SELECT t.ctid AS place FROM tasks AS t WHERE " + where +
		" FOR UPDATE NOWAIT) AS p) AS k WHERE tasks.ctid = k.place" + told}
	return s
}

// pick returns the statement that reads the first ready tasks of each of n ranges, and how many ranges it takes.
func (s *statements) pick(d Dialect, n int) (*Stmt, int) {
	const columns = "route, priority, ready_at, run_id, seq, body, rank"
	if d.Shared {
		if s.picks[0] == nil {
			// Behind the tasks comes, for each range, how many there are: where that is more than it gave, some are locked by
			// others.
			s.picks[0] = &Stmt{SQL: "SELECT c.* FROM unnest($1::text[]) AS k(route) CROSS JOIN LATERAL (SELECT t.route, t.priority, t.ready_at, t.run_id," +
				" t.seq, t.body, t.rank, r.version FROM tasks AS t CROSS JOIN LATERAL (SELECT x.xmin::text::bigint AS version FROM runs AS x WHERE x.run_id = t.run_id FOR UPDATE SKIP LOCKED) AS r" +
				" WHERE t.route = k.route ORDER BY t.priority, t.rank, t.ready_at, t.run_id, t.seq LIMIT $2 FOR UPDATE OF t SKIP LOCKED) AS c" +
				" UNION ALL SELECT k.route, -1, n.n, '', 0, '', 0, 0 FROM unnest($1::text[]) AS k(route) CROSS JOIN LATERAL (SELECT count(*) AS n FROM" +
				" (SELECT 1 FROM tasks AS t WHERE t.route = k.route LIMIT $2) AS t) AS n WHERE n.n > 0"}
		}
		return s.picks[0], n
	}
	// By powers of two, so that a handful of prepared statements serves any number of ranges; what is left over
	// asks for nothing.
	size := 1
	for size < n && size < 64 {
		size *= 2
	}
	if s.picks[size] == nil {
		// A limit that is a bare parameter has SQLite plan the statement again at each execution, for it might look at the
		// number.
		one := "SELECT * FROM (SELECT " + columns +
			" FROM tasks WHERE route = ? ORDER BY priority, rank, ready_at, run_id, seq LIMIT (? + 0))"
		s.picks[size] = &Stmt{SQL: one + strings.Repeat(" UNION ALL "+one, size-1)}
	}
	return s.picks[size], size
}
