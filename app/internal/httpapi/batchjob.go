package httpapi

import (
	"context"
	"net/http"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A batch job needs the role that its action needs for a single run, which is checked when the job is created. The
// transactions that create, execute and stop a job write its audit entries.

// BatchJobs is the part of the broker for batch jobs.
type BatchJobs interface {
	CreateBatchJob(context.Context, protocol.BatchJobRequest) (protocol.BatchJobView, error)
	StopBatchJob(context.Context, protocol.BatchStopRequest) (protocol.BatchJobView, error)
}

// BatchJobViews reads batch jobs.
type BatchJobViews interface {
	BatchJob(ctx context.Context, namespace, id string) (protocol.BatchJobView, error)
	BatchJobs(context.Context, protocol.BatchJobList) (protocol.BatchJobPage, error)
	BatchResults(context.Context, protocol.BatchResultList) (protocol.BatchResultPage, error)
	PreviewBatch(context.Context, protocol.BatchPreviewRequest) (protocol.BatchPreview, error)
}

func batchRoutes(ours lineFunc) []route {
	const all, one = "/api/sojourn/batch-jobs", "/api/sojourn/batch-jobs/{job}"
	return []route{
		ours(get, all, "list_batch_jobs", auth.Viewer, listBatchJobs),
		ours(post, all, "create_batch_job", auth.Writer, createBatchJob),
		limitedSearch(ours(get, "/api/sojourn/batch-preview", "preview_batch_job", auth.Viewer, previewBatchJob)),
		ours(get, one, "describe_batch_job", auth.Viewer, describeBatchJob),
		ours(get, one+"/results", "list_batch_results", auth.Viewer, listBatchResults),
		ours(post, one+"/stop", "stop_batch_job", auth.Writer, stopBatchJob),
	}
}

func listBatchJobs(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.BatchJobList{
		Namespace: c.NS, PageSize: q.number("page_size", 1, 200), PageToken: q.text("next_page_token"),
	}
	if q.err != nil {
		return response{}, q.err
	}
	return ok(a.opt.BatchJobViews.BatchJobs(c.Ctx, in))
}

func createBatchJob(a *API, c *call) (response, error) {
	var in protocol.BatchJobRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Namespace, in.Identity = c.NS, c.Principal.Name
	if in.Action == protocol.BatchDelete && !c.Principal.Has(auth.Operator) {
		return response{}, protocol.Refuse(
			protocol.ReasonForbidden, "a batch job with the action delete needs the role %s", auth.Operator,
		)
	}
	out, err := a.opt.BatchJobs.CreateBatchJob(c.Ctx, in)
	return response{http.StatusCreated, out}, err
}

func previewBatchJob(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.BatchPreviewRequest{
		Namespace: c.NS, Query: q.text("query"), Action: protocol.BatchAction(q.text("action")),
	}
	if q.err != nil {
		return response{}, q.err
	}
	return ok(a.opt.BatchJobViews.PreviewBatch(c.Ctx, in))
}

func describeBatchJob(a *API, c *call) (response, error) {
	return ok(a.opt.BatchJobViews.BatchJob(c.Ctx, c.NS, c.PathValue("job")))
}

func listBatchResults(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.BatchResultList{
		Namespace: c.NS, JobID: c.PathValue("job"), State: protocol.BatchRunState(q.text("state")),
		PageSize: q.number("page_size", 1, 1000), PageToken: q.text("next_page_token"),
	}
	if q.err != nil {
		return response{}, q.err
	}
	return ok(a.opt.BatchJobViews.BatchResults(c.Ctx, in))
}

func stopBatchJob(a *API, c *call) (response, error) {
	var in protocol.BatchStopRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Namespace, in.JobID, in.Identity = c.NS, c.PathValue("job"), c.Principal.Name
	return ok(a.opt.BatchJobs.StopBatchJob(c.Ctx, in))
}
