package sqldb

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// What is read here is asked again every few seconds by pages that stay open, over tables that may have millions of
// rows. So each query is written for one index, and a condition that would keep a database from it is left out where it
// says nothing.

// Sessions that were never claimed and belong to no workflow are rows without anything to show, and are left out.
func (r *reader) SessionCounts(ctx context.Context, namespace string) (map[protocol.SessionStatus]int, error) {
	counts := map[protocol.SessionStatus]int{}
	query, args := sessionCounts(namespace)
	err := r.query(ctx, query, args, func(v []any) error {
		counts[protocol.SessionStatus(str(v[0]))] = int(integer(v[1]))
		return nil
	})
	return counts, wrap(err, "counts of sessions")
}

// sessionCounts names the namespace only where one is meant: a condition that holds for all of them as well would keep
// a database from going to the rows of one.
func sessionCounts(namespace string) (query string, args []any) {
	query = "SELECT " + shownStatus + ", count(*) FROM sessions WHERE (claimed = 1 OR door = 'workflow')"
	if namespace != "" {
		query, args = query+" AND namespace = $1", []any{namespace}
	}
	return query + " GROUP BY 1", args
}

// The newest are wanted first and shown last: they are read from the end and turned around.
func (r *reader) Timeline(
	ctx context.Context, k engine.SessionKey, before int64, limit int,
) ([]store.TimelineEntry, error) {
	if before <= 0 {
		before = 1 << 62
	}
	var list []store.TimelineEntry
	const query = "SELECT id, body FROM session_events WHERE namespace = $1 AND session_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4"
	err := r.query(ctx, query, []any{k.Namespace, k.ID, before, int64(limit)}, func(v []any) error {
		e, err := undocument[protocol.SessionEvent](str(v[1]))
		list = append(list, store.TimelineEntry{Number: integer(v[0]), SessionEvent: e})
		return err
	})
	slices.Reverse(list)
	return list, wrap(err, "timeline of session %s", k.ID)
}

// What somebody is at comes first: with a limit, those are the ones that must not be missed.
func (r *reader) SessionTasks(ctx context.Context, k engine.SessionKey, limit int) ([]engine.Activity, error) {
	var list []engine.Activity
	args := r.dialect.keys(newRowset(sessionsTable.key()).s(k.Namespace).s(k.ID))
	err := r.query(ctx, fmt.Sprint(r.st.listIn, limit), args, func(v []any) error {
		a, err := readActivity(str(v[0]), k.Namespace, integer(v[1]), str(v[2]))
		list = append(list, a)
		return err
	})
	return list, wrap(err, "tasks of session %s", k.ID)
}

// Activities have rows, leased workflow tasks stand in their runs; both indexes of owners hold what is leased and
// nothing else.
func (r *reader) Owned(ctx context.Context, k engine.WorkerKey, incarnation string) ([]store.TaskRef, error) {
	var list []store.TaskRef
	const tasks = "SELECT run_id, seq, body FROM tasks WHERE namespace = $1 AND owner = $2 ORDER BY run_id, seq"
	err := r.query(ctx, tasks, []any{k.Namespace, k.ID}, func(v []any) error {
		a, err := readActivity(str(v[0]), k.Namespace, integer(v[1]), str(v[2]))
		if err == nil && (incarnation == "" || a.Incarnation == incarnation) {
			list = append(list, store.TaskRef{
				Kind: protocol.KindActivity, Run: a.RunID, Seq: a.Seq, Delivery: a.Delivery, Session: a.SessionID, PollID: a.PollID,
				Incarnation: a.Incarnation, Again: a.Again,
				LeasedAt: a.LeasedAt,
			})
		}
		return err
	})
	if err != nil {
		return nil, wrap(err, "activities of worker %s", k.ID)
	}
	runs := selects(runsTable) + " WHERE namespace = $1 AND owner = $2 ORDER BY run_id"
	err = r.query(ctx, runs, []any{k.Namespace, k.ID}, func(v []any) error {
		h, err := readHead(v)
		if err == nil && h.Task != nil && (incarnation == "" || h.Task.Incarnation == incarnation) {
			list = append(list, store.TaskRef{
				Kind: protocol.KindWorkflow, Run: h.ID, Seq: h.Task.Number, Delivery: h.Task.Delivery, PollID: h.Task.PollID,
				Incarnation: h.Task.Incarnation, Again: h.Task.Again,
				LeasedAt: h.Task.LeasedAt,
			})
		}
		return err
	})
	return list, wrap(err, "workflow tasks of worker %s", k.ID)
}

func (r *reader) Holdings(ctx context.Context, namespace string) (map[string]store.Holding, error) {
	now, err := r.Now(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]store.Holding{}
	const query = "SELECT owner, count(*), 0, 0 FROM tasks WHERE namespace = $1 AND owner IS NOT NULL GROUP BY owner" +
		" UNION ALL SELECT owner, count(*), count(*), 0 FROM runs WHERE namespace = $1 AND owner IS NOT NULL GROUP BY owner" +
		" UNION ALL SELECT owner, 0, 0, count(*) FROM sessions WHERE namespace = $1 AND owner IS NOT NULL AND status = 'active' AND lease_until > $2 GROUP BY owner"
	err = r.query(ctx, query, []any{namespace, micros(now)}, func(v []any) error {
		h := all[str(v[0])]
		h.Leases += int(integer(v[1]))
		h.WorkflowTasks += int(integer(v[2]))
		h.Sessions += int(integer(v[3]))
		all[str(v[0])] = h
		return nil
	})
	return all, wrap(err, "holdings")
}

// Each part is the beginning of one index and ends by itself. As one condition over all of them it would be a look
// through five tables, each time something is due.
func (r *reader) Due(ctx context.Context, now time.Time, limit int) ([]store.Due, error) {
	var list []store.Due
	const query = "SELECT * FROM (SELECT 'run' AS kind, due_at, run_id, 0 AS seq, '' AS namespace, '' AS session FROM runs" +
		" WHERE due_at <= $1 ORDER BY due_at LIMIT $2) AS r" +
		" UNION ALL SELECT * FROM (SELECT 'activity', due_at, run_id, seq, '', '' FROM tasks WHERE due_at <= $1 ORDER BY due_at LIMIT $2) AS t" +
		" UNION ALL SELECT * FROM (SELECT kind, due_at, run_id, seq, '', '' FROM items WHERE due_at <= $1 ORDER BY due_at LIMIT $2) AS i" +
		" UNION ALL SELECT * FROM (SELECT 'session', due_at, '', 0, namespace, session_id FROM sessions WHERE due_at <= $1 ORDER BY due_at LIMIT $2) AS s" +
		" UNION ALL SELECT * FROM (SELECT 'schedule', due_at, '', 0, namespace, schedule_id FROM schedules WHERE due_at <= $1 ORDER BY due_at LIMIT $2) AS d" +
		" ORDER BY 2 LIMIT $2"
	err := r.query(ctx, query, []any{micros(now), int64(limit)}, func(v []any) error {
		if str(v[0]) == string(store.DueSchedule) {
			list = append(list, store.Due{
				Kind: store.DueSchedule, At: time.UnixMicro(integer(v[1])).UTC(),
				Schedule: engine.ScheduleKey{Namespace: str(v[4]), ID: str(v[5])},
			})
			return nil
		}
		list = append(list, store.Due{
			Kind: store.DueKind(str(v[0])), At: time.UnixMicro(integer(v[1])).UTC(), Run: str(v[2]), Seq: integer(v[3]),
			Session: engine.SessionKey{Namespace: str(v[4]), ID: str(v[5])},
		})
		return nil
	})
	return list, wrap(err, "what is due")
}

// Each part is the first entry of an index. The server's time comes along, so that the two are of one clock.
func (r *reader) NextDue(ctx context.Context, after time.Time) (next, now time.Time, err error) {
	query := "SELECT min(due_at) AS at FROM runs WHERE due_at > $1 UNION ALL SELECT min(due_at) FROM tasks WHERE due_at > $1" +
		" UNION ALL SELECT min(due_at) FROM items WHERE due_at > $1 UNION ALL SELECT min(due_at) FROM sessions WHERE due_at > $1" +
		" UNION ALL SELECT min(due_at) FROM schedules WHERE due_at > $1"
	query = "SELECT at, 0 FROM (" + query + ") AS due"
	if r.dialect.Shared {
		query += " UNION ALL SELECT " + clockSQL + ", 1"
	} else {
		now = r.clock.now()
	}
	least := int64(0)
	err = r.query(ctx, query, []any{micros(after)}, func(v []any) error {
		switch at := integer(v[0]); {
		case integer(v[1]) == 1:
			now = r.clock.at(at)
		case at > 0 && (least == 0 || at < least):
			least = at
		}
		return nil
	})
	if least > 0 {
		next = time.UnixMicro(least).UTC()
	}
	return next, now, wrap(err, "next due time")
}

// Removable leaves out sessions of the workflow door that have not ended: they live as long as their workflow.
func (r *reader) Removable(ctx context.Context, now, kept time.Time, limit int) ([]engine.SessionKey, error) {
	var list []engine.SessionKey
	query := "SELECT namespace, session_id FROM sessions AS s WHERE (lease_until IS NULL OR lease_until <= $1)" +
		" AND (terminal = 1 AND updated_at < $2 OR terminal = 0 AND door <> 'workflow')" +
		" AND NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.namespace = s.namespace AND t.session_id = s.session_id" +
		" AND t.owner IS NULL) AND NOT EXISTS (SELECT 1 FROM " + owners(r.dialect) + " CROSS JOIN tasks AS t" +
		" WHERE t.namespace = s.namespace AND t.owner = o.value AND t.session_id = s.session_id)" +
		" ORDER BY updated_at, namespace, session_id LIMIT $3"
	err := r.query(ctx, query, []any{micros(now), micros(kept), int64(limit)}, func(v []any) error {
		list = append(list, engine.SessionKey{Namespace: str(v[0]), ID: str(v[1])})
		return nil
	})
	return list, wrap(err, "removable sessions")
}

// Both of these come in the order of their queues, so that lines of one queue stand together.
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

// queueStats reads a line for each state of the tasks of a queue, and makes one of them.
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
		if integer(v[4]) == 0 {
			return nil
		}
		in, queue, kind := str(v[0]), str(v[1]), protocol.TaskKind(str(v[2]))
		if last := len(list) - 1; last < 0 || list[last].Namespace != in || list[last].Queue != queue ||
			list[last].Kind != kind {
			list = append(list, store.QueueStats{Namespace: in, Queue: queue, Kind: kind})
		}
		s, n := &list[len(list)-1], int(integer(v[4]))
		switch engine.TaskState(str(v[3])) {
		case engine.Ready:
			s.Ready += n
			s.OldestReady = history.Micros(integer(v[5]))
		case engine.Delayed:
			s.Delayed += n
		case engine.LeasedState:
			s.Leased += n
			s.Expired += int(integer(v[6]))
		}
		return nil
	})
	return list, wrap(err, "queues")
}

// queueStats reads no row of a task that waits, only its entry in an index; and of those that are leased, which are
// no more than workers have slots, their rows.
func queueStats(namespace string, now int64) (string, []any) {
	leased, args := leasedStats(namespace, now)
	return "SELECT namespace, queue, kind, state, count(*) AS tasks, min(ready_at) AS oldest, 0 AS expired FROM tasks WHERE owner IS NULL" +
		only(namespace) + " GROUP BY namespace, queue, kind, state UNION ALL " + leased, args
}

// queueStatsUpTo goes from queue to queue by the index that begins with them, and from each of its stretches counts so
// many entries.
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

// A lease whose time is over is counted as such: the sweeper has not been there yet, and somebody looks at the
// number now.
func leasedStats(namespace string, now int64) (string, []any) {
	args := []any{now}
	if namespace != "" {
		args = append(args, namespace)
	}
	return "SELECT namespace, queue, kind, 'leased' AS state, count(*) AS tasks, NULL AS oldest, sum(CASE WHEN due_at <= $1 THEN 1 ELSE 0 END) AS expired FROM (" +
		"SELECT namespace, queue, kind, due_at FROM tasks WHERE owner IS NOT NULL" + only(namespace) +
		" UNION ALL SELECT namespace, queue, 'workflow', due_at FROM runs WHERE owner IS NOT NULL" + only(namespace) +
		") AS q GROUP BY namespace, queue, kind ORDER BY 1, 2, 3", args
}

// only names a namespace only where one is meant, as sessionCounts does.
func only(namespace string) string {
	if namespace == "" {
		return ""
	}
	return " AND namespace = $2"
}

// Exact, and so as dear as there are runs; RunCountsUpTo is for whoever can do with "many".
func (r *reader) RunCounts(ctx context.Context, namespace string) (map[protocol.RunStatus]int, error) {
	counts := map[protocol.RunStatus]int{}
	err := r.query(ctx, runCounts, []any{namespace}, func(v []any) error {
		counts[protocol.RunStatus(str(v[0]))] = int(integer(v[1]))
		return nil
	})
	return counts, wrap(err, "counts of runs")
}

// runCounts reads the namespace's entries of the index that begins with the status, and no run.
const runCounts = "SELECT status, count(*) FROM runs WHERE namespace = $1 GROUP BY status"

func (r *reader) DueActivities(
	ctx context.Context, namespace string, now time.Time, limit int,
) ([]store.Due, error) {
	var list []store.Due
	err := r.query(ctx, dueActivities, []any{micros(now), namespace, int64(limit)}, func(v []any) error {
		list = append(list, store.Due{
			Kind: store.DueActivity, At: time.UnixMicro(integer(v[0])).UTC(), Run: str(v[1]), Seq: integer(v[2]),
		})
		return nil
	})
	return list, wrap(err, "due activities")
}

// dueActivities leaves out ready workflow tasks, which stand in the same table as step 0.
const dueActivities = "SELECT due_at, run_id, seq FROM tasks WHERE due_at <= $1 AND namespace = $2 AND seq > 0 ORDER BY due_at, run_id, seq LIMIT $3"

// The state of a task is in the document, so the index has its words as a condition and the row is looked at once
// more.
func (r *reader) Quarantined(ctx context.Context, namespace string, limit int) ([]engine.Head, error) {
	var list []engine.Head
	err := r.query(ctx, quarantined(r.dialect), []any{namespace}, func(v []any) error {
		h, err := readHead(v)
		// The words may stand in a memo too.
		if err == nil && h.Task != nil && h.Task.State == engine.Quarantined {
			if list = append(list, h); len(list) == limit {
				return errEnough
			}
		}
		return err
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return list, wrap(err, "quarantined runs")
}

// quarantined has the condition of runs_quarantined, word by word, so that no other run is read.
func quarantined(d Dialect) string {
	find := "instr"
	if d.Shared {
		find = "strpos"
	}
	return selects(runsTable) + " WHERE namespace = $1 AND status = 'running' AND owner IS NULL AND " + find +
		"(state, '\"state\":\"quarantined\"') > 0 ORDER BY started_at DESC, run_id DESC"
}

func (r *reader) RunCountsUpTo(
	ctx context.Context, namespace string, most int,
) (map[protocol.RunStatus]int, error) {
	counts := map[protocol.RunStatus]int{}
	err := r.query(ctx, countsUpTo(), []any{namespace, int64(most)}, func(v []any) error {
		if n := int(integer(v[1])); n > 0 {
			counts[protocol.RunStatus(str(v[0]))] = n
		}
		return nil
	})
	return counts, wrap(err, "counts of runs")
}

// countsUpTo counts each status by itself, within the index that begins with it.
func countsUpTo() string {
	parts := make([]string, len(protocol.RunStatuses))
	for i, s := range protocol.RunStatuses {
		parts[i] = fmt.Sprintf(
			"SELECT '%s', (SELECT count(*) FROM (SELECT 1 FROM runs WHERE namespace = $1 AND status = '%s' LIMIT $2) AS few)", s, s,
		)
	}
	return strings.Join(parts, " UNION ALL ")
}
