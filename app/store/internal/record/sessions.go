package record

import (
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/shared/history"
)

// Counts that are missing from a session's row are derived from the rows of its tasks (see engine.SessionCounts). These
// rows change only while the session's row is locked, so counts taken under that lock remain correct for the whole
// batch.

// MostReady is the maximum number of ready tasks of a session that are counted on a shared database, where each batch
// counts again. Callers need only know whether there are any.
const MostReady = 64

// The leased tasks of a session are found by their owners: the session's holder owns most of them, and an index entry
// by session would be one more write for each task. So the index by session contains only tasks without an owner. The
// session's row lists former owners that may still have attempts in it (see AddSession).

// Owners returns a table expression o of the workers that may have tasks of the session s, each once.
func Owners(d db.Dialect) string {
	if d.Shared {
		return "LATERAL (SELECT s.owner AS value UNION ALL SELECT json_array_elements_text(s.behind::json)) AS o"
	}
	return "json_each(CASE WHEN s.behind IS NULL THEN json_array(s.owner) ELSE json_insert(s.behind, '$[#]', s.owner) END) AS o"
}

// leasedTasks returns a query of columns of the tasks t that are leased in sessions.
func leasedTasks(d db.Dialect, columns string) string {
	const in = "t.namespace = s.namespace AND t.owner = o.value AND t.session_id = s.session_id"
	of := fmt.Sprintf("%s AS k CROSS JOIN sessions AS s ON s.namespace = k.namespace AND s.session_id = k.session_id"+
		" CROSS JOIN %s", d.List(Sessions.Key()), Owners(d))
	if !d.Shared { // as in db.Dialect.ProbeIn
		return fmt.Sprintf("SELECT %s FROM %s CROSS JOIN tasks AS t ON %s", columns, of, in)
	}
	of = fmt.Sprintf("%s AS k CROSS JOIN LATERAL (SELECT t.namespace, t.session_id, t.owner, t.behind FROM sessions AS t"+
		" WHERE t.namespace = k.namespace AND t.session_id = k.session_id OFFSET 0) AS s CROSS JOIN %s",
		d.List(Sessions.Key()), Owners(d))
	return fmt.Sprintf("SELECT p.* FROM %s CROSS JOIN LATERAL (SELECT %s FROM tasks AS t WHERE %s OFFSET 0) AS p", of, columns,
		in)
}

// CountTasks returns the query that counts the ready tasks of sessions and lists their leased tasks: only the epochs,
// or with bodies the whole tasks.
func CountTasks(d db.Dialect, bodies bool) string {
	key := []db.Column{db.Text("namespace"), db.Text("session_id")}
	epoch, most := "coalesce(json_extract(t.body, '$.epoch'), 0)", ""
	if d.Shared {
		epoch, most = "coalesce((t.body::json->>'epoch')::bigint, 0)", fmt.Sprint("LIMIT ", MostReady)
	}
	if bodies {
		epoch, most = "t.body", ""
	}
	leased := leasedTasks(d, "t.namespace, t.session_id, "+epoch+" AS what")
	ready := d.Probe(key, "t.namespace, t.session_id", "tasks", "t.owner IS NULL AND t.route IS NOT NULL", most)
	return db.ReuseParameter(d, "SELECT r.namespace, r.session_id, count(*), NULL FROM ("+ready+
		") AS r GROUP BY r.namespace, r.session_id"+
		" UNION ALL SELECT l.namespace, l.session_id, 0, l.what FROM ("+leased+") AS l")
}

// OpenIn returns a query of columns of the open tasks t in sessions, of all owners.
func OpenIn(d db.Dialect, columns string) string {
	unleased := d.Probe(Sessions.Key(), columns, "tasks", "t.owner IS NULL", "")
	return db.ReuseParameter(d, unleased+" UNION ALL "+leasedTasks(d, columns))
}

// EachEnded calls f for each attempt that ended in a row of events, with its epoch, its worker and the time when it
// ended.
func EachEnded(v []any, f func(epoch int64, worker string, at history.Time)) error {
	p, err := ReadEvents(v)
	if err != nil {
		return err
	}
	return p.Each(0, p.Last(), func(e history.Event, _ int, ended bool) error {
		if !ended {
			return nil
		}
		_, a := history.EndedAttempt(e.Data)
		f(a.SessionEpoch, a.Worker, EndedAt(e))
		return nil
	})
}

// EndedAt returns the time of the worker's last activity in an attempt that ended with e.
func EndedAt(e history.Event) history.Time {
	if d, ok := e.Data.(*history.ActivityCompleted); ok && !d.RecordedAt.IsZero() {
		return d.RecordedAt
	}
	return e.At
}

// Leased adds one leased task of the given epoch to the counts of a session.
func Leased(s *engine.Session, epoch int64) {
	switch {
	case epoch == s.Epoch:
		s.Active++
	case s.StaleAttempts == nil:
		s.StaleAttempts = map[int64]int{epoch: 1}
	default:
		s.StaleAttempts[epoch]++
	}
}

// Sign returns the last time at which the worker showed that an attempt is alive: its last lease renewal, or the start
// of its lease.
func Sign(a *engine.Activity) history.Time {
	return history.At(a.Until.Add(-time.Duration(a.Length) * time.Microsecond))
}
