package view

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/filter"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// BatchQuery returns the query for the runs that a batch job concerns: those that match the filter, and are open or
// closed as the action requires. An empty filter matches all runs.
func BatchQuery(
	namespace, query string, action protocol.BatchAction, types map[string]string,
) (store.RunQuery, error) {
	q := store.RunQuery{Namespace: namespace}
	if query != "" {
		if !filter.Is(query) {
			return q, protocol.Invalid("query", "must be a filter, such as WorkflowType = 'order'")
		}
		var err error
		if q.Where, err = filter.Parse(query, types); err != nil {
			return q, err
		}
	}
	for _, s := range protocol.RunStatuses {
		if action.Concerns(s) {
			q.Statuses = append(q.Statuses, s)
		}
	}
	return q, nil
}

// PreviewBatch counts the runs that a batch job would concern, for at most two seconds.
func (v *View) PreviewBatch(ctx context.Context, in protocol.BatchPreviewRequest) (protocol.BatchPreview, error) {
	p := protocol.BatchPreview{Query: in.Query, Action: in.Action}
	if err := protocol.CheckLimits(in); err != nil {
		return p, err
	}
	if in.Action == "" {
		return p, protocol.Invalid("action", "is needed")
	}
	ns := transaction.NamespaceOrDefault(in.Namespace)
	types, err := v.opt.AppState.AttributeTypes(ctx, ns)
	if err != nil {
		return p, err
	}
	q, err := BatchQuery(ns, in.Query, in.Action, types)
	if err != nil {
		return p, err
	}
	deadline := time.Now().Add(wholeSearch)
	for {
		q.Budget, q.Limit = time.Until(deadline), min(transaction.MaxPage, protocol.MaxBatchPreview+1-p.Runs)
		if q.Budget <= 0 {
			return p, nil
		}
		var list store.RunList
		if err := v.store.View(ctx, func(r store.Reader) (err error) {
			list, err = r.Runs(ctx, q)
			return err
		}); err != nil {
			return p, err
		}
		p.Runs += len(list.Heads)
		switch {
		case p.Runs > protocol.MaxBatchPreview:
			p.Runs = protocol.MaxBatchPreview
			return p, nil
		case list.SearchedTo.Run != "":
			return p, nil
		case len(list.Heads) < q.Limit:
			p.Complete = true
			return p, nil
		}
		last := &list.Heads[len(list.Heads)-1]
		q.AfterStart, q.AfterRun = last.StartedAt, last.ID
	}
}

// BatchJobView returns the API form of a batch job.
func BatchJobView(j *engine.BatchJob) protocol.BatchJobView {
	v := protocol.BatchJobView{
		JobID: j.ID, Namespace: j.Namespace, State: j.State, Query: j.Query, Action: j.Action, Limit: j.Limit,
		RatePerSecond: j.Rate, Reason: j.Reason, SignalName: j.Signal, CreatedBy: j.Identity, CreatedAt: j.CreatedAt,
		ResetTo: j.ResetTo,
		Runs:    j.Runs, Done: j.Done, Refused: j.Refused, Pending: j.Pending(), EndedBy: j.EndedBy, EndReason: j.Why,
	}
	if !j.Open() {
		v.ClosedAt = &j.ClosedAt
	}
	return v
}

// BatchJobNotFound returns the error for an unknown batch job.
func BatchJobNotFound(id string) error {
	return protocol.Refuse(protocol.ReasonBatchJobNotFound, "batch job %s not found", id).With("job_id", id)
}

// BatchJob returns a batch job with its progress.
func (v *View) BatchJob(ctx context.Context, namespace, id string) (protocol.BatchJobView, error) {
	k := engine.BatchJobKey{Namespace: transaction.NamespaceOrDefault(namespace), ID: id}
	var j engine.BatchJob
	err := v.store.View(ctx, func(r store.Reader) (err error) {
		j, err = r.BatchJob(ctx, k)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		err = BatchJobNotFound(id)
	}
	if err != nil {
		return protocol.BatchJobView{}, err
	}
	return BatchJobView(&j), nil
}

// BatchJobs lists the batch jobs of a namespace, newest first.
func (v *View) BatchJobs(ctx context.Context, in protocol.BatchJobList) (protocol.BatchJobPage, error) {
	page := protocol.BatchJobPage{BatchJobs: []protocol.BatchJobView{}}
	created, id, err := parseCursor(in.PageToken)
	if err != nil {
		return page, err
	}
	limit := pageSize(in.PageSize, 50, 200)
	var list []engine.BatchJob
	err = v.store.View(ctx, func(r store.Reader) (err error) {
		list, err = r.BatchJobs(ctx, transaction.NamespaceOrDefault(in.Namespace), created, id, limit+1)
		return err
	})
	if len(list) > limit {
		list = list[:limit]
		page.NextPageToken = cursor(list[limit-1].CreatedAt, list[limit-1].ID)
	}
	for i := range list {
		page.BatchJobs = append(page.BatchJobs, BatchJobView(&list[i]))
	}
	return page, err
}

// BatchResults lists the runs of a batch job with their results.
func (v *View) BatchResults(ctx context.Context, in protocol.BatchResultList) (protocol.BatchResultPage, error) {
	page := protocol.BatchResultPage{JobID: in.JobID, Results: []protocol.BatchResult{}}
	if err := protocol.CheckLimits(in); err != nil {
		return page, err
	}
	after := int64(0)
	if in.PageToken != "" {
		var err error
		if after, err = strconv.ParseInt(in.PageToken, 10, 64); err != nil {
			return page, protocol.Refuse(protocol.ReasonInvalidPageToken, "invalid page token %q", in.PageToken)
		}
	}
	k := engine.BatchJobKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.JobID}
	limit := pageSize(in.PageSize, 100, 1000)
	var list []engine.BatchRun
	err := v.store.View(ctx, func(r store.Reader) (err error) {
		if _, err = r.BatchJob(ctx, k); err != nil {
			return err
		}
		list, err = r.BatchRuns(ctx, k, in.State, after, limit+1)
		return err
	})
	if errors.Is(err, store.ErrNotFound) {
		err = BatchJobNotFound(in.JobID)
	}
	if len(list) > limit {
		list = list[:limit]
		next := strconv.FormatInt(list[limit-1].Number, 10)
		page.NextPageToken = &next
	}
	for i := range list {
		page.Results = append(page.Results, batchResult(&list[i]))
	}
	return page, err
}

func batchResult(b *engine.BatchRun) protocol.BatchResult {
	r := protocol.BatchResult{
		Number: b.Number, WorkflowID: b.WorkflowID, RunID: b.Run, State: b.State, Reason: protocol.OrNil(string(b.Reason)),
		Message: protocol.OrNil(b.Message),
	}
	if !b.At.IsZero() {
		r.At = new(history.Time)
		*r.At = b.At
	}
	return r
}
