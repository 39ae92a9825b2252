package view

import (
	"context"
	"errors"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The server waits for a result so that clients need not poll: a client that polls every second receives the result
// half a second late on average, and each poll costs a read. A run that continues as new has no result, so the wait
// continues with its successor.

// Result waits until a run and the runs that continue it have closed, and returns the last run with its outcome. When
// the time ends first, or the app drains, Result returns the open run without an error, and the caller repeats the
// request. While it waits it reads nothing, except that on a shared database it rarely reads the run.
func (v *View) Result(ctx context.Context, t protocol.Target, most time.Duration) (protocol.RunView, error) {
	waiting, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	t.Namespace = transaction.NamespaceOrDefault(t.Namespace)
	for {
		next, bytes, err := v.awaitClose(ctx, waiting, &t)
		switch {
		case err != nil:
			return protocol.RunView{}, err
		case next == "":
			if err := budget.Load(ctx, min(bytes, maxDescribed)); err != nil {
				return protocol.RunView{}, err
			}
			return v.Describe(ctx, t)
		}
		t.RunID = next
	}
}

// maxDescribed is the maximum number of payload bytes in a description: its input and its result.
const maxDescribed = 2 * payload.MaxBytes

// awaitClose waits until a run has closed, or waiting is done. It sets the run in t; next is the run it continued as,
// bytes the size of its history. At each event it reads only the head of the run, however many steps are open.
func (v *View) awaitClose(
	ctx, waiting context.Context, t *protocol.Target,
) (next string, bytes int64, err error) {
	run, err := v.runStatus(ctx, *t)
	if err != nil {
		return "", 0, err
	}
	t.RunID = run.RunID
	// Watched before it is read: a run that closed in between would be waited for until its time has ended.
	changed, round, stop := v.RunChanges(run.RunID)
	defer stop()
	for {
		var now *engine.Run
		err := v.store.View(ctx, func(r store.Reader) (err error) {
			now, err = r.Step(ctx, t.RunID, 0)
			return err
		})
		switch {
		case errors.Is(err, store.ErrNotFound): // removed meanwhile: who describes it says so
			return "", bytes, nil
		case err != nil:
			return "", 0, err
		case !now.Status.Open():
			return now.ContinuedTo, now.Bytes, nil
		}
		bytes = now.Bytes
		select {
		case <-changed:
		case <-round:
		case <-v.opt.Known.Drained():
			return "", bytes, nil
		case <-waiting.Done():
			return "", bytes, ctx.Err()
		}
	}
}
