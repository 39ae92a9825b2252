package read

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// A run consists of its row and the rows of what is open in it (its open rows). For a decision or a single view, all
// are read in one snapshot; a list of runs needs no snapshot.

func (r *reader) Workflow(ctx context.Context, k engine.WorkflowKey) (f engine.Workflow, err error) {
	err = r.queryRow(ctx, selectAll(record.Workflows)+" WHERE namespace = $1 AND workflow_id = $2", []any{
		k.Namespace, k.ID,
	}, func(v []any) error {
		f = record.ReadWorkflow(v)
		return nil
	})
	return f, wrapRead(err, "workflow %s", k.ID)
}

// CurrentRuns reads the rows of workflow IDs.
func (r *reader) CurrentRuns(ctx context.Context, namespace string, ids []string) (map[string]string, error) {
	current := make(map[string]string, len(ids))
	if len(ids) == 0 {
		return current, nil
	}
	keys := db.NewRowset(record.Workflows.Key())
	for _, id := range ids {
		keys.S(namespace).S(id)
	}
	err := r.query(ctx, r.st.currents, r.dialect.Keys(keys), func(v []any) error {
		current[db.Str(v[0])] = db.Str(v[1])
		return nil
	})
	return current, wrapRead(err, "current runs of workflow IDs")
}

// Run reads the run's row and its open rows in one snapshot.
func (r *reader) Run(ctx context.Context, id string) (*engine.Run, error) {
	const opens = "SELECT run_id, kind, seq, body FROM tasks WHERE run_id = $1 AND seq > 0" +
		" UNION ALL SELECT run_id, kind, seq, body FROM items WHERE run_id = $1"
	return r.runWith(ctx, id, opens, id)
}

// Step returns a run's row and the row of one open activity.
func (r *reader) Step(ctx context.Context, id string, seq int64) (*engine.Run, error) {
	if seq == 0 {
		h, err := r.head(ctx, id)
		if err != nil {
			return nil, err
		}
		return &engine.Run{Head: h}, nil
	}
	return r.runWith(ctx, id, "SELECT run_id, kind, seq, body FROM tasks WHERE run_id = $1 AND seq = $2", id, seq)
}

// runWith reads the run's row and some of its open rows in one snapshot.
func (r *reader) runWith(ctx context.Context, id, opens string, args ...any) (*engine.Run, error) {
	var run *engine.Run
	err := r.inSnapshot(ctx, func(in *reader) error {
		h, err := in.head(ctx, id)
		if err != nil {
			return err
		}
		run = &engine.Run{Head: h}
		err = in.query(ctx, opens, args, func(v []any) error { return record.ReadOpen(run, v) })
		return wrapRead(err, "open rows of run %s", id)
	})
	return run, err
}

// Run rows and open rows are read in one snapshot: an open row that was inserted between two reads would belong to a
// state that the run's row does not have yet.
func (r *reader) OpenRuns(ctx context.Context, ids []string) (map[string]*engine.Run, error) {
	runs := make(map[string]*engine.Run, len(ids))
	if len(ids) == 0 {
		return runs, nil
	}
	keys := db.NewRowset(record.Runs.Key())
	for _, id := range ids {
		keys.S(id)
	}
	args := r.dialect.Keys(keys)
	err := r.inSnapshot(ctx, func(in *reader) error {
		err := in.query(ctx, r.st.heads, args, func(v []any) error {
			h, err := record.ReadHead(v)
			runs[h.ID] = &engine.Run{Head: h}
			return err
		})
		if err != nil {
			return wrapRead(err, "open runs")
		}
		return wrapRead(in.query(ctx, r.st.opens, args, func(v []any) error {
			if run := runs[db.Str(v[0])]; run != nil {
				return record.ReadOpen(run, v)
			}
			return nil
		}), "open rows of runs")
	})
	return runs, err
}

func (r *reader) head(ctx context.Context, id string) (h engine.Head, err error) {
	err = r.queryRow(ctx, selectAll(record.Runs)+" WHERE run_id = $1", []any{id}, func(v []any) (err error) {
		h, err = record.ReadHead(v)
		return err
	})
	return h, wrapRead(err, "run %s", id)
}

// RunsOf returns the runs of a workflow ID, oldest first.
func (r *reader) RunsOf(ctx context.Context, k engine.WorkflowKey) ([]engine.Head, error) {
	var list []engine.Head
	query := selectAll(record.Runs) + " WHERE namespace = $1 AND workflow_id = $2"
	err := r.query(ctx, query, []any{k.Namespace, k.ID}, func(v []any) error {
		h, err := record.ReadHead(v)
		list = append(list, h)
		return err
	})
	engine.OrderRuns(list)
	return list, wrapRead(err, "runs of workflow %s", k.ID)
}

func (r *reader) InheritedChildren(
	ctx context.Context, chain engine.WorkflowKey, limit int,
) (list []engine.InheritedChild, err error) {
	query := selectAll(record.InheritedChildren) + " WHERE namespace = $1 AND workflow_id = $2 ORDER BY child_id LIMIT $3"
	err = r.query(ctx, query, []any{chain.Namespace, chain.ID, int64(limit)}, func(v []any) error {
		f, err := record.ReadInherited(v)
		list = append(list, f)
		return err
	})
	return list, wrapRead(err, "children of workflow %s", chain.ID)
}

// Outdated returns the oldest runs first, by the index of closing times, so that an interrupted pass has deleted the
// runs whose retention ended first.
func (r *reader) Outdated(ctx context.Context, namespace string, before time.Time, limit int) ([]engine.Head, error) {
	var list []engine.Head
	query := selectAll(record.Runs) + " WHERE namespace = $1 AND closed_at < $2 ORDER BY closed_at, run_id LIMIT $3"
	err := r.query(ctx, query, []any{namespace, micros(before), int64(limit)}, func(v []any) error {
		h, err := record.ReadHead(v)
		list = append(list, h)
		return err
	})
	return list, wrapRead(err, "outdated runs of namespace %s", namespace)
}

// FirstClosed is used by the clean-up, which sleeps until the retention of that run ends.
func (r *reader) FirstClosed(ctx context.Context, namespace string) (at time.Time, err error) {
	const query = "SELECT closed_at FROM runs WHERE namespace = $1 AND closed_at IS NOT NULL ORDER BY closed_at LIMIT 1"
	err = r.query(ctx, query, []any{namespace}, func(v []any) error {
		at = time.UnixMicro(db.Int(v[0])).UTC()
		return nil
	})
	return at, wrapRead(err, "first closed run of namespace %s", namespace)
}

// The state of a task is in the JSON document. The index finds documents that contain a text, so each row is checked
// again.
func (r *reader) Quarantined(ctx context.Context, namespace string, limit int) ([]engine.Head, error) {
	var list []engine.Head
	err := r.query(ctx, quarantined(r.dialect), []any{namespace}, func(v []any) error {
		h, err := record.ReadHead(v)
		// The text may also occur in a memo.
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
	return list, wrapRead(err, "quarantined runs")
}

// quarantined returns the condition of the partial index runs_quarantined, with the same words, so that the planner
// uses the index.
func quarantined(d db.Dialect) string {
	find := "instr"
	if d.Shared {
		find = "strpos"
	}
	return selectAll(record.Runs) + " WHERE namespace = $1 AND status = 'running' AND owner IS NULL AND " + find +
		"(state, '\"state\":\"quarantined\"') > 0 ORDER BY started_at DESC, run_id DESC"
}
