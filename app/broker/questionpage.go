package broker

import (
	"context"
	"errors"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// begun is the first page of the history behind a question, for a worker that fetches the rest: a long history fits
// into no frame.
func (b *Broker) begun(ctx context.Context, q *store.Question) ([]history.Event, *string, payload.Payload, error) {
	page, err := b.page(ctx, q.RunID, 0, q.LastSeq, maxPage)
	return page.Events, page.NextPageToken, startArguments(page.Events), err
}

// pastOf is what a worker is given of the history behind a question: its first page, or all of it.
func (b *Broker) pastOf(
	ctx context.Context, q *store.Question, paged bool,
) ([]history.Event, *string, payload.Payload, error) {
	if paged {
		return b.begun(ctx, q)
	}
	events, args, err := b.past(ctx, q)
	return events, nil, args, err
}

// startArguments are what a run was started with, by its first event.
func startArguments(events []history.Event) (args payload.Payload) {
	if len(events) > 0 {
		if s, ok := events[0].Data.(*history.WorkflowStarted); ok {
			args.Blob = s.Arguments
		}
	}
	return args
}

// questionPage is a further page of the history behind a leased question, which ends where the question found it.
func (b *Broker) questionPage(ctx context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	q, err := b.questions.get(ctx, in.TaskID)
	switch {
	case errors.Is(err, store.ErrNotFound), err == nil && (q.Namespace != namespace(in.Namespace) || !q.Kind.Asked()):
		return protocol.HistoryPage{}, noTask(in.TaskID)
	case err != nil:
		return protocol.HistoryPage{}, err
	}
	sight := b.sight(ctx, q.Namespace, q.Kind, q.ID, in.Owner)
	if err := sight.question(&q); err != nil {
		return protocol.HistoryPage{}, err
	}
	if err := holdsQuestion(&q, protocol.CompleteItem{Owner: in.Owner, Attempt: in.Attempt}); err != nil {
		return protocol.HistoryPage{}, sight.refused(err)
	}
	after, err := parsePage(in.PageToken)
	if err != nil {
		return protocol.HistoryPage{}, err
	}
	size := in.PageSize
	if size <= 0 {
		size = maxPage
	}
	p, err := b.page(ctx, q.RunID, after, q.LastSeq, size)
	p.TaskID, p.Attempt, p.More = in.TaskID, in.Attempt, p.NextPageToken != nil
	return p, err
}
