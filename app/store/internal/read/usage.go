package read

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// usagePage is the number of runs that one statement of a count reads.
const usagePage = 1000

func (r *reader) CountUsage(
	ctx context.Context, namespace, app string, begun func(store.Namespace, int64) error,
) (u engine.Usage, err error) {
	err = r.inSnapshot(ctx, func(r *reader) error {
		n, err := r.Namespace(ctx, namespace)
		if err != nil {
			return err
		}
		var batch int64
		err = r.query(ctx, lastBatch, []any{app}, func(v []any) error {
			batch = db.Int(v[0])
			return nil
		})
		if err != nil {
			return err
		}
		if err := begun(n, batch); err != nil {
			return err
		}
		err = r.queryRow(ctx, countSchedules, []any{namespace}, func(v []any) error {
			u.Schedules = db.Int(v[0])
			return nil
		})
		at, id := int64(-1), ""
		for page := usagePage; err == nil && page == usagePage; {
			page = 0
			err = r.query(ctx, usageOfRuns, []any{namespace, at, id, int64(usagePage)}, func(v []any) error {
				page++
				var state struct {
					Bytes int64          `json:"bytes"`
					Held  protocol.Quota `json:"held"`
				}
				if err := json.Unmarshal([]byte(db.Str(v[3])), &state); err != nil {
					return fmt.Errorf("state of run %s: %w", db.Str(v[0]), err)
				}
				h := engine.Head{ID: db.Str(v[0]), Status: protocol.RunStatus(db.Str(v[2])), Bytes: state.Bytes, Held: state.Held}
				u = u.Plus(engine.RunUsage(&h))
				id, at = h.ID, db.Int(v[1])
				return nil
			})
		}
		return err
	})
	return u, wrapRead(err, "usage of namespace %s", namespace)
}

const (
	lastBatch      = "SELECT batch FROM batches WHERE app = $1"
	countSchedules = "SELECT count(*) FROM schedules WHERE namespace = $1 AND status <> 'deleted'"
	// usageOfRuns reads one page, by the index that begins with the namespace and the start.
	usageOfRuns = "SELECT run_id, started_at, status, state FROM runs WHERE namespace = $1 AND (started_at, run_id) > ($2, $3)" +
		" ORDER BY started_at, run_id LIMIT $4"
)

// heldRuns reads a partial index that contains only held runs.
const heldRuns = "SELECT run_id FROM runs WHERE namespace = $1 AND held IS NOT NULL ORDER BY started_at, run_id LIMIT $2"

func (r *reader) HeldRuns(ctx context.Context, namespace string, limit int) (list []string, err error) {
	err = r.query(ctx, heldRuns, []any{namespace, int64(limit)}, func(v []any) error {
		list = append(list, db.Str(v[0]))
		return nil
	})
	return list, wrapRead(err, "held runs of namespace %s", namespace)
}
