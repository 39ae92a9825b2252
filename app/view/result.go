package view

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
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
	t.Namespace = transaction.NamespaceOrDefault(t.Namespace)
	w := v.watchEnds(t)
	defer w.Stop()
	// On a shared database another app may have started a later run of the workflow ID.
	read := w.ends.Open == "" || v.opt.Shared && t.RunID == ""
	if !read {
		t.RunID = w.ends.Open
	}
	end, err := w.await(ctx, t, read, most)
	if err != nil || !full {
		return v.describeEnd(ctx, end, err)
	}
	if err := budget.Load(ctx, min(end.head.Bytes, maxDescribed)); err != nil {
		return protocol.RunView{}, err
	}
	t.RunID = end.head.ID
	return v.Describe(ctx, t)
}

// ResultWatch is a wait for the result of a run that begins before the start of the run: it cannot miss the end of the
// run, so it needs no read when it begins. See [View.WatchStart].
type ResultWatch struct {
	view       *View
	target     protocol.Target
	ends       *dispatch.RunEnds
	lost       <-chan time.Time
	stopNotice func()
}

// WatchStart subscribes to the ends of the runs of a workflow ID. The caller then starts the workflow and calls Result,
// and in any case Stop.
func (v *View) WatchStart(namespace, workflow string) *ResultWatch {
	return v.watchEnds(protocol.Target{Namespace: transaction.NamespaceOrDefault(namespace), WorkflowID: workflow})
}

func (v *View) watchEnds(t protocol.Target) *ResultWatch {
	key := engine.WorkflowKey{Namespace: t.Namespace, ID: t.WorkflowID}
	w := &ResultWatch{view: v, target: t, ends: v.opt.Dispatch.WatchRunEnds(key, t.RunID)}
	w.lost, w.stopNotice = v.lostNotices()
	return w
}

// Stop ends the subscription.
func (w *ResultWatch) Stop() {
	w.stopNotice()
	w.ends.Stop()
}

// Result is like View.Result. With read, it first reads the run; otherwise the caller knows that the run was open after
// the subscription began.
func (w *ResultWatch) Result(
	ctx context.Context, run string, read bool, most time.Duration,
) (protocol.RunView, error) {
	t := w.target
	t.RunID = run
	end, err := w.await(ctx, t, read, most)
	return w.view.describeEnd(ctx, end, err)
}

// describeEnd returns the last run of a chain with its outcome, or the error of the wait.
func (v *View) describeEnd(ctx context.Context, end chainEnd, err error) (protocol.RunView, error) {
	if err != nil {
		return protocol.RunView{}, err
	}
	shown := runView(end.head)
	shown.RunCount, shown.Current = end.head.Number, end.current
	if end.head.Status.Open() {
		return shown, nil
	}
	if end.last == nil { // there was not enough memory to read it together with the run
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
	head    *engine.Head
	last    *history.Event
	current bool // the workflow ID refers to this run
}

func (e *chainEnd) readLast(ctx context.Context, r store.Reader) error {
	last, err := r.LastEvent(ctx, e.head.ID)
	if errors.Is(err, store.ErrNotFound) { // deleted meanwhile
		return transaction.RunNotFound(e.head.ID)
	}
	e.last = &last
	return err
}

// await waits until the last run of a chain has closed. It returns the open run when the time ends or the app drains.
// With read, it first reads the run; otherwise the caller knows that the run of t was open after the subscription
// began.
func (w *ResultWatch) await(ctx context.Context, t protocol.Target, read bool, most time.Duration) (chainEnd, error) {
	v := w.view
	timeout := time.NewTimer(most)
	defer timeout.Stop()
	for {
		if read {
			end, err := v.lastRun(ctx, t)
			if err != nil || !end.head.Status.Open() {
				return end, err
			}
			t.RunID = end.head.ID
			w.ends.Extend(end.head.WorkflowID)
		}
		last, missed := w.ends.Last(t.RunID)
		t.RunID, read = last.RunID, last.Closed || missed
		switch {
		case last.Closing != nil && last.Closing.Head.Status == protocol.RunTerminated:
			read = true // a new run of the workflow ID may have replaced this one
			continue
		case last.Closing != nil:
			err := budget.Load(ctx, int64(last.Closing.Event.Size()))
			return chainEnd{last.Closing.Head, last.Closing.Event, true}, err
		case read:
			continue
		}
		select {
		case <-w.ends.C:
		case <-w.lost:
			read = true
		case <-v.opt.AppState.Drained():
			return v.lastRun(ctx, t)
		case <-timeout.C:
			return v.lastRun(ctx, t)
		case <-ctx.Done():
			return chainEnd{}, ctx.Err()
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
		end.current = end.head.Status.Open()
		if end.current || end.head.ContinuedTo != "" {
			return nil
		}
		flow, err := r.Workflow(ctx, engine.WorkflowKey{Namespace: end.head.Namespace, ID: end.head.WorkflowID})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		end.current = flow.RunID == end.head.ID
		if !budget.From(ctx).Try(budget.LoadFactor * min(end.head.Bytes, payload.MaxBytes)) {
			return nil
		}
		return end.readLast(ctx, r)
	})
	return end, err
}
