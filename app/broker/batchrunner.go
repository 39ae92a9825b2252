package broker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Every app looks for open batch jobs without a lease and executes them. A job writes in small background transactions,
// one per run, of which a group shares a commit; between two groups it waits as its rate requires. So a large job
// delays other requests by no more than one small commit at a time.

const (
	// batchLease is the lease of a batch job, which every transaction of the job renews. After the death of an app,
	// another app continues its jobs when their leases have expired.
	batchLease = 30 * time.Second
	// batchLookup is how often an app looks for jobs that it may acquire while another app owns an open job.
	batchLookup = 30 * time.Second
	// idleBatchLookup is how often an app that shares its database looks for jobs if it found none. It looks at once
	// when it creates a job, and when it notices the end of another app.
	idleBatchLookup = 10 * time.Minute
	// batchPage is the maximum number of run IDs that one transaction stores.
	batchPage = 256
	// batchGroup is the maximum number of runs to which a job applies its action at a time.
	batchGroup = 64
	// batchGroupsPerSecond is the number of groups per second for rates that allow several runs per group.
	batchGroupsPerSecond = 10
	// maxBatchJobs is the maximum number of jobs that an app executes at a time; others wait. It is large, because a job
	// with a low rate may last for hours.
	maxBatchJobs = 256
	// maxBatchGroups is the maximum number of jobs of an app that apply their actions at the same moment.
	maxBatchGroups = 16
)

// batchJobs is the state of an app's execution of batch jobs.
type batchJobs struct {
	mu      sync.Mutex // guards running
	running map[engine.BatchJobKey]bool
	wake    chan struct{}
	// searching and applying are semaphores. One job at a time searches for its runs, since a search may read for a
	// second, and SQLite has few connections for reading. maxBatchGroups jobs at a time apply their actions to a group.
	searching, applying chan struct{}
}

func newBatchJobs() batchJobs {
	return batchJobs{
		running: map[engine.BatchJobKey]bool{}, wake: make(chan struct{}, 1),
		searching: make(chan struct{}, 1), applying: make(chan struct{}, maxBatchGroups),
	}
}

// signal makes the app look for open jobs.
func (q *batchJobs) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// beginJob reports whether the app may execute a job, and marks it as running.
func (q *batchJobs) beginJob(k engine.BatchJobKey) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running[k] || len(q.running) >= maxBatchJobs {
		return false
	}
	q.running[k] = true
	return true
}

func (q *batchJobs) endJob(k engine.BatchJobKey) {
	q.mu.Lock()
	delete(q.running, k)
	q.mu.Unlock()
	q.signal()
}

// runBatchJobs executes open batch jobs until ctx ends or the app drains.
func (b *Broker) runBatchJobs(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var jobs sync.WaitGroup
	defer jobs.Wait()
	defer cancel() // before Wait
	for back := (retry.Backoff{Min: time.Second, Max: batchLookup}); ; {
		list, next, err := b.openBatchJobs(ctx)
		if err != nil {
			next = back.Next()
			if ctx.Err() == nil {
				store.Warn(&b.log, err).Msg("failed to read open batch jobs; retrying")
			}
		} else {
			back.Reset()
		}
		for _, k := range list {
			if b.batchJobs.beginJob(k) {
				jobs.Go(func() {
					defer b.batchJobs.endJob(k)
					b.executeBatchJob(ctx, k)
				})
			}
		}
		var timer <-chan time.Time
		if next > 0 {
			timer = time.After(next)
		}
		select {
		case <-timer:
		case <-b.batchJobs.wake:
		case <-b.drained:
			return
		case <-ctx.Done():
			return
		}
	}
}

// openBatchJobs returns the open jobs that this app may acquire, and the time until the next lookup (0: none is
// needed).
func (b *Broker) openBatchJobs(ctx context.Context) (list []engine.BatchJobKey, next time.Duration, err error) {
	now, err := b.store.Now(ctx)
	if err != nil {
		return nil, 0, err
	}
	if b.opt.Shared {
		next = idleBatchLookup
	}
	err = b.store.View(ctx, func(r store.Reader) error {
		open, err := r.OpenBatchJobs(ctx)
		for i := range open {
			if _, ok := open[i].Acquire(b.opt.App, b.opt.Shared, batchLease, now); ok {
				list = append(list, open[i].Key())
			} else {
				next = min(next, batchLookup, max(open[i].LeaseUntil.Sub(now), time.Second))
			}
		}
		return err
	})
	return list, next, err
}

// executeBatchJob acquires a job and executes it until it closes, another app acquires it, or ctx ends. After an error
// it acquires the job again, with a new epoch: a transaction whose outcome is unknown is then visible or refused.
func (b *Broker) executeBatchJob(ctx context.Context, k engine.BatchJobKey) {
	log := b.log.With().Str("namespace", k.Namespace).Str("batch_job", k.ID).Logger()
	for back := (retry.Backoff{Min: 200 * time.Millisecond, Max: batchLease / 2}); ; {
		j, err := b.acquireBatchJob(ctx, k)
		if err == nil {
			log.Info().Str("action", string(j.Action)).Int64("epoch", j.Epoch).Msg("batch job acquired")
			err = b.continueBatchJob(ctx, &j)
		}
		switch {
		case ctx.Err() != nil:
			if j.Epoch > 0 {
				b.releaseBatchJob(ctx, &j)
			}
			return
		case errors.Is(err, engine.ErrBatchLost):
			return
		case err == nil:
			log.Info().Str("state", string(j.State)).Int64("runs", j.Runs).Msg("batch job closed")
			return
		}
		store.Warn(&log, err).Msg("failed to continue a batch job; retrying")
		sleep(ctx, back.Next())
	}
}

// acquireBatchJob returns the job with this app as its owner, or ErrBatchLost.
func (b *Broker) acquireBatchJob(ctx context.Context, k engine.BatchJobKey) (engine.BatchJob, error) {
	return transaction.Commit[engine.BatchJob](ctx, b.store, store.Transaction{
		Needs: store.Keys{BatchJobs: []engine.BatchJobKey{k}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			next, ok := rows.BatchJob(k).Acquire(b.opt.App, b.opt.Shared, batchLease, now)
			if !ok {
				return store.Writes{}, engine.ErrBatchLost
			}
			return store.Writes{BatchJobs: []engine.BatchJob{next}, Answer: next}, nil
		},
	})
}

// releaseBatchJob ends the lease of a job when this app ends. Without it, other apps wait until the lease expires.
func (b *Broker) releaseBatchJob(ctx context.Context, j *engine.BatchJob) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := b.changeBatchJob(ctx, j, store.Keys{}, func(_ store.Rows, row engine.BatchJob, _ time.Time) store.Writes {
		return store.Writes{BatchJobs: []engine.BatchJob{row.Release()}}
	})
	if err != nil && !errors.Is(err, engine.ErrBatchLost) {
		store.Warn(&b.log, err).Str("batch_job", j.ID).Msg("failed to release a batch job; its lease expires")
	}
}

// changeBatchJob commits a change of a job that this app owns, and renews its lease. change returns writes that contain
// the new row, which replaces *j; after an error *j is unchanged.
func (b *Broker) changeBatchJob(
	ctx context.Context, j *engine.BatchJob, needs store.Keys,
	change func(store.Rows, engine.BatchJob, time.Time) store.Writes,
) error {
	k, epoch := j.Key(), j.Epoch
	needs.BatchJobs = []engine.BatchJobKey{k}
	next, err := transaction.Commit[engine.BatchJob](ctx, b.store, store.Transaction{
		Needs: needs, Background: true,
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			row, err := rows.BatchJob(k).Renew(b.opt.App, epoch, batchLease, now)
			if err != nil {
				return store.Writes{}, err
			}
			w := change(rows, row, now)
			w.Answer = w.BatchJobs[0]
			return w, nil
		},
	})
	if err == nil {
		*j = next
	}
	return err
}

// continueBatchJob collects the runs of a job and applies its action to them.
func (b *Broker) continueBatchJob(ctx context.Context, j *engine.BatchJob) error {
	for j.State == protocol.BatchCollecting {
		if err := b.collectBatchRuns(ctx, j); err != nil {
			return err
		}
	}
	for after := int64(0); j.Open(); {
		began := time.Now()
		var group []engine.BatchRun
		size := min(max(j.Rate/batchGroupsPerSecond, 1), batchGroup)
		err := b.store.View(ctx, func(r store.Reader) (err error) {
			group, err = r.BatchRuns(ctx, j.Key(), protocol.BatchRunPending, after, size)
			return err
		})
		if err != nil {
			return err
		}
		if len(group) == 0 {
			return b.endBatchJob(ctx, j, protocol.BatchCompleted, "")
		}
		if err := b.acquireSlot(ctx, j, b.batchJobs.applying); err != nil {
			return err
		}
		err = b.applyBatchGroup(ctx, j, group)
		<-b.batchJobs.applying
		if err != nil {
			return err
		}
		after = group[len(group)-1].Number
		sleep(ctx, time.Until(began.Add(time.Duration(len(group))*time.Second/time.Duration(j.Rate))))
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// acquireSlot waits for a slot of a semaphore that the jobs of this app share, and renews the job's lease meanwhile.
// The caller releases the slot.
func (b *Broker) acquireSlot(ctx context.Context, j *engine.BatchJob, semaphore chan<- struct{}) error {
	for {
		select {
		case semaphore <- struct{}{}:
			return nil
		case <-time.After(batchLease / 3):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := b.changeBatchJob(ctx, j, store.Keys{}, func(
			_ store.Rows, row engine.BatchJob, _ time.Time,
		) store.Writes {
			return store.Writes{BatchJobs: []engine.BatchJob{row}}
		}); err != nil {
			return err
		}
	}
}

// collectBatchRuns stores the next page of a job's run IDs. A job contains no run that started after its creation.
func (b *Broker) collectBatchRuns(ctx context.Context, j *engine.BatchJob) error {
	types, err := b.AttributeTypes(ctx, j.Namespace)
	if err != nil {
		return err
	}
	q, err := view.BatchQuery(j.Namespace, j.Query, j.Action, types)
	if err != nil { // a search attribute of the query was removed
		return b.endBatchJob(ctx, j, protocol.BatchFailed, err.Error())
	}
	q.Where = append(q.Where, store.Condition{
		Field: store.FieldStarted, Test: store.AtMost, Values: []any{j.CreatedAt.Micros()},
	})
	q.AfterStart, q.AfterRun = j.AfterStart, j.AfterRun
	q.Limit, q.Budget = min(batchPage, j.Limit-int(j.Runs)), time.Second
	if err := b.acquireSlot(ctx, j, b.batchJobs.searching); err != nil {
		return err
	}
	var list store.RunList
	err = b.store.View(ctx, func(r store.Reader) (err error) {
		list, err = r.Runs(ctx, q)
		return err
	})
	<-b.batchJobs.searching
	if err != nil {
		return err
	}
	return b.changeBatchJob(ctx, j, store.Keys{}, func(
		_ store.Rows, row engine.BatchJob, _ time.Time,
	) store.Writes {
		next, rows := row.Collect(list.Heads, len(list.Heads) < q.Limit && list.SearchedTo.Run == "")
		if to := list.SearchedTo; to.Run != "" {
			next.AfterStart, next.AfterRun = to.Start, to.Run
		}
		return store.Writes{BatchJobs: []engine.BatchJob{next}, BatchRuns: rows}
	})
}

// applyBatchGroup applies the action to a group of runs at the same time, so that they share a commit, and stores the
// refusals.
func (b *Broker) applyBatchGroup(ctx context.Context, j *engine.BatchJob, group []engine.BatchRun) error {
	errs := make([]error, len(group))
	var applying sync.WaitGroup
	for i := range group {
		applying.Go(func() { errs[i] = b.applyBatchAction(ctx, j, &group[i]) })
	}
	applying.Wait()
	var refused []engine.BatchRun
	for i, err := range errs {
		if err == nil {
			continue
		}
		r, ok := refusalOf(group[i], err)
		if !ok {
			return err
		}
		refused = append(refused, r)
	}
	if len(refused) == 0 {
		return nil
	}
	return b.changeBatchJob(ctx, j, store.Keys{}, func(
		_ store.Rows, row engine.BatchJob, now time.Time,
	) store.Writes {
		results := slices.Clone(refused)
		for i := range results {
			results[i].At.Time = now
			row = row.Record(results[i].State)
		}
		return store.Writes{BatchJobs: []engine.BatchJob{row}, BatchRuns: results}
	})
}

// endBatchJob closes a job.
func (b *Broker) endBatchJob(ctx context.Context, j *engine.BatchJob, s protocol.BatchJobState, why string) error {
	return b.changeBatchJob(ctx, j, store.Keys{Namespaces: []string{j.Namespace}}, func(
		rows store.Rows, row engine.BatchJob, now time.Time,
	) store.Writes {
		return closeBatchJob(rows, row.Close(s, "", why, now))
	})
}
