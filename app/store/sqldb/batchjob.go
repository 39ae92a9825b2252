package sqldb

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// All results of a batch job that are in one batch of the committer write the job's row once.

// BatchJob returns a batch job in the state of the batch.
func (b *batch) BatchJob(k engine.BatchJobKey) *engine.BatchJob { return b.batchJobs[k] }

// Batch jobs are not cached: few transactions read them.
func (b *batch) loadBatchJobs(keys map[engine.BatchJobKey]bool) []*db.Call {
	missing := db.NewRowset(record.BatchJobs.Key())
	for k := range keys {
		if _, loaded := b.batchJobs[k]; !loaded {
			b.batchJobs[k] = nil
			missing.S(k.Namespace).S(k.ID)
		}
	}
	return b.fetch(b.s.st.batchJobs, missing, func(v []any) error {
		j, err := record.ReadBatchJob(v)
		b.batchJobs[j.Key()] = &j
		return err
	}, func(v []any) { b.markLocked(engine.BatchJobKey{Namespace: db.Str(v[0]), ID: db.Str(v[1])}) })
}

func (b *batch) applyBatchJobs(w *store.Writes) {
	for i := range w.BatchJobs {
		j := w.BatchJobs[i]
		b.batchJobs[j.Key()] = &j
		b.flush.batchJobs[j.Key()] = true
	}
	for i := range w.BatchRuns {
		r := w.BatchRuns[i]
		b.flush.batchRuns[engine.BatchRunKey{BatchJobKey: r.BatchJobKey, Number: r.Number}] = &r
	}
	for _, k := range w.DropBatchRuns {
		b.flush.batchRuns[k] = nil
	}
	for _, k := range w.DropBatchJobs {
		b.batchJobs[k] = nil
		b.flush.batchJobs[k] = true
	}
}

// gatherBatchJobs returns the calls that write the changed batch jobs and their runs, in the order of their keys.
func (b *batch) gatherBatchJobs() ([]*db.Call, error) {
	jobs, goneJobs := db.NewRowset(record.BatchJobs.Columns), db.NewRowset(record.BatchJobs.Key())
	for _, k := range slices.SortedFunc(maps.Keys(b.flush.batchJobs), compareBatchJobs) {
		j := b.batchJobs[k]
		if j == nil {
			goneJobs.S(k.Namespace).S(k.ID)
		} else if err := record.AddBatchJob(jobs, j); err != nil {
			return nil, err
		}
	}
	runs, goneRuns := db.NewRowset(record.BatchRuns.Columns), db.NewRowset(record.BatchRuns.Key())
	for _, k := range slices.SortedFunc(maps.Keys(b.flush.batchRuns), func(x, y engine.BatchRunKey) int {
		return cmp.Or(compareBatchJobs(x.BatchJobKey, y.BatchJobKey), cmp.Compare(x.Number, y.Number))
	}) {
		if r := b.flush.batchRuns[k]; r == nil {
			goneRuns.S(k.Namespace).S(k.ID).I(k.Number)
		} else {
			record.AddBatchRun(runs, r)
		}
	}
	clear(b.flush.batchJobs)
	clear(b.flush.batchRuns)
	st := b.s.st
	return slices.Concat(
		st.dropBatchRuns.Calls(goneRuns), st.dropBatchJobs.Calls(goneJobs), st.putBatchJobs.Calls(jobs),
		st.putBatchRuns.Calls(runs),
	), nil
}

func compareBatchJobs(x, y engine.BatchJobKey) int {
	return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.ID, y.ID))
}
