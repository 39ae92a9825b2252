package httpapi

import (
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These routes read workers and sessions and let operators act on them; workers use other routes, with other roles. An
// empty list is encoded as []: null would break clients that loop over it.

func listWorkers(a *API, c *call) (response, error) {
	q := c.query()
	queue, status := q.text("task_queue"), q.text("status")
	size, token := q.number("page_size", 1, 1000), q.text("next_page_token")
	if q.err != nil {
		return response{}, q.err
	}
	workers, err := a.opt.Fleet.Workers(c.Ctx, c.NS, queue, status)
	if err != nil {
		return response{}, err
	}
	id := func(w protocol.WorkerView) string { return w.WorkerID }
	page, next, err := protocol.PageByName(workers, id, size, token)
	if page == nil {
		page = []protocol.WorkerView{}
	}
	return ok(workersResponse{c.NS, page, next}, err)
}

func describeWorker(a *API, c *call) (response, error) {
	return ok(a.opt.Fleet.Worker(c.Ctx, c.NS, c.PathValue("worker")))
}

// removeWorker deletes a registration and does not end the process: a live worker registers again, so operators drain
// it first.
func removeWorker(a *API, c *call) (response, error) {
	out, err := a.opt.WorkerOperations.RemoveWorker(c.Ctx, c.NS, c.PathValue("worker"))
	return ok(workerRemoved{out.WorkerID, out.Outcome}, err)
}

func listSessions(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.SessionList{
		Namespace: c.NS, Status: q.text("status"), Owner: q.text("owner"), Queue: q.text("queue"),
		Workflow: q.text("workflow_id"),
		Query:    q.text("query"), PageSize: q.number("page_size", 1, 200), PageToken: q.text("next_page_token"),
	}
	if q.err != nil {
		return response{}, q.err
	}
	return ok(a.opt.Fleet.Sessions(c.Ctx, in))
}

func describeSession(a *API, c *call) (response, error) {
	out, err := a.opt.Fleet.Session(c.Ctx, c.NS, c.PathValue("session"))
	return ok(sessionShown{c.NS, out}, err)
}

func sessionTimeline(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.SessionTimeline{
		Namespace: c.NS, SessionID: c.PathValue("session"), PageSize: q.number("page_size", 1, 500),
		PageToken: q.text("next_page_token"),
	}
	if q.err != nil {
		return response{}, q.err
	}
	return ok(a.opt.Fleet.SessionTimeline(c.Ctx, in))
}

func sessionAttempts(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.SessionAttempts{
		Namespace: c.NS, SessionID: c.PathValue("session"), Epoch: int64(q.number("epoch", 0, 1<<53)),
		PageSize:  q.number("page_size", 1, 200),
		PageToken: q.text("next_page_token"),
	}
	if q.err != nil {
		return response{}, q.err
	}
	page, err := a.opt.Fleet.SessionAttempts(c.Ctx, in)
	if err == nil && len(page.Attempts) == 0 {
		// a deleted session may still have attempts; a session that never existed has none
		_, err = a.opt.Fleet.Session(c.Ctx, c.NS, in.SessionID)
	}
	return ok(page, err)
}

func closeSession(a *API, c *call) (response, error) { return operate(a, c, "close", "closed") }

func migrateSession(a *API, c *call) (response, error) { return operate(a, c, "migrate", "migrated") }

func forgetSession(a *API, c *call) (response, error) { return operate(a, c, "forget", "forgotten") }

// operate applies an operator's request to a session; the broker writes the audit record.
func operate(a *API, c *call, verb, outcome string) (response, error) {
	in := protocol.SessionOperation{}
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Namespace, in.SessionID, in.Verb, in.Identity = c.NS, c.PathValue("session"), verb, c.Principal.Name
	out, err := a.opt.Operations.OperateSession(c.Ctx, in)
	if out.Moving != "" {
		outcome = "draining" // it moves when its running activities have ended
	}
	return ok(sessionOperated{c.NS, outcome, out}, err)
}
