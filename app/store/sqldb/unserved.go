package sqldb

import (
	"fmt"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// unservedColumns are the key of a run and the columns of its stuck mark.
var unservedColumns = []db.Column{
	db.Text("run_id"), db.Text("unserved"), db.Num("unserved_at"), db.Text("unserved_why"),
}

// unserve returns the statement that marks runs as stuck because no worker may lease their tasks. It writes no column
// that a step of the run writes. On a shared database it skips rows that another app has locked: the next pass marks
// them.
func unserve(d db.Dialect) string {
	const set = "UPDATE runs SET unserved = NULLIF(k.unserved, ''), unserved_at = NULLIF(k.unserved_at, 0)," +
		" unserved_why = NULLIF(k.unserved_why, '') FROM "
	if !d.Shared {
		return fmt.Sprintf("%s%s AS k WHERE runs.run_id = k.run_id", set, d.List(unservedColumns))
	}
	return fmt.Sprintf("%[2]s (SELECT l.* FROM %[1]s AS l CROSS JOIN LATERAL"+
		" (SELECT 1 FROM runs AS r WHERE r.run_id = l.run_id FOR UPDATE SKIP LOCKED) AS held) AS k WHERE runs.run_id = k.run_id",
		d.List(unservedColumns), set)
}

// gatherUnserved returns the call that writes the marks of stuck runs.
func (b *batch) gatherUnserved() []*db.Call {
	if len(b.unserved) == 0 {
		return nil
	}
	rows := db.NewRowset(unservedColumns)
	for _, u := range b.unserved {
		if u.Stuck == nil {
			rows.S(u.Run).S("").I(0).S("")
		} else {
			rows.S(u.Run).S(string(u.Stuck.Reason)).I(u.Stuck.Since.Micros()).S(u.Stuck.Message)
		}
	}
	b.unserved = nil
	return []*db.Call{{Stmt: b.s.st.unserve, Args: b.s.cfg.Dialect.Keys(rows)}}
}
