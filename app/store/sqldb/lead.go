package sqldb

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
)

// What ended in a session is found by an index over the rows of histories, and a step in a session must not pay for an
// entry of its own: those of one session are side by side, so each session that is used dirties a page of them. So only
// one row of a run in a while leads to the session's ends, and those that come soon after it follow: they are found
// behind it, by the run and the sequence. A row follows only where this process remembers the one that leads, which
// is stored and never changes; who does not remember writes one that leads, which is never wrong.

const (
	leadTime = time.Second // how much later than what leads a row may be that follows
	leadSpan = 128         // and by how many events
	// Where rows are larger, they lead: what is behind has to be read, and on SQLite with all that stands before the
	// column which is asked for.
	mostFollowing = 8 << 10
)

// lead is the row of a run that leads to what ends soon in a session; the zero value is none.
type lead struct {
	session string
	seq, at int64
}

// next says whether the run's next row, of a session or of none, follows, as 1, and takes its place if it leads.
func (l *lead) next(session string, seq, at int64, bytes int) int64 {
	switch {
	case bytes > mostFollowing:
		*l = lead{}
		return 0
	case session == "":
		return 0
	case l.session == session && seq > l.seq && seq-l.seq < leadSpan && at >= l.at && at-l.at < leadTime.Microseconds():
		return 1
	}
	*l = lead{session, seq, at}
	return 0
}

// led selects columns of the rows t that follow the rows m which are given by a table expression, and those themselves.
// Where several lead to a row it comes several times.
func led(d Dialect, columns, leads, where string) string {
	on := fmt.Sprintf("t.run_id = m.run_id AND t.seq >= m.seq AND t.seq < m.seq + %d", leadSpan)
	if where != "" {
		on += " AND " + where
	}
	if !d.Shared { // as in probeIn
		return fmt.Sprintf("SELECT %s FROM %s AS m CROSS JOIN events AS t ON %s", columns, leads, on)
	}
	return fmt.Sprintf(
		"SELECT p.* FROM %s AS m CROSS JOIN LATERAL (SELECT %s FROM events AS t WHERE %s OFFSET 0) AS p", leads, columns, on,
	)
}

// leading is a table expression of the rows that lead to ends of the session $1 and come behind the time $2.
func leading(most int) string {
	return fmt.Sprintf("(SELECT run_id, seq FROM events WHERE session = $1 AND follows IS NULL AND at > $2"+
		" ORDER BY at DESC LIMIT %d)", most)
}

// lastEnded reads what ended in a session since a time. It is about the last second, in which no more runs than these
// use one session.
func lastEnded(d Dialect) string { return led(d, eventColumns, leading(64), "t.session = $1") }

// ranIn counts what ended in a holding that began at $3; at most 10,000 rows of it.
func ranIn(d Dialect) string {
	rows := led(d, "t.run_id, t.seq, t.ended", leading(10_000), "t.session = $1 AND t.at >= $3")
	return "SELECT CAST(coalesce(sum(coalesce(e.ended, 1)), 0) AS BIGINT) FROM (SELECT DISTINCT w.run_id, w.seq, w.ended" +
		" FROM (" + rows + " LIMIT 10000) AS w) AS e"
}

// behind reads the rows of a session that some of them lead to.
func behind(d Dialect) string {
	keys := []column{text("session"), text("run_id"), num("seq")}
	return led(
		d, eventColumns+", (SELECT r.workflow_id FROM runs AS r WHERE r.run_id = t.run_id)", d.list(keys), "t.session = m.session",
	)
}

// SessionHistory reads the rows that lead, latest first, and what is behind them, until nothing that leads and was not
// read can lead to anything later than what was asked for.
func (r *reader) SessionHistory(
	ctx context.Context, k engine.SessionKey, before store.RunEvent, limit int,
) (list []store.RunEvent, err error) {
	session := sessionKey(k)
	at := cmp.Or(before.At.Micros(), 1<<62)
	cursor := []any{at + 1, "", int64(0)} // what leads and comes later leads to nothing before
	seen := map[string]bool{}             // rows, by run and sequence
	for more := true; more; {
		leads, last := newRowset([]column{text("session"), text("run_id"), num("seq")}), int64(0)
		const query = "SELECT run_id, seq, at FROM events WHERE session = $1 AND follows IS NULL" +
			" AND (at, run_id, seq) < ($2, $3, $4) ORDER BY at DESC, run_id DESC, seq DESC LIMIT $5"
		err := r.query(ctx, query, append([]any{session}, append(cursor, int64(limit)+1)...), func(v []any) error {
			leads.s(session).s(str(v[0])).i(integer(v[1]))
			last = integer(v[2])
			cursor = []any{last, str(v[0]), integer(v[1])}
			return nil
		})
		if err != nil {
			return nil, wrap(err, "attempts of session %s", k.ID)
		}
		more = leads.n > limit
		if list, err = r.endedBehind(ctx, leads, before, list, seen); err != nil {
			return nil, wrap(err, "attempts of session %s", k.ID)
		}
		known := 0
		for i := range list {
			if list[i].At.Micros() >= last+leadTime.Microseconds() {
				known++
			}
		}
		more = more && known < limit
	}
	slices.SortFunc(list, later)
	return list[:min(len(list), limit)], nil
}

// later is the order of a session's history, latest first.
func later(x, y store.RunEvent) int {
	return cmp.Or(y.At.Compare(x.At.Time), cmp.Compare(y.Run, x.Run), cmp.Compare(y.Seq, x.Seq))
}

// endedBehind adds what ended in a session by the rows that some lead to, once, if it comes before an event.
func (r *reader) endedBehind(
	ctx context.Context, leads *rowset, before store.RunEvent, list []store.RunEvent, seen map[string]bool,
) ([]store.RunEvent, error) {
	if leads.empty() {
		return list, nil
	}
	err := r.query(ctx, r.st.behind, r.dialect.keys(leads), func(v []any) error {
		p, err := readRow(v)
		row := engine.StepID(p.run, p.first)
		if err != nil || seen[row] {
			return err
		}
		seen[row] = true
		return p.each(0, p.last(), func(e history.Event, _ int, ended bool) error {
			one := store.RunEvent{Run: p.run, WorkflowID: str(v[10]), Event: e}
			if ended && (before.At.IsZero() || later(one, before) > 0) {
				list = append(list, one)
			}
			return nil
		})
	})
	return list, err
}
