package broker

import (
	"context"
	"maps"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
)

const (
	// stuckInterval is the interval of passes that mark runs whose tasks no live worker may lease. The marks are
	// outdated by at most this interval and the time of one pass.
	stuckInterval = 10 * time.Second
	// maxStuckMarks is the maximum number of marks that one statement writes, so that it holds locks only briefly.
	maxStuckMarks = 10_000
	// stuckPauseFactor limits the share of time that passes take: after a pass follows a pause of this many times its
	// duration, at most longestPause.
	stuckPauseFactor = 5
	longestPause     = 20 * time.Second
)

// WatchStuck sets and clears the marks of stuck runs until ctx ends. If nothing was committed, the same workers are
// alive, and every ready task has been ready for longer than the limits, a pass would have the same result as the
// previous one, so no statement is sent.
func (b *Broker) WatchStuck(ctx context.Context) {
	var seen uint64
	var living map[engine.WorkerKey]bool
	var changed time.Time // time of the last change of the workers or of the commits
	final, failing := false, false
	for {
		pause := stuckInterval
		if n, live := b.dispatch.Changes(), b.liveWorkers(); changed.IsZero() || n != seen || !maps.Equal(live, living) {
			seen, living, changed, final = n, live, time.Now(), false
		}
		if !final {
			began := time.Now()
			final = began.Sub(changed) > max(engine.StuckUnserved, engine.StuckPlace)
			err := b.markStuck(ctx)
			if err != nil && !failing && ctx.Err() == nil {
				store.Warn(&b.log, err).Msg("failed to mark runs without a worker as stuck; retrying")
			}
			failing, final = err != nil, final && err == nil
			pause = min(max(pause, stuckPauseFactor*time.Since(began)), longestPause)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// liveWorkers returns the workers whose last heartbeat at this app is recent enough.
func (b *Broker) liveWorkers() map[engine.WorkerKey]bool {
	live := map[engine.WorkerKey]bool{}
	for k, h := range b.workers.All("") {
		if b.workers.ReceivesHeartbeats(h) {
			live[k] = true
		}
	}
	return live
}

// markStuck runs one pass that marks stuck runs. The number of its statements depends on the namespaces with ready
// tasks, not on the runs, unless more than maxStuckMarks marks must be written.
func (b *Broker) markStuck(ctx context.Context) error {
	unserved, err := b.view.UnservedRoutingKeys(ctx)
	if err != nil {
		return err
	}
	for {
		var runs []store.UnservedRun
		err := b.store.View(ctx, func(r store.Reader) (err error) {
			runs, err = r.Unserved(ctx, unserved, maxStuckMarks)
			return err
		})
		if err != nil || len(runs) == 0 {
			return err
		}
		if _, err = b.store.Commit(ctx, store.Transaction{
			Background: true,
			Decide:     func(store.Rows, time.Time) (store.Writes, error) { return store.Writes{Unserved: runs}, nil },
		}); err != nil {
			return err
		}
		if removed := runs[0].Stuck == nil; !removed && len(runs) < maxStuckMarks {
			return nil
		}
	}
}
