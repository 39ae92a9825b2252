package querytask

import (
	"context"

	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
)

// A query covers the run's state when the query arrived: the pages end at the last event of that time, so a worker that
// reads the second page late does not answer for another state.

// historyOf returns the history that a query task covers, and the arguments of the run.
func (p *Pending) historyOf(
	ctx context.Context, q *store.Question,
) (events []history.Event, args payload.Payload, err error) {
	for after := int64(0); after < q.LastSeq; {
		page, err := transaction.Page(ctx, p.store, q.RunID, after, q.LastSeq, transaction.MaxPage)
		if err != nil {
			return nil, args, err
		}
		if len(page.Events) == 0 {
			break
		}
		events = append(events, page.Events...)
		after = page.Events[len(page.Events)-1].Seq
	}
	return events, startArguments(events), nil
}

// firstPage returns the first page of the history of a query task, for a worker that reads the other pages: a long
// history does not fit into a frame.
func (p *Pending) firstPage(ctx context.Context, q *store.Question) ([]history.Event, *string, payload.Payload, error) {
	// Use half a page, since the task also contains the arguments of the run and of the query.
	page, err := transaction.PageOfSize(
		ctx, p.store, q.RunID, 0, q.LastSeq, transaction.MaxPage, transaction.MaxPageSize/2,
	)
	return page.Events, page.NextPageToken, startArguments(page.Events), err
}

// Snapshot returns the history for a query task: the first page, or all of it.
func (p *Pending) Snapshot(
	ctx context.Context, q *store.Question, paged bool,
) ([]history.Event, *string, payload.Payload, error) {
	if paged {
		return p.firstPage(ctx, q)
	}
	events, args, err := p.historyOf(ctx, q)
	return events, nil, args, err
}

// startArguments returns the arguments of a run, from its first event.
func startArguments(events []history.Event) (args payload.Payload) {
	if len(events) > 0 {
		if s, ok := events[0].Data.(*history.WorkflowStarted); ok {
			args.Blob = s.Arguments
		}
	}
	return args
}
