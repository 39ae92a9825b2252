package broker

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// followRound is how often a follower of a run looks by itself where other apps write too and a hint may be lost.
const followRound = 30 * time.Second

// Follower is told of a run's history as it grows.
type Follower struct {
	Begin func(run protocol.RunView) error // once, before anything else: the run is there
	Event func(history.Event) error
	Beat  func() error // nothing came for a while
	Every time.Duration
}

// Follow tells of the events of a run after a sequence, and of new ones as they are committed, until the run is closed
// and all was told: then the answer is true. It ends earlier with ctx, with the app, or when the follower fails. While
// nothing happens nothing is asked of the store, but for a rare look where other apps write too.
func (b *Broker) Follow(ctx context.Context, t protocol.Target, after int64, f Follower) (closed bool, err error) {
	t.Namespace = change.Namespace(t.Namespace)
	run, err := b.runStatus(ctx, t)
	if err != nil {
		return false, err
	}
	t.RunID = run.RunID
	changed, round, stop := b.runChanges(run.RunID)
	defer stop()
	if err := f.Begin(run); err != nil {
		return false, err
	}
	beat := time.NewTicker(f.Every)
	defer beat.Stop()
	for {
		if run, err = b.runStatus(ctx, t); err != nil {
			return false, err
		}
		for after < run.HistoryLength {
			page, err := change.Page(ctx, b.store, run.RunID, after, run.HistoryLength, change.MaxPage)
			if err != nil {
				return false, err
			}
			for _, e := range page.Events {
				if err := f.Event(e); err != nil {
					return false, err
				}
				after = e.Seq
			}
			if len(page.Events) == 0 {
				break
			}
		}
		if run.Terminal {
			return true, nil
		}
		for looking := false; !looking; {
			select {
			case <-changed:
				looking = true
			case <-round:
				looking = true
			case <-beat.C:
				if err := f.Beat(); err != nil {
					return false, err
				}
			case <-b.drained:
				return false, nil
			case <-ctx.Done():
				return false, ctx.Err()
			}
		}
	}
}

// runChanges wakes who waits for something in a run: when it got events, and now and then by itself where other apps
// write too and a hint may be lost. Start it before looking, and nothing is missed.
func (b *Broker) runChanges(run string) (changed <-chan struct{}, round <-chan time.Time, stop func()) {
	changed, end := b.dispatch.WatchRun(run)
	if !b.opt.Shared {
		return changed, nil, end
	}
	ticker := time.NewTicker(followRound)
	return changed, ticker.C, func() { ticker.Stop(); end() }
}

// runStatus is a run's own row as it is shown.
func (b *Broker) runStatus(ctx context.Context, t protocol.Target) (v protocol.RunView, err error) {
	err = b.store.View(ctx, func(r store.Reader) error {
		run, flow, err := find(ctx, r, t)
		if err != nil {
			return err
		}
		v = runView(&run.Head)
		v.RunCount, v.Current = flow.Runs, flow.RunID == run.ID
		return nil
	})
	return v, err
}
