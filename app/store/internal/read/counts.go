package read

import (
	"context"
	"fmt"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The dashboard repeats these queries every few seconds, over tables that may have millions of rows. So each query is
// written for one index. A condition that would prevent the use of the index is omitted if it excludes no row.

// SessionCounts omits sessions that were never acquired and belong to no workflow: there is nothing to show.
func (r *reader) SessionCounts(ctx context.Context, namespace string) (map[protocol.SessionStatus]int, error) {
	counts := map[protocol.SessionStatus]int{}
	query, args := sessionCounts(namespace)
	err := r.query(ctx, query, args, func(v []any) error {
		counts[protocol.SessionStatus(db.Str(v[0]))] = int(db.Int(v[1]))
		return nil
	})
	return counts, wrapRead(err, "counts of sessions")
}

// sessionCounts adds the condition on the namespace only if a namespace is given: a condition that matches all
// namespaces would prevent the use of the index.
func sessionCounts(namespace string) (query string, args []any) {
	query = "SELECT " + shownStatus + ", count(*) FROM sessions WHERE (claimed = 1 OR door = 'workflow')"
	if namespace != "" {
		query, args = query+" AND namespace = $1", []any{namespace}
	}
	return query + " GROUP BY 1", args
}

func (r *reader) SessionCountsUpTo(
	ctx context.Context, namespace string, most int,
) (map[protocol.SessionStatus]int, error) {
	counts := map[protocol.SessionStatus]int{}
	err := r.query(ctx, sessionCountsUpTo(r.dialect), []any{namespace, int64(most)}, func(v []any) error {
		if n := int(db.Int(v[1])); n > 0 {
			s := protocol.SessionStatus(db.Str(v[0]))
			counts[s] = min(counts[s]+n, most)
		}
		return nil
	})
	return counts, wrapRead(err, "counts of sessions")
}

// sessionCountsUpTo counts each status in a subquery. Sessions without a holder are indexed by status. Held sessions
// are counted by the end of their lease: an index by status would be written at every renewal.
func sessionCountsUpTo(d db.Dialect) string {
	var parts []string
	count := func(status protocol.SessionStatus, index, where string) {
		if d.Shared {
			index = ""
		}
		parts = append(parts, fmt.Sprintf(
			"SELECT '%s', (SELECT count(*) FROM (SELECT 1 FROM sessions%s WHERE %s LIMIT $2) AS few)",
			status, index, where,
		))
	}
	unheld := func(shown, stored protocol.SessionStatus, more string) {
		count(shown, " INDEXED BY sessions_unheld", "namespace = $1 AND status = '"+string(stored)+"'"+more+
			" AND (status <> 'active' OR owner IS NULL) AND (claimed = 1 OR door = 'workflow')")
	}
	const active, expired = protocol.SessionActive, protocol.SessionExpired
	count(active, " INDEXED BY sessions_due",
		"due_at > 0 AND namespace = $1 AND status = 'active' AND owner IS NOT NULL")
	unheld(active, active, " AND claimed = 0")
	unheld(expired, active, " AND claimed = 1") // as shownStatus decides
	for _, s := range []protocol.SessionStatus{
		expired, protocol.SessionClosed, protocol.SessionFailed, protocol.SessionOrphaned,
	} {
		unheld(s, s, "")
	}
	return strings.Join(parts, " UNION ALL ")
}

// Queues and Leased return their rows in the order of the queues, so that the rows of one queue are adjacent.
func (r *reader) Queues(ctx context.Context, namespace string) ([]store.QueueStats, error) {
	return r.queueStats(ctx, namespace, queueStats)
}

func (r *reader) QueuesUpTo(ctx context.Context, namespace string, most int) ([]store.QueueStats, error) {
	return r.queueStats(ctx, namespace, func(namespace string, now int64) (string, []any) {
		return queueStatsUpTo(namespace, now, most)
	})
}

func (r *reader) Leased(ctx context.Context, namespace string) ([]store.QueueStats, error) {
	return r.queueStats(ctx, namespace, leasedStats)
}

// queueStats reads one row for each state of the tasks of a queue, and combines them.
func (r *reader) queueStats(
	ctx context.Context, namespace string, statement func(namespace string, now int64) (string, []any),
) ([]store.QueueStats, error) {
	var list []store.QueueStats
	now, err := r.Now(ctx)
	if err != nil {
		return nil, err
	}
	query, args := statement(namespace, micros(now))
	err = r.query(ctx, query, args, func(v []any) error {
		if db.Int(v[4]) == 0 {
			return nil
		}
		in, queue, kind := db.Str(v[0]), db.Str(v[1]), protocol.TaskKind(db.Str(v[2]))
		if last := len(list) - 1; last < 0 || list[last].Namespace != in || list[last].Queue != queue ||
			list[last].Kind != kind {
			list = append(list, store.QueueStats{Namespace: in, Queue: queue, Kind: kind})
		}
		s, n := &list[len(list)-1], int(db.Int(v[4]))
		switch engine.TaskState(db.Str(v[3])) {
		case engine.Ready:
			s.Ready += n
			s.OldestReady = history.Micros(db.Int(v[5]))
		case engine.Delayed:
			s.Delayed += n
		case engine.LeasedState:
			s.Leased += n
			s.Expired += int(db.Int(v[6]))
		}
		return nil
	})
	return list, wrapRead(err, "queues")
}

// queueStats counts waiting tasks from an index, without reading their rows. It reads the rows of leased tasks; there
// are at most as many of these as workers have slots.
func queueStats(namespace string, now int64) (string, []any) {
	leased, args := leasedStats(namespace, now)
	return "SELECT namespace, queue, kind, state, count(*) AS tasks, min(ready_at) AS oldest, 0 AS expired FROM tasks WHERE owner IS NULL" +
		namespaceCondition(namespace) + " GROUP BY namespace, queue, kind, state UNION ALL " + leased, args
}

// queueStatsUpTo visits the queues in the index that starts with them, and counts at most most entries of each range.
func queueStatsUpTo(namespace string, now int64, most int) (string, []any) {
	leased, args := leasedStats(namespace, now)
	const waiting = " FROM tasks AS t WHERE t.owner IS NULL AND t.namespace = $2"
	const stretch = waiting + " AND t.queue = n.queue AND t.kind = k.kind AND t.state = s.state"
	return "WITH RECURSIVE names AS (SELECT min(t.queue) AS queue" + waiting + " UNION ALL SELECT (SELECT min(t.queue)" + waiting +
		" AND t.queue > names.queue) FROM names WHERE names.queue IS NOT NULL)" +
		" SELECT CAST($2 AS text) AS namespace, n.queue AS queue, k.kind AS kind, s.state AS state," +
		" (SELECT count(*) FROM (SELECT 1" + stretch + " LIMIT $3) AS few) AS tasks, (SELECT min(t.ready_at)" + stretch + ") AS oldest, 0 AS expired" +
		" FROM names AS n CROSS JOIN (SELECT 'activity' AS kind UNION ALL SELECT 'workflow') AS k" +
		" CROSS JOIN (SELECT 'ready' AS state UNION ALL SELECT 'delayed') AS s WHERE n.queue IS NOT NULL UNION ALL " + leased, append(args, int64(most))
}

// leasedStats also counts how many of the leases have expired: their tasks are still stored as leased until the sweeper
// requeues them.
func leasedStats(namespace string, now int64) (string, []any) {
	args := []any{now}
	if namespace != "" {
		args = append(args, namespace)
	}
	return "SELECT namespace, queue, kind, 'leased' AS state, count(*) AS tasks, NULL AS oldest, sum(CASE WHEN due_at <= $1 THEN 1 ELSE 0 END) AS expired FROM (" +
		"SELECT namespace, queue, kind, due_at FROM tasks WHERE owner IS NOT NULL" + namespaceCondition(namespace) +
		" UNION ALL SELECT namespace, queue, 'workflow', due_at FROM runs WHERE owner IS NOT NULL" + namespaceCondition(namespace) +
		") AS q GROUP BY namespace, queue, kind ORDER BY 1, 2, 3", args
}

// namespaceCondition returns the condition on a namespace, or "" if no namespace is given.
func namespaceCondition(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " AND namespace = $2"
}

// RunCounts reads every run. Use RunCountsUpTo if an upper limit of the count is sufficient.
func (r *reader) RunCounts(ctx context.Context, namespace string) (map[protocol.RunStatus]int, error) {
	counts := map[protocol.RunStatus]int{}
	err := r.query(ctx, runCounts, []any{namespace}, func(v []any) error {
		counts[protocol.RunStatus(db.Str(v[0]))] = int(db.Int(v[1]))
		return nil
	})
	return counts, wrapRead(err, "counts of runs")
}

// runCounts reads the namespace's entries of the index that begins with the status, and no run.
const runCounts = "SELECT status, count(*) FROM runs WHERE namespace = $1 GROUP BY status"

func (r *reader) RunCountsUpTo(
	ctx context.Context, namespace string, most int,
) (map[protocol.RunStatus]int, error) {
	counts := map[protocol.RunStatus]int{}
	err := r.query(ctx, countsUpTo(), []any{namespace, int64(most)}, func(v []any) error {
		if n := int(db.Int(v[1])); n > 0 {
			counts[protocol.RunStatus(db.Str(v[0]))] = n
		}
		return nil
	})
	return counts, wrapRead(err, "counts of runs")
}

// countsUpTo counts each status in a subquery, using the index that starts with the status.
func countsUpTo() string {
	parts := make([]string, len(protocol.RunStatuses))
	for i, s := range protocol.RunStatuses {
		parts[i] = fmt.Sprintf(
			"SELECT '%s', (SELECT count(*) FROM (SELECT 1 FROM runs WHERE namespace = $1 AND status = '%s' LIMIT $2) AS few)", s, s,
		)
	}
	return strings.Join(parts, " UNION ALL ")
}
