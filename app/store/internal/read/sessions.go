package read

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The row of a session does not contain the states of its tasks. They are read separately, also for lists, by the same
// indexes by which the committer counts them.

// The row of a session does not contain the counts of its tasks, so they are read separately.
func (r *reader) Session(ctx context.Context, k engine.SessionKey) (s engine.Session, err error) {
	err = r.queryRow(ctx, selectAll(record.Sessions)+" WHERE namespace = $1 AND session_id = $2", []any{
		k.Namespace, k.ID,
	}, func(v []any) (err error) {
		s, _, _, err = record.ReadSession(v)
		return err
	})
	if err != nil {
		return s, wrapRead(err, "session %s", k.ID)
	}
	one := []engine.Session{s}
	err = r.countTasks(ctx, one)
	return one[0], wrapRead(err, "tasks of session %s", k.ID)
}

func (r *reader) SessionArguments(ctx context.Context, k engine.SessionKey) (string, error) {
	return r.sessionPayload(ctx, record.SessionArguments, k)
}

func (r *reader) SessionSnapshot(ctx context.Context, k engine.SessionKey) (string, error) {
	return r.sessionPayload(ctx, record.SessionSnapshots, k)
}

// sessionPayload returns the payload of a session in a table; empty if there is none.
func (r *reader) sessionPayload(ctx context.Context, t *db.Table, k engine.SessionKey) (blob string, err error) {
	err = r.queryRow(ctx, "SELECT payload FROM "+t.Name+" WHERE namespace = $1 AND session_id = $2", []any{
		k.Namespace, k.ID,
	}, func(v []any) error {
		blob = db.Str(v[0])
		return nil
	})
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return blob, wrapRead(err, "%s of session %s", t.Name, k.ID)
}

// Sessions lists sessions by their last change, newest first.
func (r *reader) Sessions(ctx context.Context, q store.SessionQuery) ([]engine.Session, error) {
	db := r.list(ctx, q.Limit).Order("updated_at DESC, session_id DESC").Where("(claimed = 1 OR door = 'workflow')")
	for column, v := range map[string]string{
		"namespace": q.Namespace, "owner": q.Owner, "queue": q.Queue, "workflow_id": q.Workflow,
		"prepare_for": q.PreparedBy,
	} {
		if v != "" {
			db = db.Where(column+" = ?", v)
		}
	}
	// Filter by the displayed status and not by the column: a session whose owner has died is displayed as expired.
	if len(q.Statuses) > 0 {
		db = db.Where(shownStatus+" IN ?", q.Statuses)
	}
	if q.Text != "" {
		db = db.Where(`lower(session_id) LIKE ? ESCAPE '\'`, like(q.Text))
	}
	// A page continues after the last row and not at an offset, so that rows that move between two requests are neither
	// repeated nor omitted.
	if q.AfterID != "" {
		at := q.AfterUpdated.Micros()
		db = db.Where("(updated_at < ? OR (updated_at = ? AND session_id < ?))", at, at, q.AfterID)
	}
	return r.findSessions(ctx, db)
}

func (r *reader) SessionsByID(ctx context.Context, namespace string, ids []string) ([]engine.Session, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	return r.findSessions(ctx, r.list(ctx, len(ids)).Where("namespace = ? AND session_id IN ?", namespace, ids))
}

// findSessions reads the sessions of a query, with the counts of their tasks.
func (r *reader) findSessions(ctx context.Context, db *gorm.DB) ([]engine.Session, error) {
	var rows []SessionModel
	if err := db.Find(&rows).Error; err != nil {
		return nil, wrapRead(err, "sessions")
	}
	list := make([]engine.Session, len(rows))
	for i, m := range rows {
		s, _, _, err := record.ReadSession([]any{
			m.Namespace, m.SessionID, m.Origin, value(m.WorkflowID), m.Status, value(
				m.Owner,
			), m.Epoch, value(m.LeaseUntil),
			value(m.DueAt), m.UpdatedAt, m.Queue, m.Claimed, m.Terminal, m.Word, m.Body,
		})
		if err != nil {
			return nil, err
		}
		list[i] = s
	}
	return list, r.countTasks(ctx, list)
}

// shownStatus is engine.Session.Shown as an SQL expression.
const shownStatus = "CASE WHEN status = 'active' AND owner IS NULL AND claimed = 1 THEN 'expired' ELSE status END"

// SessionTasks lists leased tasks first, so that a limit does not omit them.
func (r *reader) SessionTasks(ctx context.Context, k engine.SessionKey, limit int) ([]engine.Activity, error) {
	var list []engine.Activity
	args := r.dialect.Keys(db.NewRowset(record.Sessions.Key()).S(k.Namespace).S(k.ID))
	err := r.query(ctx, fmt.Sprint(r.st.listIn, limit), args, func(v []any) error {
		a, err := record.ReadActivity(db.Str(v[0]), k.Namespace, db.Int(v[1]), db.Str(v[2]))
		list = append(list, a)
		return err
	})
	return list, wrapRead(err, "tasks of session %s", k.ID)
}

// countTasks sets the members of sessions that are computed from tasks: the counts, and the time of the last activity.
func (r *reader) countTasks(ctx context.Context, list []engine.Session) error {
	if len(list) == 0 {
		return nil
	}
	at := make(map[engine.SessionKey]*engine.Session, len(list))
	keys := db.NewRowset(record.Sessions.Key())
	for i := range list {
		at[list[i].Key()] = &list[i]
		keys.S(list[i].Namespace).S(list[i].ID)
	}
	return r.query(ctx, r.st.tasksIn, r.dialect.Keys(keys), func(v []any) error {
		s := at[engine.SessionKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}]
		switch {
		case s == nil:
			return nil
		case v[3] == nil:
			s.Ready = int(db.Int(v[2]))
			return nil
		}
		a, err := record.ReadActivity("", s.Namespace, 0, db.Str(v[3]))
		record.Leased(s, a.Epoch)
		if at := record.Sign(&a); a.Epoch == s.Epoch && a.Owner == s.Owner && at.After(s.LastActivity.Time) &&
			at.Before(s.LeaseUntil.Time) {
			s.LastActivity = at
		}
		return err
	})
}

// LastActivity reads the attempts that ended in a session since the time in its row.
func (r *reader) LastActivity(ctx context.Context, s *engine.Session) (last history.Time, err error) {
	last = s.LastActivity
	since := s.LastActivity.Micros() - record.LeadTime.Microseconds()
	err = r.query(ctx, r.st.lastEnded, []any{record.SessionKey(s.Key()), since}, func(v []any) error {
		return record.EachEnded(v, func(epoch int64, worker string, at history.Time) {
			if epoch == s.Epoch && worker == s.Owner && at.After(last.Time) {
				last = at
			}
		})
	})
	return last, wrapRead(err, "last activity in session %s", s.ID)
}

// The newest entries are read from the end of the index and then reversed.
func (r *reader) Timeline(
	ctx context.Context, k engine.SessionKey, before int64, limit int,
) ([]store.TimelineEntry, error) {
	if before <= 0 {
		before = 1 << 62
	}
	var list []store.TimelineEntry
	const query = "SELECT id, body FROM session_events WHERE namespace = $1 AND session_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4"
	err := r.query(ctx, query, []any{k.Namespace, k.ID, before, int64(limit)}, func(v []any) error {
		e, err := record.Undocument[protocol.SessionEvent](db.Str(v[1]))
		list = append(list, store.TimelineEntry{Number: db.Int(v[0]), SessionEvent: e})
		return err
	})
	slices.Reverse(list)
	return list, wrapRead(err, "timeline of session %s", k.ID)
}

// SessionHistory reads leading rows (see record.LeadTime), latest first, and the rows that follow them, until no unread
// leading row can lead to a later event than the requested ones.
func (r *reader) SessionHistory(
	ctx context.Context, k engine.SessionKey, before store.RunEvent, limit int,
) (list []store.RunEvent, err error) {
	session := record.SessionKey(k)
	at := cmp.Or(before.At.Micros(), 1<<62)
	cursor := []any{at + 1, "", int64(0)} // no later leading row leads to events before this position
	seen := map[string]bool{}             // rows, by run and sequence
	for more := true; more; {
		leads, last := db.NewRowset([]db.Column{db.Text("session"), db.Text("run_id"), db.Num("seq")}), int64(0)
		const query = "SELECT run_id, seq, at FROM events WHERE session = $1 AND follows IS NULL" +
			" AND (at, run_id, seq) < ($2, $3, $4) ORDER BY at DESC, run_id DESC, seq DESC LIMIT $5"
		err := r.query(ctx, query, append([]any{session}, append(cursor, int64(limit)+1)...), func(v []any) error {
			leads.S(session).S(db.Str(v[0])).I(db.Int(v[1]))
			last = db.Int(v[2])
			cursor = []any{last, db.Str(v[0]), db.Int(v[1])}
			return nil
		})
		if err != nil {
			return nil, wrapRead(err, "attempts of session %s", k.ID)
		}
		more = leads.N > limit
		if list, err = r.addFollowingEnds(ctx, leads, before, list, seen); err != nil {
			return nil, wrapRead(err, "attempts of session %s", k.ID)
		}
		known := 0
		for i := range list {
			if list[i].At.Micros() >= last+record.LeadTime.Microseconds() {
				known++
			}
		}
		more = more && known < limit
	}
	slices.SortFunc(list, laterEvent)
	return list[:min(len(list), limit)], nil
}

// laterEvent compares two events by their order in the history of a session, latest first.
func laterEvent(x, y store.RunEvent) int {
	return cmp.Or(y.At.Compare(x.At.Time), cmp.Compare(y.Run, x.Run), cmp.Compare(y.Seq, x.Seq))
}

// addFollowingEnds adds events that ended attempts in a session and are in rows that follow leading rows. It adds each
// event once, and only events before a given one.
func (r *reader) addFollowingEnds(
	ctx context.Context, leads *db.Rowset, before store.RunEvent, list []store.RunEvent, seen map[string]bool,
) ([]store.RunEvent, error) {
	if leads.Empty() {
		return list, nil
	}
	err := r.query(ctx, r.st.behind, r.dialect.Keys(leads), func(v []any) error {
		p, err := record.ReadEvents(v)
		row := engine.StepID(p.Run, p.First)
		if err != nil || seen[row] {
			return err
		}
		seen[row] = true
		return p.Each(0, p.Last(), func(e history.Event, _ int, ended bool) error {
			one := store.RunEvent{Run: p.Run, WorkflowID: db.Str(v[10]), Event: e}
			if ended && (before.At.IsZero() || laterEvent(one, before) > 0) {
				list = append(list, one)
			}
			return nil
		})
	})
	return list, err
}

// Removable excludes open sessions that a workflow started: the end of the workflow ends them.
func (r *reader) Removable(ctx context.Context, now, kept time.Time, limit int) ([]engine.SessionKey, error) {
	var list []engine.SessionKey
	query := "SELECT namespace, session_id FROM sessions AS s WHERE (lease_until IS NULL OR lease_until <= $1)" +
		" AND (terminal = 1 AND updated_at < $2 OR terminal = 0 AND door <> 'workflow')" +
		" AND NOT EXISTS (SELECT 1 FROM tasks AS t WHERE t.namespace = s.namespace AND t.session_id = s.session_id" +
		" AND t.owner IS NULL) AND NOT EXISTS (SELECT 1 FROM " + record.Owners(r.dialect) + " CROSS JOIN tasks AS t" +
		" WHERE t.namespace = s.namespace AND t.owner = o.value AND t.session_id = s.session_id)" +
		" ORDER BY updated_at, namespace, session_id LIMIT $3"
	err := r.query(ctx, query, []any{micros(now), micros(kept), int64(limit)}, func(v []any) error {
		list = append(list, engine.SessionKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])})
		return nil
	})
	return list, wrapRead(err, "removable sessions")
}

// The last entry counts: a timeline is retained completely while any of its entries is recent.
func (r *reader) Forgettable(
	ctx context.Context, namespace string, before time.Time, limit int,
) ([]engine.SessionKey, error) {
	var list []engine.SessionKey
	const query = "SELECT DISTINCT e.session_id FROM session_events AS e WHERE e.namespace = $1 AND e.at < $2 AND NOT EXISTS" +
		" (SELECT 1 FROM sessions AS s WHERE s.namespace = e.namespace AND s.session_id = e.session_id) AND NOT EXISTS" +
		" (SELECT 1 FROM session_events AS l WHERE l.namespace = e.namespace AND l.session_id = e.session_id AND l.at >= $2) LIMIT $3"
	err := r.query(ctx, query, []any{namespace, micros(before), int64(limit)}, func(v []any) error {
		list = append(list, engine.SessionKey{Namespace: namespace, ID: db.Str(v[0])})
		return nil
	})
	return list, wrapRead(err, "old timelines of namespace %s", namespace)
}
