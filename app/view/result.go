package view

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The server waits for a result so that clients need not poll: a client that polls every second receives the result
// half a second late on average, and each poll costs a read. A run that continues as new has no result, so the wait
// continues with its successor. A wait costs no read for the steps of a run: see dispatch.RunEnds.

// Result waits until a run and the runs that continue it have closed, and returns the last run with its outcome. When
// the time ends first, or the app drains, Result returns the open run without an error, and the caller repeats the
// request. The returned run has neither its input nor its open steps; with full, Describe returns it.
//
// If this app knows that the run is open, the wait begins without a read. If this app commits the end of the chain, it
// returns the committed outcome without a read; else it reads the last run once.
func (v *View) Result(ctx context.Context, t protocol.Target, most time.Duration, full bool) (protocol.RunView, error) {
	waiting, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	t.Namespace = transaction.NamespaceOrDefault(t.Namespace)
	end, err := v.awaitEnd(ctx, waiting, t)
	if err != nil {
		return protocol.RunView{}, err
	}
	if full {
		if err := budget.Load(ctx, min(end.head.Bytes, maxDescribed)); err != nil {
			return protocol.RunView{}, err
		}
		t.RunID = end.head.ID
		return v.Describe(ctx, t)
	}
	shown := runView(end.head)
	shown.RunCount, shown.Current = end.head.Number, true
	if end.head.Status.Open() {
		return shown, nil
	}
	if end.last == nil { // there was not enough memory to read it with the run
		if err := budget.Load(ctx, min(end.head.Bytes, payload.MaxBytes)); err != nil {
			return protocol.RunView{}, err
		}
		err := v.store.View(ctx, func(r store.Reader) error { return end.readLast(ctx, r) })
		if err != nil {
			return protocol.RunView{}, err
		}
	}
	return shown, outcome(end.last, &shown)
}

// maxDescribed is the maximum number of payload bytes in a description: its input and its result.
const maxDescribed = 2 * payload.MaxBytes

// chainEnd is the last run of a chain and, if the run is closed and there was memory for it, its last event.
type chainEnd struct {
	head *engine.Head
	last *history.Event
}

func (e *chainEnd) readLast(ctx context.Context, r store.Reader) error {
	last, err := r.LastEvent(ctx, e.head.ID)
	if errors.Is(err, store.ErrNotFound) { // deleted meanwhile
		return transaction.RunNotFound(e.head.ID)
	}
	e.last = &last
	return err
}

// awaitEnd waits until the last run of a chain has closed. It returns the open run when waiting is done or the app
// drains.
func (v *View) awaitEnd(ctx, waiting context.Context, t protocol.Target) (chainEnd, error) {
	ends := v.opt.Dispatch.WatchRunEnds(engine.WorkflowKey{Namespace: t.Namespace, ID: t.WorkflowID}, t.RunID)
	defer ends.Stop()
	lost, stop := v.lostNotices()
	defer stop()
	// On a shared database another app may have started a later run of the workflow ID.
	read := ends.Open == "" || v.opt.Shared && t.RunID == ""
	if !read {
		t.RunID = ends.Open
	}
	for {
		if read {
			end, err := v.lastRun(ctx, t)
			if err != nil || !end.head.Status.Open() {
				return end, err
			}
			t.RunID = end.head.ID
			ends.Extend(end.head.WorkflowID)
		}
		last, missed := ends.Last(t.RunID)
		t.RunID, read = last.RunID, last.Closed || missed
		switch {
		case last.Closing != nil:
			err := budget.Load(ctx, int64(last.Closing.Event.Size()))
			return chainEnd{last.Closing.Head, last.Closing.Event}, err
		case read:
			continue
		}
		select {
		case <-ends.C:
		case <-lost:
			read = true
		case <-v.opt.AppState.Drained():
			return v.lastRun(ctx, t)
		case <-waiting.Done():
			if ctx.Err() != nil {
				return chainEnd{}, ctx.Err()
			}
			return v.lastRun(ctx, t)
		}
	}
}

// lastRun follows a chain of runs to its open run or its last run, with one read per run.
func (v *View) lastRun(ctx context.Context, t protocol.Target) (chainEnd, error) {
	for {
		end, err := v.readEnd(ctx, t)
		if err != nil || end.head.Status.Open() || end.head.ContinuedTo == "" {
			return end, err
		}
		t.RunID = end.head.ContinuedTo
	}
}

// readEnd reads a run or, without a run ID, the current run of a workflow ID. Of the last run of a chain it also reads
// the last event, if memory for it is free at once.
func (v *View) readEnd(ctx context.Context, t protocol.Target) (end chainEnd, err error) {
	err = v.store.View(ctx, func(r store.Reader) error {
		if end.head, err = transaction.FindHead(ctx, r, t); err != nil {
			return err
		}
		if end.head.Status.Open() || end.head.ContinuedTo != "" ||
			!budget.From(ctx).Try(budget.LoadFactor*min(end.head.Bytes, payload.MaxBytes)) {
			return nil
		}
		return end.readLast(ctx, r)
	})
	return end, err
}
