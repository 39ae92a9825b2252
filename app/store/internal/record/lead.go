package record

import (
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// An index over event rows finds the activities that ended in a session. An index entry for each ended activity would
// be expensive: the entries of one session are adjacent, so every active session would dirty a separate index page.
// Therefore only some rows of a run are indexed; they are called leading rows. Rows that are written shortly after a
// leading row follow it: a reader finds the leading row in the index, and the rows that follow by run and sequence. A
// row may follow only if this process remembers the leading row, which is stored and never changes. Otherwise the row
// leads, which is always correct.

// These are limits for rows that follow a leading row.
const (
	LeadTime   = time.Second // maximum time between a leading row and a row that follows it
	leadEvents = 128         // maximum number of events between them
	// Larger rows always lead: a reader must read the rows that follow, and SQLite reads all columns before the
	// requested one.
	maxFollowingBytes = 8 << 10
)

// Lead is the current leading row of a run: rows written soon after it may follow it. The zero value means that there
// is none.
type Lead struct {
	session string
	seq, at int64
}

// next reports whether the next row of the run follows the leading row (1) or leads (0). session is empty if no attempt
// in a session ended in the row. A row that leads becomes the new Lead.
func (l *Lead) next(session string, seq, at int64, bytes int) int64 {
	switch {
	case bytes > maxFollowingBytes:
		*l = Lead{}
		return 0
	case session == "":
		return 0
	case l.session == session && seq > l.seq && seq-l.seq < leadEvents && at >= l.at && at-l.at < LeadTime.Microseconds():
		return 1
	}
	*l = Lead{session, seq, at}
	return 0
}

// followersQuery returns a query of columns of the leading rows m, which are selected by the table expression leads,
// and of the rows t that follow them. A row that follows several leading rows is returned several times.
func followersQuery(d db.Dialect, columns, leads, where string) string {
	on := fmt.Sprintf("t.run_id = m.run_id AND t.seq >= m.seq AND t.seq < m.seq + %d", leadEvents)
	if where != "" {
		on += " AND " + where
	}
	if !d.Shared { // as in db.Dialect.ProbeIn
		return fmt.Sprintf("SELECT %s FROM %s AS m CROSS JOIN events AS t ON %s", columns, leads, on)
	}
	return fmt.Sprintf(
		"SELECT p.* FROM %s AS m CROSS JOIN LATERAL (SELECT %s FROM events AS t WHERE %s OFFSET 0) AS p", leads, columns, on,
	)
}

// leadingRows returns a table expression of the leading rows of session $1 that are later than time $2, at most most.
func leadingRows(most int) string {
	return fmt.Sprintf("(SELECT run_id, seq FROM events WHERE session = $1 AND follows IS NULL AND at > $2"+
		" ORDER BY at DESC LIMIT %d)", most)
}

// LastEnded returns the query of the events that ended attempts in a session since a time. It reads about one second,
// in which at most 64 runs use one session.
func LastEnded(d db.Dialect) string {
	return followersQuery(d, EventColumns, leadingRows(64), "t.session = $1")
}

// RanIn returns the query that counts the attempts that ended while a holder has held a session, since $3. It reads at
// most 10,000 rows.
func RanIn(d db.Dialect) string {
	rows := followersQuery(d, "t.run_id, t.seq, t.ended", leadingRows(10_000), "t.session = $1 AND t.at >= $3")
	return "SELECT CAST(coalesce(sum(coalesce(e.ended, 1)), 0) AS BIGINT) FROM (SELECT DISTINCT w.run_id, w.seq, w.ended" +
		" FROM (" + rows + " LIMIT 10000) AS w) AS e"
}

// Behind returns the query of rows of a session that follow the given leading rows.
func Behind(d db.Dialect) string {
	keys := []db.Column{db.Text("session"), db.Text("run_id"), db.Num("seq")}
	return followersQuery(
		d, EventColumns+", (SELECT r.workflow_id FROM runs AS r WHERE r.run_id = t.run_id)", d.List(keys), "t.session = m.session",
	)
}
