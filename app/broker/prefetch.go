package broker

import (
	"context"
	"slices"
	"sync"

	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A run that many results resume has more new events than fit on a page. The worker requests the other pages within
// milliseconds. At dispatch the events are in memory; from the store they would have to be read and decoded again.

// maxPrefetchedRuns is the maximum number of runs with prefetched events, with at most transaction.MaxPageSize bytes
// per run.
const maxPrefetchedRuns = 8

// historyPrefetch contains events of runs that follow the first pages of their tasks. Events are immutable, so they are
// valid for tasks of any worker.
type historyPrefetch struct {
	mu   sync.Mutex // guards the fields below
	runs [maxPrefetchedRuns]struct {
		id     string
		events []history.Event
	}
	next int // index of the oldest entry
}

func (a *historyPrefetch) add(run string, events []history.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := &a.runs[a.next]
	at.id, at.events = run, events
	a.next = (a.next + 1) % maxPrefetchedRuns
}

// drop removes the events of a run that has closed.
func (a *historyPrefetch) drop(run string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.runs {
		if at := &a.runs[i]; at.id == run {
			at.id, at.events = "", nil
		}
	}
}

// takePage returns at most most events of a run from after to through, if all of them are prefetched. After the last
// event it drops the run's prefetched events.
func (a *historyPrefetch) takePage(run string, after, through int64, most int) []history.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.runs {
		at := &a.runs[i]
		if at.id != run {
			continue
		}
		n := len(at.events)
		if from := at.events[0].Seq; from <= after+1 && after < through && through <= at.events[n-1].Seq {
			events := at.events[after+1-from : through+1-from]
			if most = pageOf(events, most, transaction.MaxPageSize); len(events) <= most {
				at.id, at.events = "", nil
				// clip the slice: an append by the caller must not overwrite the other events
				return slices.Clip(events)
			}
			return slices.Clip(events[:most])
		}
	}
	return nil
}

// pageOfHistory returns a page of a run's history, from memory if the page is prefetched.
func (b *Broker) pageOfHistory(
	ctx context.Context, run string, after, through int64, size int,
) (protocol.HistoryPage, error) {
	if events := b.prefetch.takePage(run, after, through, min(max(1, size), transaction.MaxPage)); events != nil {
		return transaction.NewPage(events, through), nil
	}
	return transaction.Page(ctx, b.store, run, after, through, size)
}
