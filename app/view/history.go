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
	events, p, err := readHistory(ctx, v, in, pageReader[history.Event]{
		read: func(ctx context.Context, r store.Reader, run *engine.Head, after int64, size int) ([]history.Event, error) {
			return r.Events(ctx, run.ID, after, run.LastSeq, size, transaction.MaxPageSize)
		},
		last: func(e *history.Event) int64 { return e.Seq },
		size: func(e *history.Event) int { return e.Size() },
	})
	p.Events = events
	return p, err
}

// Outlines reads a page of a run's history like History, but without the values of events, or only with the beginnings
// of the values, for previews.
func (v *View) Outlines(
	ctx context.Context, in protocol.HistoryQuery, values protocol.Values,
) ([]history.Outline, *string, error) {
	events, p, err := readHistory(ctx, v, in, pageReader[history.Outline]{
		read: func(ctx context.Context, r store.Reader, run *engine.Head, after int64, size int) ([]history.Outline, error) {
			return r.Outlines(ctx, run.ID, after, run.LastSeq, size, transaction.MaxPageSize, keptBytes(values))
		},
		last: func(o *history.Outline) int64 { return o.Seq },
		size: (*history.Outline).Bytes,
	})
	return events, p.NextPageToken, err
}

// pageReader reads events in one of their forms.
type pageReader[E any] struct {
	read func(ctx context.Context, r store.Reader, run *engine.Head, after int64, size int) ([]E, error)
	last func(*E) int64 // returns the sequence of an event
	size func(*E) int   // returns the size of an event in bytes
}

// readHistory reads a page of events, and waits for a new event if the query requests it. The returned page has no
// events.
func readHistory[E any](
	ctx context.Context, v *View, in protocol.HistoryQuery, reader pageReader[E],
) (events []E, p protocol.HistoryPage, err error) {
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	after, err := transaction.ParsePage(in.PageToken)
	if err != nil {
		return nil, p, err
	}
	after = max(after, in.After)
	size := pageSize(in.PageSize, transaction.MaxPage, transaction.MaxPage)
	var run *engine.Head
	read := func() error {
		err := v.store.View(ctx, func(r store.Reader) (err error) {
			run, err = transaction.FindHead(ctx, r, in.Target)
			return err
		})
		if err != nil {
			return err
		}
		bytes, reserved := min(run.Bytes, transaction.MaxPageSize), ctx.Value(wholeHistoryKey{}) != nil
		if !reserved {
			if err := budget.Load(ctx, bytes); err != nil {
				return err
			}
		}
		err = v.store.View(ctx, func(r store.Reader) (err error) {
			events, err = reader.read(ctx, r, run, after, size)
			return err
		})
		if !reserved {
			var used int64
			for i := range events {
				used += int64(reader.size(&events[i]))
			}
			budget.Loaded(ctx, bytes, used)
		}
		p = protocol.HistoryPage{TotalEvents: run.LastSeq}
		if n := len(events); n == 0 {
			events = []E{}
		} else if last := reader.last(&events[n-1]); last < run.LastSeq {
			p.NextPageToken = transaction.PageToken(last)
		}
		if in.Wait && p.NextPageToken == nil && run.Status.Open() {
			p.NextPageToken = transaction.PageToken(run.LastSeq) // more events will follow: the token to wait with
		}
		return err
	}
	if err := read(); err != nil || !in.Wait || len(events) > 0 || !run.Status.Open() {
		return events, p, err
	}
	changed, stop := v.opt.Dispatch.WatchRun(run.ID)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, maxHistoryWait)
	defer cancel()
	for {
		if err := read(); err != nil || len(events) > 0 || !run.Status.Open() {
			return events, p, err
		}
		select {
		case <-changed:
			continue
		case <-v.opt.AppState.Drained():
		case <-ctx.Done():
		}
		return events, p, nil
	}
}
