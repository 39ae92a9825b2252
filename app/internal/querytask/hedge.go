package querytask

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A paused worker keeps a leased query task until its heartbeats are missed, which is longer than most callers wait. A
// query changes nothing, so it can be hedged: another worker receives the same query under a new ID, and the first
// answer counts, even if it is from the paused worker.

// hedgeAfter is the time after which a query task that a worker has leased is hedged. It doubles with each hedge, so
// that few workers do the same work when all are slow for lack of CPU. leaseCheckInterval is the interval at which the
// lease is checked.
const (
	hedgeAfter         = 3 * time.Second
	leaseCheckInterval = time.Second
)

var errNoReplyYet = errors.New("no response yet")

type firstReply struct {
	reply store.Reply
	err   error
}

// awaitReply waits for the first reply to an enqueued query task, and returns the workers that were seen to lease it.
func (p *Pending) awaitReply(ctx context.Context, q store.Question) (store.Reply, []string, error) {
	soon, cancel := context.WithTimeoutCause(ctx, leaseCheckInterval, errNoReplyYet)
	r, err := p.queue.reply(soon, q.ID)
	cancel()
	if !errors.Is(err, errNoReplyYet) {
		return r, nil, err
	}
	ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	replies := make(chan firstReply)
	listen := func(id string) {
		r, err := p.queue.reply(ctx, id)
		select {
		case replies <- firstReply{r, err}:
		case <-ctx.Done():
		}
	}
	go listen(q.ID)
	ticker := time.NewTicker(leaseCheckInterval)
	defer ticker.Stop()
	var workers []string
	var since time.Time // when the current lease was first seen
	timeout := hedgeAfter
	for last, attempt := q, int64(0); ; {
		// The first check precedes the first tick: the query task is one second old by then.
		switch seen, err := p.queue.get(ctx, last.ID); {
		case err != nil || seen.Owner == "" || seen.Over:
			attempt = 0
		case seen.Attempt != attempt:
			attempt, since = seen.Attempt, time.Now()
			if !slices.Contains(workers, seen.Owner) {
				workers = append(workers, seen.Owner)
			}
		case time.Since(since) >= timeout:
			until, _ := ctx.Deadline()
			next := q
			next.ID, next.Asked = ulid.Make().String(), append(slices.Clone(last.Asked), seen.Incarnation)
			if p.addHedge(ctx, next, time.Until(until)) {
				defer p.removeTask(ctx, next.ID)
				go listen(next.ID)
				p.log.Warn().Str("worker_id", seen.Owner).Str("kind", string(q.Kind)).Str("name", q.Name).
					Msg("worker did not answer a query in time; sent the query to another worker too")
				last, attempt, timeout = next, 0, 2*timeout
			}
		}
		select {
		case t := <-replies:
			return t.reply, workers, t.err
		case <-ctx.Done():
			return store.Reply{}, workers, context.Cause(ctx)
		case <-ticker.C:
		}
	}
}

// addHedge adds a copy of a query task, and reports whether the row may exist.
func (p *Pending) addHedge(ctx context.Context, q store.Question, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	return !errors.Is(p.queue.add(ctx, q, timeout, protocol.MaxPendingQuestions), store.ErrFull)
}
