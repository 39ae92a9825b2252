package view

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A follower reads the history repeatedly from its last position. It subscribes to changes before each read; otherwise
// an event between the read and the subscription would be delayed until the next event.

// Follower receives a run's history as it grows.
type Follower struct {
	Begin func(run protocol.RunView) error // called once before all others, when the run was found
	Event func(history.Event) error
	// Outline, if set, receives outlines of the events, and Event nothing. Values selects their values.
	Outline func(history.Outline) error
	Values  protocol.Values
	Beat    func() error // called when no event was sent for a while
	Every   time.Duration
}

// Follow sends the events of a run after a sequence number, then new events as they are committed. It returns true once
// the run is closed and all events were sent. It ends earlier with ctx, with the app, or if the follower fails. While
// nothing happens it does not read the store, except every followRound on a shared database.
func (v *View) Follow(ctx context.Context, t protocol.Target, after int64, f Follower) (closed bool, err error) {
	t.Namespace = transaction.NamespaceOrDefault(t.Namespace)
	run, err := v.runStatus(ctx, t)
	if err != nil {
		return false, err
	}
	t.RunID = run.RunID
	changed, round, stop := v.RunChanges(run.RunID)
	defer stop()
	if err := f.Begin(run); err != nil {
		return false, err
	}
	beat := time.NewTicker(f.Every)
	defer beat.Stop()
	for {
		if run, err = v.runStatus(ctx, t); err != nil {
			return false, err
		}
		for after < run.HistoryLength {
			last, err := v.followPage(ctx, run.RunID, after, run.HistoryLength, f)
			if err != nil {
				return false, err
			}
			if last == after {
				break // it was deleted meanwhile; the next read reports this
			}
			after = last
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
			case <-v.opt.AppState.Drained():
				return false, nil
			case <-ctx.Done():
				return false, ctx.Err()
			}
		}
	}
}

// followPage sends one page of events after a sequence number and returns the sequence number of the last one.
func (v *View) followPage(ctx context.Context, run string, after, through int64, f Follower) (int64, error) {
	if f.Outline == nil {
		page, err := transaction.Page(ctx, v.store, run, after, through, transaction.MaxPage)
		for i := 0; err == nil && i < len(page.Events); i++ {
			after = page.Events[i].Seq
			err = f.Event(page.Events[i])
		}
		return after, err
	}
	var list []history.Outline
	err := v.store.View(ctx, func(r store.Reader) (err error) {
		list, err = r.Outlines(
			ctx, run, after, through, transaction.MaxPage, transaction.MaxPageSize, keptBytes(f.Values),
		)
		return err
	})
	for i := 0; err == nil && i < len(list); i++ {
		after = list[i].Seq
		err = f.Outline(list[i])
	}
	return after, err
}

// runStatus returns the status of a run's row as the API shows it.
func (v *View) runStatus(ctx context.Context, t protocol.Target) (shown protocol.RunView, err error) {
	err = v.store.View(ctx, func(r store.Reader) error {
		run, flow, err := transaction.FindRow(ctx, r, t)
		if err != nil {
			return err
		}
		shown = runView(run)
		shown.Current = flow.RunID == run.ID
		shown.RunCount, err = runCount(ctx, r, run, flow)
		return err
	})
	return shown, err
}

// followRound is the interval at which a follower reads a run on a shared database, where a hint may be lost.
const followRound = 30 * time.Second

// RunChanges returns a channel that receives when the run has new events and, on a shared database, a periodic channel
// for lost hints. Subscribe before the first read; then no event is missed.
func (v *View) RunChanges(run string) (changed <-chan struct{}, round <-chan time.Time, stop func()) {
	changed, end := v.opt.Dispatch.WatchRun(run)
	round, stopRound := v.lostNotices()
	return changed, round, func() { stopRound(); end() }
}

// lostNotices returns a channel that receives at an interval on a shared database, where a notice of another app may be
// lost; nil on a database of one app.
func (v *View) lostNotices() (round <-chan time.Time, stop func()) {
	if !v.opt.Shared {
		return nil, func() {}
	}
	ticker := time.NewTicker(followRound)
	return ticker.C, ticker.Stop
}
