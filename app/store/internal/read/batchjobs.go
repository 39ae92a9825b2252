package read

import (
	"context"
	"math"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// batchJobsBefore lists the batch jobs of a namespace, newest first. openBatchJobs reads the whole index of open jobs,
// which is small.
var (
	batchJobsBefore = selectAll(record.BatchJobs) +
		" WHERE namespace = $1 AND (created_at, job_id) < ($2, $3) ORDER BY created_at DESC, job_id DESC LIMIT $4"
	openBatchJobs   = selectAll(record.BatchJobs) + " WHERE closed_at IS NULL ORDER BY namespace, job_id"
	closedBatchJobs = "SELECT job_id FROM batch_jobs WHERE namespace = $1 AND created_at < $2 AND closed_at < $2" +
		" ORDER BY created_at LIMIT $3"
	batchRunsAfter = selectAll(record.BatchRuns) +
		" WHERE namespace = $1 AND job_id = $2 AND number > $3 AND ($4 = '' OR state = $4) ORDER BY number LIMIT $5"
)

func (r *reader) BatchJob(ctx context.Context, k engine.BatchJobKey) (j engine.BatchJob, err error) {
	err = r.queryRow(ctx, selectAll(record.BatchJobs)+" WHERE namespace = $1 AND job_id = $2", []any{
		k.Namespace, k.ID,
	}, func(v []any) (err error) {
		j, err = record.ReadBatchJob(v)
		return err
	})
	return j, wrapRead(err, "batch job %s", k.ID)
}

func (r *reader) BatchJobs(
	ctx context.Context, namespace string, afterCreated history.Time, afterID string, limit int,
) ([]engine.BatchJob, error) {
	before := int64(math.MaxInt64)
	if !afterCreated.IsZero() {
		before = afterCreated.Micros()
	}
	return r.listBatchJobs(ctx, batchJobsBefore, namespace, before, afterID, int64(limit))
}

func (r *reader) OpenBatchJobs(ctx context.Context) ([]engine.BatchJob, error) {
	return r.listBatchJobs(ctx, openBatchJobs)
}

func (r *reader) listBatchJobs(ctx context.Context, query string, args ...any) (list []engine.BatchJob, err error) {
	err = r.query(ctx, query, args, func(v []any) error {
		j, err := record.ReadBatchJob(v)
		list = append(list, j)
		return err
	})
	return list, wrapRead(err, "batch jobs")
}

func (r *reader) ClosedBatchJobs(
	ctx context.Context, namespace string, before time.Time, limit int,
) (keys []engine.BatchJobKey, err error) {
	err = r.query(ctx, closedBatchJobs, []any{namespace, before.UnixMicro(), int64(limit)}, func(v []any) error {
		keys = append(keys, engine.BatchJobKey{Namespace: namespace, ID: db.Str(v[0])})
		return nil
	})
	return keys, wrapRead(err, "closed batch jobs")
}

func (r *reader) BatchRuns(
	ctx context.Context, k engine.BatchJobKey, state protocol.BatchRunState, after int64, limit int,
) (list []engine.BatchRun, err error) {
	args := []any{k.Namespace, k.ID, after, string(state), int64(limit)}
	err = r.query(ctx, batchRunsAfter, args, func(v []any) error {
		list = append(list, record.ReadBatchRun(v))
		return nil
	})
	return list, wrapRead(err, "runs of batch job %s", k.ID)
}
