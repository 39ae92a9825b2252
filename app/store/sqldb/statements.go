package sqldb

import (
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Statements are generated once per dialect: both databases use the same statements, except for differences in syntax.

// statements contains all statements of the committer for one dialect.
type statements struct {
	begin, commit *db.Stmt

	// markJump stores a time before a jump of the clock, clampBatches sets times that are ahead of the clock back, and
	// dropMark deletes the row of markJump.
	markJump, clampBatches, dropMark *db.Stmt

	batch    *db.Stmt // writes (app, batch); on a shared database it also returns the server's time
	advisory *db.Stmt // tries advisory locks, and returns those that other transactions hold
	reroute  *db.Stmt
	owners   *db.Stmt // workflow keys of runs by run ID, without locks
	opens    *db.Stmt // open rows of runs
	opensOf  *db.Stmt // on shared databases: the same, for runs that differ from the cached ones; see recall.go
	// sessions that workers hold, and the routing words of sessions that any worker may acquire, with -1
	held          *db.Stmt
	holdings      *db.Stmt // sessions that each worker holds
	sessionCounts *db.Stmt // counts of sessions' tasks
	lastEnded     *db.Stmt // time of the last attempt that ended in a session
	leasedIn      *db.Stmt
	openIn        *db.Stmt
	ranIn         *db.Stmt
	watermarks    *db.Stmt
	routingKeys   *db.Stmt
	processTasks  *db.Stmt // tasks of workers, and suspects among them
	unserve       *db.Stmt // sets the stuck marks of runs
	// deletes routing keys that were not used since a time; with a single process it returns them
	dropRoutingKeys *db.Stmt
	readyIn         *db.Stmt         // on shared databases: routes of the first ready tasks of some runs
	picks           map[int]*db.Stmt // reads the candidates of a claim, by number of ranges; 0 for arrays

	// These are for batches that are decided on cached rows; see recall.go.
	stamp, guardNames, guardFresh, guardRows, guardTasks *db.Stmt

	workflows, runs, sessions, chains, workers, receipts, tokens *db.Loader
	namespaces                                                   *db.Loader
	// These load children of earlier runs by key, and children of a chain with a close policy.
	inherited, bound                          *db.Loader
	putInherited, deleteInherited, dropChains *db.Writer
	succeedTasks                              *db.Writer // replace rows of ended tasks of the same runs

	addWorkflows, putWorkflows *db.Writer
	addInbox                   *db.Writer
	dropInbox                  *db.Stmt // deletes signals that are in no run's history

	putRuns, moveRuns, addEvents, putTasks, dropTasks, putItems, dropItems, putSessions, dropSessions *db.Writer
	addTimeline, putEpochs, putWorkers, dropWorkers, putReceipts, putTokens, dropTokens, addAudit     *db.Writer
	putSessionArguments, dropSessionArguments                                                         *db.Writer
	putSessionSnapshots, dropSessionSnapshots                                                         *db.Writer
	addRoutingKeys                                                                                    *db.Writer

	schedules, queues, tags    *db.Loader
	batchJobs                  *db.Loader
	putTags, addTags, dropTags *db.Writer
	pruneTags                  *db.Stmt
	putQueues, dropQueues      *db.Writer
	// These count leased tasks by queue of a namespace.
	leased                                                             map[protocol.TaskKind]*db.Stmt
	putSchedules, dropSchedules, addScheduleEvents, dropScheduleEvents *db.Writer
	addAttributes, dropAttributes                                      *db.Writer
	putBatchJobs, dropBatchJobs, putBatchRuns, dropBatchRuns           *db.Writer
	dropAudits                                                         *db.Writer
	addLogs, dropLogs, dropRunLogs                                     *db.Writer
	// These delete timelines of sessions, and of namespaces.
	dropTimelines, forgetTimelines *db.Writer
	putNamespaces, dropNamespaces, dropRuns, dropEvents, dropRunTasks, dropRunItems, dropWorkflows, dropReceipts,
	dropResponses *db.Writer
}

// separator separates the parts of a route; the routing word is the last part.
const separator = record.RouteSeparator

// newStatements is called once, at the start, so that the text of a statement is always the same and is prepared only
// once per connection.
func newStatements(d db.Dialect) *statements {
	s := &statements{
		begin:           &db.Stmt{SQL: d.Begin, Control: true},
		commit:          &db.Stmt{SQL: "COMMIT", Control: true},
		owners:          &db.Stmt{SQL: d.Probe(record.Runs.Key(), "t.run_id, t.namespace, t.workflow_id", "runs", "", "")},
		opens:           &db.Stmt{SQL: record.OpenRows(d)},
		sessionCounts:   &db.Stmt{SQL: record.CountTasks(d, false)},
		lastEnded:       &db.Stmt{SQL: record.LastEnded(d)},
		leasedIn:        &db.Stmt{SQL: leasedBy},
		openIn:          &db.Stmt{SQL: record.OpenIn(d, "t.run_id, t.seq, t.body")},
		ranIn:           &db.Stmt{SQL: record.RanIn(d)},
		watermarks:      &db.Stmt{SQL: "SELECT namespace, floor FROM epochs"},
		routingKeys:     &db.Stmt{SQL: selectRoutingKeysAndIsolated},
		processTasks:    &db.Stmt{SQL: heldTasksQuery(d)},
		dropRoutingKeys: &db.Stmt{SQL: deleteUnusedRoutingKeys(d)},
		unserve:         &db.Stmt{SQL: unserve(d)},
		picks:           map[int]*db.Stmt{},

		workflows: d.Load(record.Workflows, record.Workflows.Key(), ""),
		runs:      d.Load(record.Runs, record.Runs.Key(), ""),
		sessions:  d.Load(record.Sessions, record.Sessions.Key(), ""),
		chains: d.Load(
			record.Sessions, []db.Column{db.Text("namespace"), db.Text("workflow_id")}, "t.workflow_id IS NOT NULL",
		),
		workers:  d.Load(record.Workers, record.Workers.Key(), ""),
		receipts: d.Load(record.Receipts, record.Receipts.Key(), ""),
		tokens:   d.Load(record.Tokens, record.Tokens.Key(), ""),

		inherited:       d.Load(record.InheritedChildren, record.InheritedChildren.Key(), ""),
		bound:           d.Load(record.InheritedChildren, inheritedChain, "t.bound = 1"),
		putInherited:    d.Upsert(record.InheritedChildren),
		deleteInherited: d.Remove(record.InheritedChildren),
		dropChains:      d.RemoveBy(record.InheritedChildren, inheritedChain),

		addWorkflows:   d.Insert(record.Workflows),
		putWorkflows:   d.Upsert(record.Workflows),
		putRuns:        d.Upsert(record.Runs),
		moveRuns:       d.Upsert(record.Runs, "status", "closed_at", "failing"),
		addEvents:      d.Insert(record.Events),
		addInbox:       d.Insert(record.SignalInbox),
		dropInbox:      &db.Stmt{SQL: dropInbox(d)},
		putTasks:       d.Upsert(record.Tasks),
		dropTasks:      d.Remove(record.Tasks),
		succeedTasks:   d.Succeed(record.Tasks),
		putItems:       d.Upsert(record.Items),
		dropItems:      d.Remove(record.Items),
		putSessions:    d.Upsert(record.Sessions),
		dropSessions:   d.Remove(record.Sessions),
		addTimeline:    d.Insert(record.Timeline),
		putEpochs:      d.Raise(record.Epochs),
		putWorkers:     d.Upsert(record.Workers),
		dropWorkers:    d.Remove(record.Workers),
		putReceipts:    d.Upsert(record.Receipts),
		putTokens:      d.Upsert(record.Tokens),
		dropTokens:     d.Remove(record.Tokens),
		addAudit:       d.Insert(record.Audit),
		dropAudits:     d.RemoveBy(record.Audit, auditNumber),
		addRoutingKeys: d.Raise(record.RoutingKeys),

		namespaces: d.Load(record.Namespaces, record.Namespaces.Key(), ""),
		schedules:  d.Load(record.Schedules, record.Schedules.Key(), ""),
		queues:     d.Load(record.Queues, record.Queues.Key(), ""),
		putQueues:  d.Upsert(record.Queues),
		dropQueues: d.RemoveBy(record.Queues, record.Queues.Columns[:1]),
		leased:     leasedByQueue(),
		tags:       d.Load(record.Fairness, record.Fairness.Key(), ""),
		putTags:    d.Raise(record.Fairness),
		addTags:    d.Ensure(record.Fairness),
		pruneTags: &db.Stmt{
			SQL: "DELETE FROM fairness WHERE namespace = $1 AND queue = $2 AND kind = $3 AND tier = $4 AND class <> '' AND tag <= $5",
		},
		dropTags:           d.RemoveBy(record.Fairness, record.Fairness.Columns[:1]),
		putSchedules:       d.Upsert(record.Schedules),
		dropSchedules:      d.Remove(record.Schedules),
		addScheduleEvents:  d.Insert(record.ScheduleEvents),
		dropScheduleEvents: d.RemoveBy(record.ScheduleEvents, record.Schedules.Key()),

		batchJobs:     d.Load(record.BatchJobs, record.BatchJobs.Key(), ""),
		putBatchJobs:  d.Upsert(record.BatchJobs),
		dropBatchJobs: d.Remove(record.BatchJobs),
		putBatchRuns:  d.Upsert(record.BatchRuns),
		dropBatchRuns: d.Remove(record.BatchRuns),

		putNamespaces:  d.Upsert(record.Namespaces),
		dropNamespaces: d.Remove(record.Namespaces),
		dropRuns:       d.Remove(record.Runs),
		dropEvents:     d.RemoveBy(record.Events, eventRun),
		dropRunTasks:   d.RemoveBy(record.Tasks, taskRun),
		dropRunItems:   d.RemoveBy(record.Items, itemRun),
		dropWorkflows:  d.Remove(record.Workflows),
		dropResponses:  d.Remove(record.Receipts),
		dropReceipts:   d.RemoveBy(record.Receipts, receiptFlow),

		addAttributes:  d.Insert(record.Attributes),
		dropAttributes: d.RemoveBy(record.Attributes, attributeRun),

		addLogs:     d.EnsureOf(record.Logs, record.Runs),
		dropLogs:    d.Remove(record.Logs),
		dropRunLogs: d.RemoveBy(record.Logs, logRun),

		putSessionArguments:  d.Upsert(record.SessionArguments),
		dropSessionArguments: d.Remove(record.SessionArguments),
		putSessionSnapshots:  d.Upsert(record.SessionSnapshots),
		dropSessionSnapshots: d.Remove(record.SessionSnapshots),

		dropTimelines:   d.RemoveBy(record.Timeline, timelineSession),
		forgetTimelines: d.RemoveBy(record.Timeline, record.Timeline.Columns[:1]),
	}
	// The word of a route follows its last separator: trimming all other characters from the right leaves the rest.
	words := []db.Column{db.Text("namespace"), db.Text("session_id"), db.Text("word")}
	// A session that a worker prepares has a reserved place there. A session in the column held uses a place; others only
	// use resources, because their last owner may have suspended their state.
	suspended := fmt.Sprintf("units IS NOT NULL AND lease_until > $now - %d", engine.SuspendedTime.Microseconds())
	held := db.ReuseParameter(d, d.Probe(record.Workers.Key(), "t.namespace, t.owner, t.held, t.units",
		"(SELECT namespace, owner AS worker_id, owner, units,"+
			" CAST(CASE WHEN status = 'active' AND lease_until > $now THEN 1 ELSE 0 END AS bigint) AS held FROM sessions"+
			" WHERE owner IS NOT NULL AND (status = 'active' AND lease_until > $now OR "+suspended+"))", "", "")+
		" UNION ALL "+d.Probe(record.Workers.Key(), "t.namespace, t.worker_id, 1, t.units",
		"(SELECT namespace, prepare_for AS worker_id, prepare_units AS units FROM sessions"+
			" WHERE prepare_for IS NOT NULL AND prepare_until > $now)", "", ""))
	s.held = &db.Stmt{SQL: "SELECT h.namespace, h.owner, h.held, count(*), h.units FROM (" + held +
		") AS h GROUP BY h.namespace, h.owner, h.held, h.units" +
		" UNION ALL SELECT DISTINCT o.namespace, o.word, -1, 0, NULL FROM sessions AS o" +
		" WHERE o.namespace = $ns AND substr(o.word, 1, 1) = '~'"}
	const active = "CAST(CASE WHEN status = 'active' THEN 1 ELSE 0 END AS bigint) AS held"
	s.holdings = &db.Stmt{SQL: db.ReuseParameter(
		d, d.Probe(record.Workers.Key(), "t.namespace, t.owner, t.session_id, t.lease_until, t.held, t.units",
			"(SELECT namespace, owner AS worker_id, owner, session_id, lease_until, units, "+active+
				" FROM sessions WHERE owner IS NOT NULL AND (status = 'active' OR units IS NOT NULL))", "", "")+
			" UNION ALL "+d.Probe(
			record.Workers.Key(), "t.namespace, t.worker_id, t.session_id, t.prepare_until, 2, t.prepare_units",
			"(SELECT namespace, prepare_for AS worker_id, session_id, prepare_until, prepare_units FROM sessions"+
				" WHERE prepare_for IS NOT NULL)", "", ""),
	)}
	const moved = " SET route = rtrim(route, replace(route, char(31), '')) || k.word FROM " // char(31) is the separator
	const where = "t.namespace = k.namespace AND t.session_id = k.session_id AND t.owner IS NULL AND t.route IS NOT NULL"
	const returning = " RETURNING tasks.namespace, tasks.queue, tasks.kind, tasks.route"
	if !d.Shared {
		s.held.SQL = strings.NewReplacer("$now", "?2", "$ns", "?3").Replace(s.held.SQL)
		s.batch = &db.Stmt{
			SQL: "INSERT INTO batches (app, batch, at) VALUES (?, ?, ?) ON CONFLICT (app) DO UPDATE SET batch = excluded.batch, at = excluded.at",
		}
		s.markJump = &db.Stmt{
			SQL: "INSERT INTO batches (app, batch, at) VALUES (?1, 0, ?2) ON CONFLICT (app) DO UPDATE SET at = excluded.at",
		}
		s.clampBatches = &db.Stmt{SQL: "UPDATE batches SET at = ?1 WHERE at > ?2"}
		s.dropMark = &db.Stmt{SQL: "DELETE FROM batches WHERE app = ?1"}
		s.reroute = &db.Stmt{
			SQL: "UPDATE tasks" + moved + d.List(words) + " AS k WHERE " + strings.ReplaceAll(where, "t.", "tasks.") + returning,
		}
		return s
	}
	s.guardStatements(d)
	s.held.SQL = strings.NewReplacer("$now", "$3", "$ns", "$4").Replace(s.held.SQL)
	s.readyIn = &db.Stmt{SQL: "SELECT DISTINCT r.namespace, r.queue, r.kind FROM unnest($1::text[]) AS k(run_id) CROSS JOIN LATERAL (SELECT t.namespace, t.queue, t.kind" +
		" FROM tasks AS t WHERE t.run_id = k.run_id AND t.route IS NOT NULL ORDER BY t.seq LIMIT 32) AS r"}
	s.advisory = &db.Stmt{SQL: "SELECT h FROM unnest($1::bigint[]) AS u(h) WHERE NOT pg_try_advisory_xact_lock(h)"}
	s.pruneTags = &db.Stmt{SQL: "DELETE FROM fairness WHERE ctid = ANY(ARRAY(SELECT ctid FROM fairness WHERE namespace = $1 AND queue = $2 AND kind = $3 AND tier = $4" +
		" AND class <> '' AND tag <= $5 FOR UPDATE SKIP LOCKED))"}
	s.batch = &db.Stmt{SQL: "INSERT INTO batches (app, batch, at) VALUES ($1, $2, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)" +
		" ON CONFLICT (app) DO UPDATE SET batch = excluded.batch, at = excluded.at RETURNING at, " + db.OwnVersion}
	s.markJump = &db.Stmt{
		SQL: "INSERT INTO batches (app, batch, at) VALUES ($1, 0, $2) ON CONFLICT (app) DO UPDATE SET at = excluded.at",
	}
	s.clampBatches = &db.Stmt{SQL: "UPDATE batches SET at = $1 WHERE app IN" +
		" (SELECT app FROM batches WHERE at > $2 FOR UPDATE SKIP LOCKED)"}
	s.dropMark = &db.Stmt{SQL: "DELETE FROM batches WHERE app = $1"}
	s.reroute = &db.Stmt{SQL: "UPDATE tasks" + strings.Replace(
		moved, "char", "chr", 1,
	) + "(SELECT p.place, k.word FROM " + d.List(words) +
		" AS k CROSS JOIN LATERAL (SELECT t.ctid AS place FROM tasks AS t WHERE " + where +
		" FOR UPDATE NOWAIT) AS p) AS k WHERE tasks.ctid = k.place" + returning}
	return s
}

// pick returns the statement that reads the first ready tasks of each of n ranges, and the number of ranges that it
// accepts.
func (s *statements) pick(d db.Dialect, n int) (*db.Stmt, int) {
	const columns = "route, priority, ready_at, run_id, seq, body, rank"
	if d.Shared {
		if s.picks[0] == nil {
			// For each range, the result also contains the number of its tasks: if it exceeds the number of returned
			// tasks, other transactions have locked some.
			s.picks[0] = &db.Stmt{SQL: "SELECT c.* FROM unnest($1::text[]) AS k(route) CROSS JOIN LATERAL (SELECT t.route, t.priority, t.ready_at, t.run_id," +
				" t.seq, t.body, t.rank, r.version FROM tasks AS t CROSS JOIN LATERAL (SELECT x.xmin::text::bigint AS version FROM runs AS x WHERE x.run_id = t.run_id FOR UPDATE SKIP LOCKED) AS r" +
				" WHERE t.route = k.route ORDER BY t.priority, t.rank, t.ready_at, t.run_id, t.seq LIMIT $2 FOR UPDATE OF t SKIP LOCKED) AS c" +
				" UNION ALL SELECT k.route, -1, n.n, '', 0, '', 0, 0 FROM unnest($1::text[]) AS k(route) CROSS JOIN LATERAL (SELECT count(*) AS n FROM" +
				" (SELECT 1 FROM tasks AS t WHERE t.route = k.route LIMIT $2) AS t) AS n WHERE n.n > 0"}
		}
		return s.picks[0], n
	}
	// The number of ranges is rounded up to a power of two, so that a few prepared statements suffice for any number of
	// ranges; the surplus ranges match no rows.
	size := 1
	for size < n && size < 64 {
		size *= 2
	}
	if s.picks[size] == nil {
		// If the limit were a bare parameter, SQLite would plan the statement again at each execution, since the plan
		// may depend on it.
		one := "SELECT * FROM (SELECT " + columns +
			" FROM tasks WHERE route = ? ORDER BY priority, rank, ready_at, run_id, seq LIMIT (? + 0))"
		s.picks[size] = &db.Stmt{SQL: one + strings.Repeat(" UNION ALL "+one, size-1)}
	}
	return s.picks[size], size
}
