package view

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// History is read in pages that are limited in bytes and in events, since an event may be as large as its payloads. A
// wait for new events is a long poll: it ends with a new event, after its time, or when the app drains.

// maxHistoryWait is the maximum time that a history request waits for a new event.
const maxHistoryWait = 30 * time.Second

type wholeHistoryKey struct{}

// ReserveHistory waits until there is memory for the whole history of a run, and returns a context under which History
// reads its pages without reserving more. It is for callers that keep all pages: if two callers reserved page by page,
// each could hold what the other one waits for. Nothing else should be reserved before, for the same reason.
func (v *View) ReserveHistory(ctx context.Context, t protocol.Target) (context.Context, error) {
	t.Namespace = transaction.NamespaceOrDefault(t.Namespace)
	var bytes int64
	err := v.store.View(ctx, func(r store.Reader) error {
		run, err := transaction.FindHead(ctx, r, t)
		if err == nil {
			bytes = run.Bytes
		}
		return err
	})
	if err == nil {
		err = budget.Load(ctx, bytes)
	}
	return context.WithValue(ctx, wholeHistoryKey{}, true), err
}

// History reads a page of a run's history. With Wait it waits until there is an event after the token; as long as the
// run is open, the answer contains the next token.
func (v *View) History(ctx context.Context, in protocol.HistoryQuery) (protocol.HistoryPage, error) {
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	after, err := transaction.ParsePage(in.PageToken)
	if err != nil {
		return protocol.HistoryPage{}, err
	}
	var run *engine.Head
	look := func() (protocol.HistoryPage, error) {
		err := v.store.View(ctx, func(r store.Reader) error {
			run, err = transaction.FindHead(ctx, r, in.Target)
			return err
		})
		if err != nil {
			return protocol.HistoryPage{}, err
		}
		size, bytes := pageSize(in.PageSize, transaction.MaxPage, transaction.MaxPage), min(
			run.Bytes, transaction.MaxPageSize,
		)
		reserved := ctx.Value(wholeHistoryKey{}) != nil
		if !reserved {
			if err := budget.Load(ctx, bytes); err != nil {
				return protocol.HistoryPage{}, err
			}
		}
		p, err := transaction.Page(ctx, v.store, run.ID, after, run.LastSeq, size)
		if !reserved {
			budget.Loaded(ctx, bytes, int64(history.SizeOf(p.Events)))
		}
		if in.Wait && p.NextPageToken == nil && run.Status.Open() {
			p.NextPageToken = transaction.PageToken(run.LastSeq) // there will be more: this is where to wait for it
		}
		return p, err
	}
	p, err := look()
	if err != nil || !in.Wait || len(p.Events) > 0 || !run.Status.Open() {
		return p, err
	}
	changed, stop := v.opt.Dispatch.WatchRun(run.ID)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, maxHistoryWait)
	defer cancel()
	for {
		if p, err = look(); err != nil || len(p.Events) > 0 || !run.Status.Open() {
			return p, err
		}
		select {
		case <-changed:
			continue
		case <-v.opt.AppState.Drained():
		case <-ctx.Done():
		}
		return p, nil
	}
}
