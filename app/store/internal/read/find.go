package read

import (
	"context"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// findExact reads the objects of a namespace that have an ID. Each part reads at most one index entry. The parameters
// are the namespace, the text, the text as a run ID, and the run ID of a step.
const findExact = `SELECT 'workflow', w.workflow_id, r.run_id, r.workflow_id, r.type, r.status, r.started_at
 FROM workflows w JOIN runs r ON r.run_id = w.run_id WHERE w.namespace = $1 AND w.workflow_id = $2
 UNION ALL SELECT 'run', r.run_id, r.run_id, r.workflow_id, r.type, r.status, r.started_at
 FROM runs r WHERE r.run_id = $3 AND r.namespace = $1
 UNION ALL SELECT * FROM (SELECT 'business_key', r.business_key, r.run_id, r.workflow_id, r.type, r.status, r.started_at
 FROM runs r WHERE r.namespace = $1 AND r.business_key = $2 ORDER BY r.started_at DESC, r.run_id DESC LIMIT 1) AS k
 UNION ALL SELECT 'session', o.session_id, '', '', '', '', o.updated_at
 FROM sessions o WHERE o.namespace = $1 AND o.session_id = $2 AND (o.claimed = 1 OR o.door = 'workflow')
 UNION ALL SELECT 'worker', w.worker_id, '', '', '', '', w.updated_at
 FROM workers w WHERE w.namespace = $1 AND w.worker_id = $2
 UNION ALL SELECT 'schedule', c.schedule_id, '', '', '', '', 0
 FROM schedules c WHERE c.namespace = $1 AND c.schedule_id = $2
 UNION ALL SELECT 'step', '', r.run_id, r.workflow_id, r.type, r.status, r.started_at
 FROM runs r WHERE r.run_id = $4 AND r.namespace = $1`

// findPrefix reads IDs of each kind that follow the text and begin with it, in the order of the IDs. The parameters are
// the namespace, the text, the end of its range, and the maximum number of each kind.
const findPrefix = `SELECT * FROM (SELECT 'workflow', workflow_id, run_id, workflow_id AS of_workflow, '', '', 0
 FROM workflows WHERE namespace = $1 AND workflow_id > $2 AND workflow_id < $3 ORDER BY 2 LIMIT $4) AS k
 UNION ALL SELECT * FROM (SELECT 'session', session_id, '', '', '', '', 0
 FROM sessions WHERE namespace = $1 AND session_id > $2 AND session_id < $3 AND (claimed = 1 OR door = 'workflow')
 ORDER BY 2 LIMIT $4) AS q
 UNION ALL SELECT * FROM (SELECT 'worker', worker_id, '', '', '', '', 0
 FROM workers WHERE namespace = $1 AND worker_id > $2 AND worker_id < $3 ORDER BY 2 LIMIT $4) AS n
 UNION ALL SELECT * FROM (SELECT 'schedule', schedule_id, '', '', '', '', 0
 FROM schedules WHERE namespace = $1 AND schedule_id > $2 AND schedule_id < $3 ORDER BY 2 LIMIT $4) AS few`

// Find reads the objects that have an ID, or whose IDs begin with it, in two statements.
func (r *reader) Find(ctx context.Context, namespace, text string, prefixes int) (store.Finding, error) {
	var f store.Finding
	run := strings.ToUpper(text)
	of, seq, ok := engine.ParseStepID(run)
	if !ok {
		of = ""
	}
	err := r.query(ctx, findExact, []any{namespace, text, run, of}, func(v []any) error {
		e := foundEntry(v)
		if e.Kind == protocol.FindStep {
			e.ID, e.Sequence = run, seq
		}
		f.Exact = append(f.Exact, e)
		return nil
	})
	if err != nil {
		return f, wrapRead(err, "objects with the ID %s", text)
	}
	end := text + "\U0010ffff" // the highest character ends the range of this prefix
	err = r.query(ctx, findPrefix, []any{namespace, text, end, int64(prefixes)}, func(v []any) error {
		f.Prefixes = append(f.Prefixes, foundEntry(v))
		return nil
	})
	return f, wrapRead(err, "objects with the prefix %s", text)
}

func foundEntry(v []any) store.Found {
	name, activity := strings.CutPrefix(db.Str(v[4]), store.TypeColumn(history.KindActivity, ""))
	e := store.Found{
		Kind: protocol.FindKind(db.Str(v[0])), ID: db.Str(v[1]), Run: db.Str(v[2]), WorkflowID: db.Str(v[3]),
		Type: name, Status: protocol.RunStatus(db.Str(v[5])),
	}
	if activity {
		e.RunKind = history.KindActivity
	}
	if at := db.Int(v[6]); at > 0 {
		e.At = history.Micros(at)
	}
	return e
}
