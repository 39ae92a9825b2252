package broker

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/internal/querytask"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A query changes nothing and is not in history: workflow code in a worker computes the result. So a query needs a live
// worker that supports it; without one it fails immediately instead of after its timeout.

// queryDeadline is the maximum duration of a query.
const queryDeadline = 30 * time.Second

// Query dispatches a query task to a worker that runs the workflow type. The worker replays the stored history. Nothing
// is written, and the query ends when the caller disconnects.
func (b *Broker) Query(ctx context.Context, in protocol.QueryRequest) (protocol.QueryResponse, error) {
	if err := protocol.CheckLimits(in); err != nil {
		return protocol.QueryResponse{}, err
	}
	in.Namespace = transaction.NamespaceOrDefault(in.Namespace)
	run, err := b.headOf(ctx, in.Target)
	if err != nil {
		return protocol.QueryResponse{}, err
	}
	if err := run.CheckHasCode("queries"); err != nil {
		return protocol.QueryResponse{}, err
	}
	q := querytask.NewTask(protocol.KindQuery, run, in.QueryName, "", in.Headers)
	if err := b.checkQueryWorker(ctx, &q); err != nil {
		return protocol.QueryResponse{}, err
	}
	// Encode the arguments last, so that a refused query needs no memory for them.
	if q.Arguments, err = Arguments("input", in.Input); err != nil {
		return protocol.QueryResponse{}, err
	}
	reply, err := b.questions.Run(ctx, q, queryDeadline)
	switch {
	case errors.Is(err, store.ErrFull):
		return protocol.QueryResponse{}, protocol.Refuse(
			protocol.ReasonQueryQueueFull,
			"%d queries already wait for workers of queue %s, which is the maximum; try again later",
			protocol.MaxPendingQuestions, run.Queue,
		)
	case errors.Is(err, querytask.ErrDraining):
		return protocol.QueryResponse{}, protocol.Refuse(protocol.ReasonQueryUnavailable, "the app is draining")
	case errors.Is(err, querytask.ErrNoWorker):
		return protocol.QueryResponse{}, noQueryWorker(&q)
	// The caller gets the same reason whether no worker leased the query or the worker did not respond. A query has no
	// side effects, so the caller may retry it.
	case errors.Is(err, querytask.ErrUnanswered), errors.Is(err, querytask.ErrUnclaimed):
		return protocol.QueryResponse{}, protocol.Refuse(
			protocol.ReasonQueryTimeout, "no worker answered query %s in time%s", in.QueryName, silentWorkers(err),
		)
	case err != nil:
		return protocol.QueryResponse{}, err
	case reply.Failure != nil:
		return protocol.QueryResponse{}, refusedQuery(in.QueryName, reply.Failure)
	}
	a := protocol.QueryResponse{
		WorkflowID: run.WorkflowID, RunID: run.ID, WorkflowType: run.Type, QueryName: in.QueryName, TargetScope: "instance",
		Result: []byte("null"),
	}
	if in.RunID != "" {
		a.TargetScope = "run"
	}
	if reply.Result != "" {
		a.ResultEnvelope, a.Result = view.Envelope(reply.Result)
	}
	return a, nil
}

// checkQueryWorker rejects a query that no worker can run: the type has no such query, or no live worker of the task
// queue runs the type and accepts queries.
func (b *Broker) checkQueryWorker(ctx context.Context, q *store.Question) error {
	// Search for a worker first, because the search may load the declarations of workers of other apps. An unknown
	// query is rejected with its own reason, even if no worker is alive.
	ok, err := b.hasQueryWorker(ctx, q)
	switch {
	case err != nil:
		return err
	case b.workers.Declarations(q.Namespace).Lacks(q.Type, "queries", q.Name):
		return protocol.Refuse(protocol.ReasonUnknownQuery, "workflow type %s has no query %s", q.Type, q.Name).
			With("query_name", q.Name)
	case !ok:
		return noQueryWorker(q)
	}
	return nil
}

func noQueryWorker(q *store.Question) error {
	return protocol.Refuse(
		protocol.ReasonQueryWorker, "no live worker of queue %s answers queries of workflow type %s", q.Queue, q.Type,
	)
}

// refusedQuery converts a worker's failure of a query to the caller's error.
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

// queryTask returns the query task for the worker, with the whole history or its first page.
func (b *Broker) queryTask(ctx context.Context, q *store.Question, paged bool) (*protocol.QueryTask, error) {
	events, next, args, err := b.questions.Snapshot(ctx, q, paged)
	return &protocol.QueryTask{
		TaskID: q.ID, Attempt: q.Attempt, WorkflowID: q.WorkflowID, RunID: q.RunID, Namespace: q.Namespace,
		WorkflowType: q.Type, QueryName: q.Name,
		PayloadCodec: payload.Codec, WorkflowArguments: args, QueryArguments: payload.Payload{Blob: q.Arguments},
		Headers: q.Headers, Events: events,
		TotalEvents: q.LastSeq, NextPageToken: next, RunStatus: q.RunStatus, TaskQueue: q.Queue, LeaseOwner: q.Owner,
		LeaseExpiresAt: history.At(q.Until),
	}, err
}
