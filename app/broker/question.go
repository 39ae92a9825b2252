package broker

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/querytask"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// This file contains what queries and update validations share: which workers can run them, the query task that a
// worker receives, and the check of its response. Workers receive query tasks through the same polls as other tasks.
// Package querytask keeps them in memory instead of the store: a query task ends with its caller and causes no commit.

var _ dispatch.TaskLeaser = (*Broker)(nil)

// LeaseTasks leases waiting tasks: query tasks from memory, and every other kind from the store. The dispatcher calls
// it.
func (b *Broker) LeaseTasks(ctx context.Context, r store.LeaseRequest) ([]store.Leased, error) {
	if r.Kind.Asked() {
		return b.questions.LeaseTasks(ctx, r)
	}
	r.Full = b.evict.AtLimit
	return b.store.LeaseTasks(ctx, r)
}

// canAnswer reports whether a live worker known to this app may run a query task. It skips workers for which also
// returns false.
func (b *Broker) canAnswer(q *store.Question, also func(*engine.Worker) bool) bool {
	now := time.Now()
	for _, w := range b.workers.All(q.Namespace) {
		if b.workers.Alive(w, now) && w.Worker.Serves(q.Queue) && !b.routedElsewhere(w.Worker, q.Queue) &&
			querytask.CanRun(w.Worker, q) && also(w.Worker) {
			return true
		}
	}
	return false
}

// avoidsProcess reports whether the query task should go to another process: the worker's process has a blamed task,
// may therefore end at any time, and another process may run the query task.
func (b *Broker) avoidsProcess(w *engine.Worker, q *store.Question) bool {
	isolated := func(w *engine.Worker) bool {
		return b.dispatch.Isolated(store.Process{Worker: w.Key(), Incarnation: w.Incarnation})
	}
	return isolated(w) && b.canAnswer(q, func(o *engine.Worker) bool { return o.ID != w.ID && !isolated(o) })
}

// hasQueryWorker reports whether a live worker of the task queue may run a query task. If no worker known to this app
// may, it loads the workers that only other apps know.
func (b *Broker) hasQueryWorker(ctx context.Context, q *store.Question) (bool, error) {
	all := func(*engine.Worker) bool { return true }
	// Check the workers that send their heartbeats to this app first, since they are in memory.
	if found := b.canAnswer(q, all); found || !b.opt.Shared {
		return found, nil
	}
	err := b.loadWorkers(ctx, q.Namespace, q.Queue)
	return b.canAnswer(q, all), err
}

// silentWorkers returns the workers that leased a query task and did not respond.
func silentWorkers(err error) string {
	var s *querytask.NoReply
	if !errors.As(err, &s) {
		return ""
	}
	return ": leased by " + strings.Join(s.Workers, ", ")
}

// loadWorkers reads the workers of a queue that other apps registered.
func (b *Broker) loadWorkers(ctx context.Context, ns, queue string) error {
	return b.store.View(ctx, func(r store.Reader) error {
		mark := b.workers.Mark()
		list, err := r.Workers(ctx, store.WorkerQuery{Namespace: ns, Queue: queue, Limit: 1000})
		for _, w := range list {
			b.workers.CacheRow(&w, mark)
		}
		return err
	})
}

// leasedQueryTask returns a leased query task in the form in which the worker receives it.
func (b *Broker) leasedQueryTask(ctx context.Context, in protocol.PollRequest, l store.Leased) (protocol.Task, error) {
	if l.Kind == protocol.KindValidation {
		t, err := b.validationTask(ctx, l.Question, in.PagedQueries)
		return protocol.Task{Kind: l.Kind, Validation: t}, err
	}
	t, err := b.queryTask(ctx, l.Question, in.PagedQueries)
	return protocol.Task{Kind: l.Kind, Query: t}, err
}

// completeQueryTask passes a worker's response to the caller of the query.
func (b *Broker) completeQueryTask(ctx context.Context, in protocol.CompleteItem) (outcome string, err error) {
	q, err := b.questions.Get(ctx, in.TaskID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return "", err
	}
	if err != nil || q.Namespace != transaction.NamespaceOrDefault(in.Namespace) || q.Kind != in.Kind {
		return "", querytask.NotFound(in.Kind, in.TaskID)
	}
	scope := b.visibilityOf(ctx, q.Namespace, q.Kind, q.ID, in.Owner)
	if err := scope.checkQueryTask(&q); err != nil {
		return "", err
	}
	if err := querytask.CheckLease(&q, in); err != nil {
		return "", scope.hideDetails(err)
	}
	// This worker cannot run the query, but another one may: the caller continues to wait.
	if in.Returned != "" {
		return "returned", b.questions.Requeue(ctx, q.ID, q.Attempt)
	}
	if err := Blob("result", in.Result.Blob); err != nil {
		return "", err
	}
	return b.questions.Complete(ctx, q, store.Reply{Result: in.Result.Blob, Failure: in.Failure})
}

// queryTaskPage returns a further page of history for a leased query task, up to the last event when the query arrived.
func (b *Broker) queryTaskPage(ctx context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	q, err := b.questions.Get(ctx, in.TaskID)
	switch {
	case errors.Is(err, store.ErrNotFound),
		err == nil && (q.Namespace != transaction.NamespaceOrDefault(in.Namespace) || !q.Kind.Asked()):
		return protocol.HistoryPage{}, transaction.TaskNotFound(in.TaskID)
	case err != nil:
		return protocol.HistoryPage{}, err
	}
	scope := b.visibilityOf(ctx, q.Namespace, q.Kind, q.ID, in.Owner)
	if err := scope.checkQueryTask(&q); err != nil {
		return protocol.HistoryPage{}, err
	}
	if err := querytask.CheckLease(&q, protocol.CompleteItem{Owner: in.Owner, Attempt: in.Attempt}); err != nil {
		return protocol.HistoryPage{}, scope.hideDetails(err)
	}
	after, err := transaction.ParsePage(in.PageToken)
	if err != nil {
		return protocol.HistoryPage{}, err
	}
	size := in.PageSize
	if size <= 0 {
		size = transaction.MaxPage
	}
	p, err := transaction.Page(ctx, b.store, q.RunID, after, q.LastSeq, size)
	p.TaskID, p.Attempt, p.More = in.TaskID, in.Attempt, p.NextPageToken != nil
	return p, err
}
