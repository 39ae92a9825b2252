package workerapi

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// ReleaseHeader is the header with the release of a Sojourn worker. The release gate applies to every caller that sends
// it.
const ReleaseHeader = protocol.HeaderRelease

// Defaults and limits of a poll.
const (
	defaultWait        = 30
	maxWait            = 60
	defaultHistoryPage = 500
	maxHistoryPage     = 1000
)

// pollBody is the request of the contract's polls for one task of one kind.
type pollBody struct {
	WorkerID    string `json:"worker_id"` // ID of the registration
	Namespace   string `json:"namespace"`
	Incarnation string `json:"incarnation"`
	TaskQueue   string `json:"task_queue"` // one of the registered queues; empty: all of them
	BuildID     string `json:"build_id"`
	// a repeated ID returns the same lease
	PollID string `json:"poll_request_id" maxLength:"255"`
	// maximum duration of the poll in seconds; default 30, larger values than 60 are reduced to 60
	Timeout  *int64 `json:"timeout_seconds" minimum:"0"`
	PageSize int    `json:"history_page_size" minimum:"0" maximum:"1000"` // 500 when absent
	Encoding string `json:"accept_history_encoding"`                      // gzip, deflate: long pages are compressed
	// TaskKinds lets a workflow poll receive update validation tasks too; every task in the response then contains its
	// kind.
	TaskKinds []protocol.TaskKind `json:"task_kinds"`
}

// kinds returns the task kinds that a poll requests, and whether the poll named them: the returned task then contains
// its kind.
func (b pollBody) kinds(of protocol.TaskKind) (kinds []protocol.TaskKind, named bool, err error) {
	if b.TaskKinds != nil && len(b.TaskKinds) == 0 {
		return nil, true, protocol.Invalid("task_kinds", "must name at least one kind")
	}
	if b.TaskKinds == nil || of != protocol.KindWorkflow {
		return []protocol.TaskKind{of}, false, nil
	}
	for i, k := range b.TaskKinds {
		if k != protocol.KindWorkflow && k != protocol.KindValidation || slices.Contains(b.TaskKinds[:i], k) {
			return nil, true, protocol.Invalid(
				"task_kinds", "must contain only workflow and update_validation, each at most once",
			)
		}
	}
	return b.TaskKinds, true, nil
}

func pollWorkflow(a *API, c *call) (response, error) { return poll(a, c, protocol.KindWorkflow) }

func pollActivity(a *API, c *call) (response, error) { return poll(a, c, protocol.KindActivity) }

func poll(a *API, c *call, kind protocol.TaskKind) (response, error) {
	var body pollBody
	if err := c.Need(&body); err != nil {
		return response{}, err
	}
	c.addErrorMember("task", nil)
	kinds, named, err := body.kinds(kind)
	if err != nil {
		return response{}, err
	}
	in := protocol.PollRequest{
		WorkerID: body.WorkerID, Namespace: body.Namespace, Incarnation: body.Incarnation, TaskQueue: body.TaskQueue,
		BuildID: body.BuildID,
		PollID:  body.PollID, Timeout: body.Timeout, PageSize: body.PageSize, Kinds: kinds, Max: 1,
	}
	out, err := a.poll(c, &in)
	if err != nil {
		return response{}, pollRefusal(c, err)
	}
	if out.Status == protocol.PollUnavailable {
		return response{}, store.ErrClosed
	}
	resp := pollReply{pollResponse: pollResponse{
		Status: out.Status, Reason: out.Reason, WaitReason: out.WaitReason, Wait: out.Wait, RetryAfter: out.RetryAfter,
	}}
	for _, t := range out.Tasks { // at most one
		switch {
		case t.Workflow != nil:
			w := *t.Workflow
			if named {
				w.Kind = protocol.KindWorkflow
			}
			resp.Task, err = withHistory(&w, body.Encoding)
		case t.Validation != nil:
			resp.Task = t.Validation
		case t.Query != nil:
			resp.Task = t.Query
		default:
			resp.Task = t.Activity
		}
	}
	status := http.StatusOK
	switch out.Status {
	case protocol.PollDraining:
		status = http.StatusConflict
		resp.Reason, resp.Worker, resp.WorkerID = string(protocol.ReasonWorkerDraining), protocol.WorkerDraining, in.WorkerID
		resp.Error = "the worker is draining"
		if out.Drained != nil {
			resp.Error = "the worker's build is drained on the queue"
			build := buildID(*out.Drained)
			resp.Intent, resp.BuildID = "draining", &build
		}
	case protocol.PollMismatch:
		status = http.StatusConflict
		resp.Reason, resp.Error, resp.AppRelease = string(protocol.ReasonVersionMismatch), out.Reason, out.AppRelease
	}
	return response{status, resp}, err
}

// pollReply is the response to a poll; shapes has one type for each kind of task.
type pollReply struct {
	pollResponse
	Task any `json:"task"` // null: none
}

// buildID converts a build ID to its JSON form: null if there is none.
func buildID(id string) *string {
	if id == "" {
		return nil
	}
	return &id
}

// poll checks and runs a poll; tasks that cannot be delivered are returned.
func (a *API) poll(c *call, in *protocol.PollRequest) (protocol.PollResponse, error) {
	if err := a.prepare(c, in); err != nil {
		return protocol.PollResponse{}, err
	}
	ctx, end := context.WithCancelCause(c.Ctx)
	defer end(nil)
	place, err := a.reservePoll(c, in, budget.CutFunc(func() { end(errPollDisplaced) }))
	if err != nil {
		return protocol.PollResponse{}, err
	}
	defer place.Release()
	out, err := a.opt.Verbs.Poll(ctx, *in)
	if errors.Is(context.Cause(ctx), errPollDisplaced) {
		if err == nil && len(out.Tasks) > 0 {
			c.undelivered = out.Undo
			return out, nil // it has just received tasks
		}
		return protocol.PollResponse{}, a.full(c, in)
	}
	if errors.Is(err, dispatch.ErrDraining) {
		// The app drains, not the worker, and another app will respond to the next poll. A worker that receives the
		// drain status would stop.
		return protocol.PollResponse{
			Status: protocol.PollUnavailable, Reason: string(protocol.ReasonBackendUnavailable), RetryAfter: 1000,
			Tasks: []protocol.Task{}, Undo: func() {},
		}, nil
	}
	if err == nil && len(out.Tasks) > 0 {
		c.undelivered = out.Undo
	}
	return out, err
}

// prepare sets the members that the HTTP request determines. The broker checks the limits for all transports.
func (a *API) prepare(c *call, in *protocol.PollRequest) error {
	if err := c.namespace(&in.Namespace); err != nil {
		return err
	}
	if in.Timeout != nil && *in.Timeout > maxWait { // a caller that wants to wait longer polls again
		longest := int64(maxWait)
		in.Timeout = &longest
	}
	if release, sent := release(c); sent {
		in.Release, in.Gated = release, true
	}
	in.Gated = in.Gated || in.Release != ""
	return c.Principal.CheckQueues(append([]string{in.TaskQueue}, in.Queues...)...)
}

// release returns the release that a Sojourn worker sends; sent means that the release gate applies, whatever the
// value.
func release(c *call) (release string, sent bool) {
	values, sent := c.Header[http.CanonicalHeaderKey(ReleaseHeader)]
	if sent {
		release = values[0]
	}
	return release, sent
}

// pollRefusal adds the poll_status that clients read next to the reason.
func pollRefusal(c *call, err error) error {
	var e *protocol.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Reason {
	case protocol.ReasonWorkerDraining:
		c.addErrorMember("poll_status", protocol.PollDraining)
		c.addErrorMember("worker_status", protocol.WorkerDraining)
	case protocol.ReasonStaleRegistration:
		c.addErrorMember("poll_status", e.Reason)
	case protocol.ReasonThrottled:
		c.addErrorMember("poll_status", protocol.PollThrottled)
	}
	return err
}
