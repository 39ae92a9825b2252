package broker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// CapQueries is the capability of a worker that answers queries.
const CapQueries = "query_tasks"

// How long a query may take, and how many may wait for a worker in one queue.
const (
	queryDeadline = 30 * time.Second
	maxQueries    = 64
)

var _ dispatch.Claimer = (*Broker)(nil)

// Query asks a worker that runs the workflow's code. The worker replays the history as it is stored now; nothing is written, and nobody tries again
// once the caller has left.
func (b *Broker) Query(ctx context.Context, in protocol.QueryRequest) (protocol.QueryAnswer, error) {
	if in.QueryName == "" || len(in.QueryName) > 255 {
		return protocol.QueryAnswer{}, protocol.Invalid("query_name", "must be 1 to 255 bytes")
	}
	value, err := Arguments("input", in.Input)
	if err != nil {
		return protocol.QueryAnswer{}, err
	}
	in.Namespace = namespace(in.Namespace)
	var run *engine.Run
	err = b.store.View(ctx, func(r store.Reader) error {
		run, _, err = find(ctx, r, in.Target)
		return err
	})
	if err != nil {
		return protocol.QueryAnswer{}, err
	}
	if err := b.answerable(&run.Head, in.QueryName); err != nil {
		return protocol.QueryAnswer{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, queryDeadline)
	defer cancel()
	until, _ := ctx.Deadline()
	q := &query{
		id: ulid.Make().String(), head: run.Head, name: in.QueryName, arguments: value, until: until, answer: make(chan queryOutcome, 1),
	}
	if !b.queries.add(q) {
		return protocol.QueryAnswer{}, protocol.Refuse(protocol.ReasonQueryQueueFull, "%d queries wait for workers of queue %s", maxQueries, run.Queue)
	}
	defer b.queries.drop(q)
	b.dispatch.Backlog(run.Namespace, run.Queue, protocol.KindQuery)
	select {
	case o := <-q.answer:
		if o.failure != nil {
			return protocol.QueryAnswer{}, refusedQuery(in.QueryName, o.failure)
		}
		a := protocol.QueryAnswer{
			WorkflowID: run.WorkflowID, RunID: run.ID, WorkflowType: run.Type, QueryName: in.QueryName, TargetScope: "instance",
			Result: []byte("null"),
		}
		if in.RunID != "" {
			a.TargetScope = "run"
		}
		if o.result != "" {
			a.ResultEnvelope, a.Result = envelope(o.result)
		}
		return a, nil
	case <-b.drained:
		return protocol.QueryAnswer{}, protocol.Refuse(protocol.ReasonQueryUnavailable, "the app is draining")
	case <-ctx.Done():
		if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
			return protocol.QueryAnswer{}, err
		}
		return protocol.QueryAnswer{}, protocol.Refuse(protocol.ReasonQueryTimeout, "no worker answered query %s in time", in.QueryName)
	}
}

// answerable refuses a query nobody can answer: no living worker of the queue runs the type and takes queries, or the type has no such query.
func (b *Broker) answerable(h *engine.Head, name string) error {
	if b.declarations(h.Namespace).lacks(h.Type, "queries", name) {
		return protocol.Refuse(protocol.ReasonUnknownQuery, "workflow type %s has no query %s", h.Type, name).With("query_name", name)
	}
	now := time.Now()
	for _, w := range b.workers.all(h.Namespace) {
		if b.alive(w, now) && slices.Contains(w.worker.Queues, h.Queue) && mayAnswer(w.worker, h) {
			return nil
		}
	}
	return protocol.Refuse(protocol.ReasonQueryWorker, "no living worker of queue %s answers queries of %s", h.Queue, h.Type)
}

func mayAnswer(w *engine.Worker, h *engine.Head) bool {
	return w.Runs(protocol.KindQuery, h.Type) && slices.Contains(w.Capabilities, CapQueries) && len(engine.Missing(h.Wanted().Requirements, w.Capabilities)) == 0
}

// refusedQuery is a worker's failure as its caller sees it.
func refusedQuery(name string, f *protocol.Failure) error {
	reason := protocol.ReasonQueryRejected
	switch {
	case strings.Contains(f.Reason, "unknown_query"), strings.Contains(f.Reason, "query_not_found"):
		reason = protocol.ReasonUnknownQuery
	case strings.Contains(f.Reason, "invalid_query_arguments"):
		reason = protocol.ReasonQueryArguments
	}
	return protocol.Refuse(reason, "query %s: %s", name, f.Message).With("query_name", name).With("failure", f)
}

// Claim leases queries from memory; every other kind of task comes from the store. It makes the broker the claimer of a dispatch.
func (b *Broker) Claim(ctx context.Context, r store.ClaimRequest) ([]store.Leased, error) {
	if r.Kind != protocol.KindQuery {
		return b.store.Claim(ctx, r)
	}
	return b.queries.claim(r), nil
}

// queryTask is what the worker is given: the query with the whole history.
func (b *Broker) queryTask(ctx context.Context, l store.Leased) (*protocol.QueryTask, error) {
	q, ok := b.queries.get(l.Query)
	if !ok {
		return nil, noQuery(l.Query)
	}
	h := q.head
	t := &protocol.QueryTask{
		TaskID: q.id, Attempt: q.attempt, WorkflowID: h.WorkflowID, RunID: h.ID, Namespace: h.Namespace, WorkflowType: h.Type,
		QueryName: q.name, PayloadCodec: payload.Codec,
		QueryArguments: payload.Payload{Blob: q.arguments}, TotalEvents: h.LastSeq, TaskQueue: h.Queue, LeaseOwner: q.owner,
		LeaseExpiresAt: history.At(q.until),
	}
	busy := h.Task != nil && (h.Task.State == engine.Ready || h.Task.State == engine.LeasedState)
	t.RunStatus, _, _ = protocol.PublicRun(h.Status, h.LeasedEver, busy)
	for after := int64(0); after < h.LastSeq; {
		page, err := b.page(ctx, h.ID, after, h.LastSeq, maxPage)
		if err != nil || len(page.Events) == 0 {
			return t, err
		}
		t.Events = append(t.Events, page.Events...)
		after = page.Events[len(page.Events)-1].Seq
	}
	if s, ok := t.Events[0].Data.(*history.WorkflowStarted); ok {
		t.WorkflowArguments = payload.Payload{Blob: s.Arguments}
	}
	return t, nil
}

// completeQuery takes a worker's answer to its caller.
func (b *Broker) completeQuery(in protocol.CompleteItem) (string, error) {
	if in.Returned != "" {
		if q, ok := b.queries.release(in.TaskID, in.Attempt); ok {
			b.dispatch.Backlog(q.head.Namespace, q.head.Queue, protocol.KindQuery)
		}
		return "returned", nil
	}
	if err := Blob("result", in.Result.Blob); err != nil {
		return "", err
	}
	return b.queries.settle(in)
}

func noQuery(id string) error {
	return protocol.Refuse(protocol.ReasonQueryTaskNotFound, "there is no query task %s", id)
}
