package broker

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Expired runs are deleted in the background, each in its own transaction, which first checks that the run is still
// closed. So another commit waits for at most one of these transactions, and the clean-up of a large namespace delays
// no request.

// Retention returns the closed runs of a namespace that are older than the retention of the namespace.
func (b *Broker) Retention(ctx context.Context, ns string) (protocol.RetentionStatus, error) {
	v, err := b.Namespace(ctx, transaction.NamespaceOrDefault(ns))
	if err != nil {
		return protocol.RetentionStatus{}, err
	}
	now, err := b.store.Now(ctx)
	if err != nil {
		return protocol.RetentionStatus{}, err
	}
	// The cutoff uses the store's clock, which all apps share. If apps used their own clocks, they would delete
	// different runs.
	cutoff := now.Add(-time.Duration(v.RetentionDays) * 24 * time.Hour)
	s := protocol.RetentionStatus{
		Namespace: v.Name, RetentionDays: v.RetentionDays, Cutoff: history.At(cutoff), RunIDs: []string{},
		ScanLimit: deleteBatchSize,
	}
	err = b.store.View(ctx, func(r store.Reader) error {
		heads, err := r.Outdated(ctx, v.Name, cutoff, deleteBatchSize)
		for _, h := range heads {
			s.RunIDs = append(s.RunIDs, h.ID)
		}
		return err
	})
	s.Count, s.Pressure = len(s.RunIDs), len(s.RunIDs) == deleteBatchSize
	return s, err
}

// RetentionPass removes expired runs, each in its own transaction, so that other transactions are committed in between.
// It skips runs that no longer exist. If the request names runs, it removes only these, and skips runs that are not
// expired.
func (b *Broker) RetentionPass(ctx context.Context, in protocol.RetentionRequest) (protocol.RetentionPass, error) {
	p := protocol.RetentionPass{Results: []protocol.RetentionResult{}}
	if err := protocol.CheckLimits(in); err != nil {
		return p, err
	}
	count := func(ids, gone []string) {
		for _, id := range ids {
			outcome := "pruned"
			if !slices.Contains(gone, id) {
				outcome = "skipped"
				p.Skipped++
			}
			p.Results = append(p.Results, protocol.RetentionResult{RunID: id, Outcome: outcome})
		}
		p.Processed += len(ids)
		p.Pruned += len(gone)
	}
	if in.RunIDs == nil {
		return p, b.removeExpired(ctx, in.Namespace, in.Limit, count)
	}
	s, err := b.Retention(ctx, in.Namespace)
	if err != nil {
		return p, err
	}
	named := slices.Clone(in.RunIDs)
	slices.Sort(named)
	named = slices.Compact(named)
	if in.Limit > 0 {
		named = named[:min(in.Limit, len(named))]
	}
	for ids := range slices.Chunk(named, deleteBatchSize) {
		gone, err := b.removeRuns(ctx, ids, func(r *engine.Run) bool {
			return r.Namespace == s.Namespace && r.ClosedAt.Before(s.Cutoff.Time)
		})
		if err != nil {
			return p, err
		}
		count(ids, gone)
	}
	return p, nil
}

// removeExpired removes the expired runs of a namespace, at most limit of them (0: all). After each batch it calls
// piece with the IDs of the runs that were due and of the runs that were removed.
func (b *Broker) removeExpired(ctx context.Context, ns string, limit int, piece func(ids, gone []string)) error {
	for left := limit; ; {
		s, err := b.Retention(ctx, ns)
		if err != nil {
			return err
		}
		if s.Count == 0 {
			return b.removeTimelines(ctx, s)
		}
		due := s.RunIDs
		if limit > 0 {
			due = due[:min(left, len(due))]
			left -= len(due)
		}
		gone, err := b.removeRuns(ctx, due, nil)
		if err != nil {
			return err
		}
		piece(due, gone)
		// If no run of a batch was removed, the next read would return the same batch, so leave it to the next pass.
		if len(gone) == 0 || !s.Pressure || limit > 0 && left == 0 {
			return b.removeTimelines(ctx, s)
		}
		runtime.Gosched()
	}
}

// removeTimelines deletes the timelines of deleted sessions once their last entry is older than the retention of closed
// runs. Until then users can read them.
func (b *Broker) removeTimelines(ctx context.Context, s protocol.RetentionStatus) error {
	for {
		var old []engine.SessionKey
		err := b.store.View(ctx, func(r store.Reader) (err error) {
			old, err = r.Forgettable(ctx, s.Namespace, s.Cutoff.Time, deleteBatchSize)
			return err
		})
		if err != nil || len(old) == 0 {
			return err
		}
		gone, err := transaction.Commit[int](ctx, b.store, store.Transaction{
			Needs: store.Keys{Sessions: old},
			Decide: func(rows store.Rows, _ time.Time) (store.Writes, error) {
				// If a session with that ID was created meanwhile, the timeline belongs to it.
				old := slices.DeleteFunc(slices.Clone(old), func(k engine.SessionKey) bool { return rows.Session(k) != nil })
				return store.Writes{DropTimelines: old, Answer: len(old)}, nil
			},
		})
		if err != nil || gone == 0 || len(old) < deleteBatchSize {
			return err
		}
		runtime.Gosched()
	}
}

// Prune deletes expired data of every namespace, workers that ended long ago, and routing keys that had no task for a
// day. It returns the time until the next expiry: zero if no closed run is stored. An error in one namespace does not
// affect the others.
func (b *Broker) Prune(ctx context.Context) (next time.Duration, err error) {
	all, err := b.Namespaces(ctx, func(string) bool { return true })
	if err != nil {
		return 0, err
	}
	var failed []error
	for _, v := range all {
		wait, err := b.pruneNamespace(ctx, v)
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		// otherwise the namespace was removed meanwhile
		case err != nil && protocol.ReasonOf(err) != protocol.ReasonNamespaceNotFound:
			failed = append(failed, fmt.Errorf("namespace %s: %w", v.Name, err))
		case wait > 0 && (next == 0 || wait < next):
			next = wait
		}
	}
	if _, err := b.store.Commit(ctx, store.Transaction{
		Background: true,
		Decide:     func(store.Rows, time.Time) (store.Writes, error) { return store.Writes{DropRoutingKeys: true}, nil },
	}); err != nil {
		failed = append(failed, fmt.Errorf("drop unused routing keys: %w", err))
	}
	if err := b.pruneAudit(ctx); err != nil {
		failed = append(failed, fmt.Errorf("audit log: %w", err))
	}
	wait, err := b.logs.Prune(ctx)
	if wait > 0 && (next == 0 || wait < next) {
		next = wait
	}
	return next, errors.Join(append(failed, err)...)
}

// pruneAudit removes audit entries older than Options.AuditAge. No pass is scheduled for audit entries alone, so an
// entry may stay for one more day.
func (b *Broker) pruneAudit(ctx context.Context) error {
	now, err := b.store.Now(ctx)
	if err != nil {
		return err
	}
	for removed := 0; ; {
		var old []int64
		err := b.store.View(ctx, func(r store.Reader) (err error) {
			old, err = r.OldAudits(ctx, now.Add(-b.opt.AuditAge), deleteBatchSize)
			return err
		})
		if err != nil {
			return err
		}
		if len(old) == 0 {
			if removed > 0 {
				b.log.Info().Int("entries", removed).Msg("audit entries past their retention removed")
			}
			return nil
		}
		_, err = b.store.Commit(ctx, store.Transaction{
			Background: true,
			Decide:     func(store.Rows, time.Time) (store.Writes, error) { return store.Writes{DropAudits: old}, nil },
		})
		if err != nil {
			return err
		}
		removed += len(old)
	}
}

// pruneNamespace deletes the expired runs of a namespace, and then reads when the next run will expire.
func (b *Broker) pruneNamespace(ctx context.Context, v protocol.NamespaceView) (next time.Duration, err error) {
	pruned := 0
	err = b.removeExpired(ctx, v.Name, 0, func(_, gone []string) { pruned += len(gone) })
	if pruned > 0 {
		b.log.Info().Str("namespace", v.Name).Int("runs", pruned).Msg("runs past their retention removed")
	}
	if err != nil {
		return 0, err
	}
	now, err := b.store.Now(ctx)
	if err == nil {
		err = b.workers.Prune(ctx, v.Name)
	}
	if err == nil {
		err = b.dropSchedules(ctx, v.Name, now.Add(-time.Duration(v.RetentionDays)*24*time.Hour))
	}
	if err == nil {
		err = b.dropBatchJobs(ctx, v.Name, now.Add(-time.Duration(v.RetentionDays)*24*time.Hour))
	}
	if err != nil {
		return 0, err
	}
	var first time.Time
	err = b.store.View(ctx, func(r store.Reader) (err error) {
		first, err = r.FirstClosed(ctx, v.Name)
		return err
	})
	if err != nil || first.IsZero() {
		return 0, err
	}
	return max(first.Add(time.Duration(v.RetentionDays)*24*time.Hour).Sub(now), time.Second), nil
}

// dropSchedules deletes the rows of schedules that were deleted before a time; until then the API returns their
// history.
func (b *Broker) dropSchedules(ctx context.Context, ns string, before time.Time) error {
	for after := ""; ; {
		var list []engine.Schedule
		err := b.store.View(ctx, func(r store.Reader) (err error) {
			list, err = r.Schedules(ctx, ns, after, deleteBatchSize)
			return err
		})
		if err != nil {
			return err
		}
		for _, s := range list {
			after = s.ID
			if s.RemovedAt.IsZero() || !s.RemovedAt.Before(before) {
				continue
			}
			// The decision checks the age again, because a new schedule may have been created under the same ID.
			if _, err := b.decideSchedule(ctx, s.Key(), engine.ForgetSchedule{Before: before}); err != nil &&
				!engine.IsNotDue(err) {
				return err
			}
		}
		if len(list) < deleteBatchSize {
			return nil
		}
	}
}
