package sqldb

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/history"
)

// What a session's row does not count is counted from the rows of its tasks: see engine.Tally. Those change under the
// lock of the session's row alone, so what is counted behind that lock is true for as long as the batch lasts.

// mostReady is the most ready tasks of a session that are counted on a shared database, where each batch counts anew.
// Nobody asks how many there are, only whether there are any.
const mostReady = 64

// What is leased in a session is found by who has it, since most is its holder's and an entry by session would be one
// more to write at each step. So the index by session has those tasks alone that nobody has. Who held the session
// before and may have attempts in it still stands in its row (see session.behind).

// owners is a table expression o of the workers that may have tasks of the session s, each once.
func owners(d Dialect) string {
	if d.Shared {
		return "LATERAL (SELECT s.owner AS value UNION ALL SELECT json_array_elements_text(s.behind::json)) AS o"
	}
	return "json_each(CASE WHEN s.behind IS NULL THEN json_array(s.owner) ELSE json_insert(s.behind, '$[#]', s.owner) END) AS o"
}

// leasedOf selects columns of the tasks t that are leased in sessions.
func leasedOf(d Dialect, columns string) string {
	const in = "t.namespace = s.namespace AND t.owner = o.value AND t.session_id = s.session_id"
	of := fmt.Sprintf("%s AS k CROSS JOIN sessions AS s ON s.namespace = k.namespace AND s.session_id = k.session_id"+
		" CROSS JOIN %s", d.list(sessionsTable.key()), owners(d))
	if !d.Shared { // as in probeIn
		return fmt.Sprintf("SELECT %s FROM %s CROSS JOIN tasks AS t ON %s", columns, of, in)
	}
	of = fmt.Sprintf("%s AS k CROSS JOIN LATERAL (SELECT t.namespace, t.session_id, t.owner, t.behind FROM sessions AS t"+
		" WHERE t.namespace = k.namespace AND t.session_id = k.session_id OFFSET 0) AS s CROSS JOIN %s",
		d.list(sessionsTable.key()), owners(d))
	return fmt.Sprintf("SELECT p.* FROM %s CROSS JOIN LATERAL (SELECT %s FROM tasks AS t WHERE %s OFFSET 0) AS p", of, columns,
		in)
}

// tallies counts the ready tasks of sessions, and lists what is leased in them: by its epoch, or with bodies whole.
func tallies(d Dialect, bodies bool) string {
	key := []column{text("namespace"), text("session_id")}
	epoch, most := "coalesce(json_extract(t.body, '$.epoch'), 0)", ""
	if d.Shared {
		epoch, most = "coalesce((t.body::json->>'epoch')::bigint, 0)", fmt.Sprint("LIMIT ", mostReady)
	}
	if bodies {
		epoch, most = "t.body", ""
	}
	leased := leasedOf(d, "t.namespace, t.session_id, "+epoch+" AS what")
	ready := d.probe(key, "t.namespace, t.session_id", "tasks", "t.owner IS NULL AND t.route IS NOT NULL", most)
	return once(d, "SELECT r.namespace, r.session_id, count(*), NULL FROM ("+ready+
		") AS r GROUP BY r.namespace, r.session_id"+
		" UNION ALL SELECT l.namespace, l.session_id, 0, l.what FROM ("+leased+") AS l")
}

// openIn selects columns of the tasks t that are open in sessions, whoever has them.
func openIn(d Dialect, columns string) string {
	return once(d, d.probe(sessionsTable.key(), columns, "tasks", "t.owner IS NULL", "")+" UNION ALL "+leasedOf(d, columns))
}

// once has a statement that asks for the same keys in several places take them once.
func once(d Dialect, statement string) string {
	if d.Shared { // its parameters have numbers
		return statement
	}
	return strings.ReplaceAll(statement, "?", "?1")
}

// leaveBehind notes that the holder of a session is another from now on, or nobody: what the former one has in it is
// found by its name alone.
func (s *session) leaveBehind(owner string) {
	if s.Session != nil && s.Owner != "" && s.Owner != owner && !slices.Contains(s.behind, s.Owner) {
		s.behind = append(slices.Clip(s.behind), s.Owner)
	}
	if i := slices.Index(s.behind, owner); i >= 0 {
		s.behind = slices.Delete(slices.Clone(s.behind), i, i+1)
	}
}

// settleBehind forgets former holders that have nothing in the session any more: when nothing runs in it, or only what
// runs under the epoch of its holder.
func (s *session) settleBehind() {
	if len(s.Strays) == 0 && (s.Owner != "" || s.Active == 0) {
		s.behind = nil
	}
}

// leased counts a task that somebody has under an epoch of the session.
func leased(s *engine.Session, epoch int64) {
	switch {
	case epoch == s.Epoch:
		s.Active++
	case s.Strays == nil:
		s.Strays = map[int64]int{epoch: 1}
	default:
		s.Strays[epoch]++
	}
}

// sign is when the holder of an attempt was last heard of in it: when it was leased, or the lease renewed.
func sign(a *engine.Activity) history.Time {
	return history.At(a.Until.Add(-time.Duration(a.Length) * time.Microsecond))
}

// countTasks is the call that counts the tasks of sessions which the batch has just loaded.
func (b *batch) countTasks(keys *rowset) []*Call {
	if keys.empty() {
		return nil
	}
	most := 0
	if b.s.cfg.Dialect.Shared {
		most = mostReady
	}
	return []*Call{{Stmt: b.s.st.tallies, Args: b.s.cfg.Dialect.keys(keys), Row: func(v []any) error {
		s := b.sessions[engine.SessionKey{Namespace: str(v[0]), ID: str(v[1])}]
		switch {
		case s == nil || s.Session == nil:
		case v[3] == nil:
			s.Ready, s.Many = int(integer(v[2])), int(integer(v[2])) == most
		default:
			leased(s.Session, integer(v[3]))
		}
		return nil
	}}}
}

// routed notes where the ready tasks of the loaded sessions wait: where their words say, unless their caps are
// full. Tasks of sessions that were loaded with their workflows are counted first.
func (b *batch) routed() error {
	missing := newRowset(sessionsTable.key())
	for k, s := range b.sessions {
		if s.row != nil && !s.counted {
			s.counted = true
			missing.s(k.Namespace).s(k.ID)
		}
	}
	if err := b.send(b.countTasks(missing)...); err != nil {
		return err
	}
	for _, s := range b.sessions {
		if s.row != nil && s.route == "" {
			s.route = s.Route(s.word)
		}
	}
	return nil
}

// heardIn reads when the holders of sessions last did something in them, where the row alone cannot say whether
// they are idle; for keys marked true it does so in any case.
func (b *batch) heardIn(keys map[engine.SessionKey]bool) error {
	var calls []*Call
	for k, exactly := range keys {
		s := b.sessions[k]
		if s == nil || s.Session == nil || !exactly && !s.Unsure(b.now) {
			continue
		}
		row := *s.Session
		s.Session = &row
		heard := func(epoch int64, worker string, at history.Time) {
			if epoch == row.Epoch && worker == row.Owner && at.After(row.Lately.Time) && at.Before(row.LeaseUntil.Time) {
				row.Lately = at
			}
		}
		since := row.LastActivity.Micros() - leadTime.Microseconds() // what ended before that does not matter
		calls = append(calls, &Call{Stmt: b.s.st.lastEnded, Args: []any{sessionKey(k), since}, Row: func(v []any) error {
			p, err := readRow(v)
			if err != nil {
				return err
			}
			return p.each(0, p.last(), func(e history.Event, _ int, ended bool) error {
				if !ended {
					return nil
				}
				_, a := history.EndedAttempt(e.Data)
				at := e.At
				if d, ok := e.Data.(*history.ActivityCompleted); ok && !d.TakenAt.IsZero() {
					at = d.TakenAt
				}
				heard(a.SessionEpoch, a.Worker, at)
				return nil
			})
		}}, &Call{Stmt: b.s.st.leasedIn, Args: []any{k.Namespace, row.Owner, k.ID}, Row: func(v []any) error {
			a, err := readActivity(str(v[0]), k.Namespace, integer(v[1]), str(v[2]))
			if err == nil {
				heard(a.Epoch, a.Owner, sign(&a))
			}
			return err
		}})
	}
	return b.send(calls...)
}

// leasedIn reads what one worker has in one session.
const leasedIn = "SELECT run_id, seq, body FROM tasks WHERE namespace = $1 AND owner = $2 AND session_id = $3 LIMIT 64"

// countRan adds to what the timeline says of holdings that this batch ended how many attempts had ended in them, those
// of the batch included, and how many were lost whose activities are open still. A holding began at its epoch, but for
// a clock that was set back.
func (b *batch) countRan() error {
	var calls []*Call
	for i := b.told; i < len(b.moves); i++ {
		m := &b.moves[i]
		if !m.Ends() {
			continue
		}
		key := sessionKey(m.Session)
		m.Ran += b.endsOf(key)
		calls = append(calls, &Call{Stmt: b.s.st.ranIn, Args: []any{
			key, m.Epoch - leadTime.Microseconds(), m.Epoch,
		}, Row: func(v []any) error {
			m.Ran += int(integer(v[0]))
			return nil
		}})
		one := newRowset(sessionsTable.key()).s(m.Session.Namespace).s(m.Session.ID)
		calls = append(calls, &Call{Stmt: b.s.st.openIn, Args: b.s.cfg.Dialect.keys(one), Row: func(v []any) error {
			a, err := readActivity(str(v[0]), m.Session.Namespace, integer(v[1]), str(v[2]))
			for _, l := range a.Lost {
				if l.Epoch == m.Epoch {
					m.Ran++
				}
			}
			return err
		}})
	}
	return b.send(calls...)
}

// endsOf counts the attempts that ended in a session, by the key of events, in what is not written yet.
func (b *batch) endsOf(session string) (n int) {
	for _, evs := range b.events {
		for _, s := range evs.sessions {
			if s == session {
				n++
			}
		}
	}
	return n
}

// tally fills in what the rows of sessions leave to their tasks, for readers: also the last activity, as what runs
// tells it.
func (r *reader) tally(ctx context.Context, list []engine.Session) error {
	if len(list) == 0 {
		return nil
	}
	at := make(map[engine.SessionKey]*engine.Session, len(list))
	keys := newRowset(sessionsTable.key())
	for i := range list {
		at[list[i].Key()] = &list[i]
		keys.s(list[i].Namespace).s(list[i].ID)
	}
	return r.query(ctx, r.st.tasksIn, r.dialect.keys(keys), func(v []any) error {
		s := at[engine.SessionKey{Namespace: str(v[0]), ID: str(v[1])}]
		switch {
		case s == nil:
			return nil
		case v[3] == nil:
			s.Ready = int(integer(v[2]))
			return nil
		}
		a, err := readActivity("", s.Namespace, 0, str(v[3]))
		leased(s, a.Epoch)
		if at := sign(&a); a.Epoch == s.Epoch && a.Owner == s.Owner && at.After(s.LastActivity.Time) &&
			at.Before(s.LeaseUntil.Time) {
			s.LastActivity = at
		}
		return err
	})
}
