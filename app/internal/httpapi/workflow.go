package httpapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Other systems have start options that Sojourn does not have. Ignoring them would run the workflow without options
// that the caller relies on, so they are rejected by name, with an alternative.

// startBody is a start request, with options of other systems that Sojourn does not support: they are rejected, since
// the caller relies on them.
type startBody struct {
	protocol.StartRequest
	// if omitted or null, the app generates an ID; an empty ID is rejected
	WorkflowID *string `json:"workflow_id" pattern:"^[^\\x00-\\x1f\\x7f-\\x9f]{1,255}$"`
	// A timeout must be at least a second; null or an absent member means no timeout.
	ExecutionTimeout    *int64          `json:"execution_timeout_seconds" minimum:"1" maximum:"315360000"`
	RunTimeout          *int64          `json:"run_timeout_seconds" minimum:"1" maximum:"315360000"`
	ExecutionTimeoutOld json.RawMessage `json:"workflow_execution_timeout"`
	RunTimeoutOld       json.RawMessage `json:"workflow_run_timeout"`
	TaskTimeout         json.RawMessage `json:"workflow_task_timeout"`
	Retry               json.RawMessage `json:"retry_policy"`
	Idempotency         json.RawMessage `json:"idempotency_key"`
	RequestID           json.RawMessage `json:"request_id"`
}

func (b startBody) check() error {
	return unsupported([]member{
		{"workflow_execution_timeout", "use execution_timeout_seconds", b.ExecutionTimeoutOld},
		{"workflow_run_timeout", "use run_timeout_seconds", b.RunTimeoutOld},
		{"workflow_task_timeout", "the lease of a workflow task is the server's", b.TaskTimeout},
		{"retry_policy", "runs are not retried", b.Retry},
		{"idempotency_key", "send the header Idempotency-Key", b.Idempotency},
		{"request_id", "send the header Idempotency-Key", b.RequestID},
	})
}

// member is an unsupported member of a request, with its alternative.
type member struct {
	name, instead string
	value         json.RawMessage
}

// unsupported rejects a request that sets one of these members, instead of ignoring the member.
func unsupported(members []member) error {
	var refused *protocol.Error
	for _, f := range members {
		if len(f.value) == 0 || string(f.value) == "null" {
			continue
		}
		if refused == nil {
			refused = &protocol.Error{Reason: protocol.ReasonValidation, Fields: map[string][]string{}}
		}
		refused.Fields[f.name] = []string{"is not supported; " + f.instead}
		if refused.Message == "" {
			refused.Message = f.name + ": is not supported; " + f.instead
		}
	}
	if refused == nil { // not a nil pointer in a non-nil error
		return nil
	}
	return refused
}

// request returns the checked request of the body. id is the workflow ID in the path; empty: the body has it.
func (b startBody) request(c *call, id string) (protocol.StartRequest, error) {
	in := b.StartRequest
	if err := b.check(); err != nil {
		return in, err
	}
	if in.Namespace != "" && in.Namespace != c.NS {
		return in, protocol.Invalid(
			"namespace", "is not the namespace of the request (%s); set the header X-Namespace", c.NS,
		)
	}
	in.Namespace, in.Identity = c.NS, c.Principal.Name
	switch {
	case b.WorkflowID == nil:
		in.WorkflowID = id
	case *b.WorkflowID == "":
		return in, protocol.Invalid("workflow_id", "must not be empty; omit it to generate one")
	case id != "" && *b.WorkflowID != id:
		return in, protocol.Invalid("workflow_id", "is not the workflow ID of the path (%s); omit it", id)
	default:
		in.WorkflowID = *b.WorkflowID
	}
	for _, t := range []struct {
		member      string
		given, into *int64
	}{
		{"execution_timeout_seconds", b.ExecutionTimeout, &in.ExecutionTimeout},
		{"run_timeout_seconds", b.RunTimeout, &in.RunTimeout},
	} {
		if t.given == nil {
			continue
		}
		if *t.given < 1 {
			return in, protocol.Invalid(t.member, "must be at least 1")
		}
		*t.into = *t.given
	}
	return in, idempotent(c, &in.IdempotencyKey, &in.WorkflowID)
}

func start(a *API, c *call) (response, error) {
	var body startBody
	if err := c.Read(&body); err != nil {
		return response{}, err
	}
	in, err := body.request(c, "")
	if err != nil {
		return response{}, err
	}
	c.started = in.WorkflowID
	var watch *view.ResultWatch
	if in.WaitSeconds > 0 {
		watch = a.opt.RunViews.WatchStart(c.NS, c.started)
		defer watch.Stop()
	}
	out, err := a.opt.Starts.Start(c.Ctx, in)
	status := http.StatusOK
	if out.New {
		status = http.StatusCreated
	}
	if watch == nil || err != nil {
		return response{status, out}, err
	}
	c.Hold()
	run, err := watch.Result(c.Ctx, out.RunID, out.Repeated, time.Duration(in.WaitSeconds)*time.Second)
	switch {
	case err == nil:
		return response{status, protocol.StartResult{RunView: run, Outcome: out.Outcome, Warnings: out.Warnings}}, nil
	case c.Ctx.Err() != nil:
		return response{}, err
	}
	// the run is started, and an error would suggest that it is not; its result has its own route
	return response{status, out}, nil
}

// idempotent reads the header Idempotency-Key of a start. A start without a workflow ID gets one: with the header an ID
// that follows from its value, so that a repeated request finds its run.
func idempotent(c *call, key, id *string) error {
	values := c.Request.Header.Values(protocol.HeaderIdempotencyKey)
	if len(values) > 1 || len(values) == 1 && (values[0] == "" || len(values[0]) > protocol.MaxIdempotencyKey) {
		return protocol.Invalid(
			protocol.HeaderIdempotencyKey, "must be one value of 1 to %d bytes", protocol.MaxIdempotencyKey,
		)
	}
	if len(values) == 1 {
		// The run stores the key as JSON, which would replace other bytes: a repeated request would not find its run.
		if !utf8.ValidString(values[0]) {
			return protocol.Invalid(
				protocol.HeaderIdempotencyKey, "is not valid UTF-8; send printable ASCII characters, for example a UUID",
			)
		}
		*key = values[0]
	}
	switch {
	case *id != "":
	case *key != "":
		sum := sha256.Sum256([]byte(c.NS + "\n" + *key))
		*id = ulid.ULID(sum[:16]).String()
	default:
		*id = ulid.Make().String()
	}
	return nil
}

func listRuns(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.ListRequest{
		Namespace: c.NS, WorkflowType: q.text("workflow_type"), Kind: q.text("kind"), Status: q.text("status"),
		StoredStatus: q.text("stored_status"), Query: q.text("query"),
		PageSize: q.number("page_size", 1, 200), PageToken: q.text("next_page_token"),
		Stuck: q.flag("stuck"), WaitReasons: q.flag("wait_reasons"), Partial: q.flag("partial"),
	}
	values := q.valuesOf()
	if q.err != nil {
		return response{}, q.err
	}
	if in.Query != "" || in.Kind != "" {
		release, err := a.searches.acquire(c.Ctx, c.NS, c.Principal)
		if err != nil {
			return response{}, err
		}
		defer release()
	}
	list, err := a.opt.RunViews.List(c.Ctx, in)
	if values != protocol.ValuesFull {
		for i := range list.Workflows {
			view.TruncateRun(&list.Workflows[i], values)
		}
	}
	return ok(list, err)
}

// describeRun returns the run in the path, by its workflow ID, its run ID, or both.
func describeRun(a *API, c *call) (response, error) {
	q := c.query()
	values := q.valuesOf()
	if q.err != nil {
		return response{}, q.err
	}
	return ok(a.opt.RunViews.DescribeValues(c.Ctx, c.target(), values))
}

// These are the default and the maximum time, in seconds, that a request waits for the end of a run.
const (
	resultWait     = 30
	mostResultWait = 60
)

func result(a *API, c *call) (response, error) {
	q := c.query()
	wait := cmp.Or(q.number("wait_seconds", 1, mostResultWait), resultWait)
	full := q.oneOf("view", "full") == "full"
	if q.err != nil {
		return response{}, q.err
	}
	return ok(a.opt.RunViews.Result(c.Ctx, c.target(), time.Duration(wait)*time.Second, full))
}

func runsOf(a *API, c *call) (response, error) {
	runs, err := a.opt.RunViews.Runs(c.Ctx, c.target())
	if runs == nil {
		runs = []protocol.RunView{}
	}
	items := make([]runItem, len(runs))
	for i, r := range runs {
		items[i] = runItem{
			r.RunID, r.RunNumber, r.ChainRunID, r.WorkflowType, r.BusinessKey, r.Status, r.StatusBucket,
			r.ClosedReason, r.Current, r.TaskQueue, r.StartedAt, r.ClosedAt, r.Error, r.ErrorType,
		}
	}
	return ok(runsResponse{c.PathValue("workflow"), len(items), items}, err)
}

// receipt is the response to a command on a run.
type receipt struct {
	protocol.CommandReceipt
	RequestedRun    *string  `json:"requested_run_id"`
	ResolvedRun     string   `json:"resolved_run_id"`
	Scope           string   `json:"target_scope"` // instance, run
	Source          string   `json:"command_source"`
	Reason          *string  `json:"reason"`
	RejectionReason *string  `json:"rejection_reason"`
	Errors          []string `json:"validation_errors"`
}

func accepted(c *call, r protocol.CommandReceipt) receipt {
	out := receipt{CommandReceipt: r, ResolvedRun: r.RunID, Scope: "instance", Source: "control_plane", Errors: []string{}}
	if run := c.PathValue("run"); run != "" {
		out.RequestedRun, out.Scope = &run, "run"
	}
	return out
}

func signal(a *API, c *call) (response, error) {
	var in protocol.SignalRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Target, in.SignalName, in.Identity = c.target(), c.PathValue("name"), c.Principal.Name
	out, err := a.opt.Runs.Signal(c.Ctx, in)
	return response{http.StatusAccepted, accepted(c, out)}, err
}

func endRun(
	c *call, verb func(context.Context, protocol.EndRequest) (protocol.CommandReceipt, error),
) (response, error) {
	var in protocol.EndRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Target, in.Identity = c.target(), c.Principal.Name
	out, err := verb(c.Ctx, in)
	if c.detail = out.RunID; in.Reason != "" {
		c.detail += ": " + in.Reason
	}
	return ok(accepted(c, out), err)
}

func cancel(a *API, c *call) (response, error) { return endRun(c, a.opt.Runs.Cancel) }

func terminate(a *API, c *call) (response, error) { return endRun(c, a.opt.Runs.Terminate) }

func requestCancellation(a *API, c *call) (response, error) {
	return endRun(c, a.opt.Runs.RequestCancellation)
}

// redriveReceipt is the response to redrive.
type redriveReceipt struct {
	receipt
	ContinuedFrom  string `json:"continued_from_run_id"` // the failed run
	ResumeSequence int64  `json:"resume_step_sequence"`  // first command that the new run executes
}

// redrive responds with 202, or with 200 if the request was repeated.
func redrive(a *API, c *call) (response, error) {
	var in protocol.RedriveRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Target, in.Identity = c.target(), c.Principal.Name
	out, err := a.opt.Continuations.Redrive(c.Ctx, in)
	c.detail = in.RunID + " as " + out.RunID
	status := http.StatusAccepted
	if out.Retained {
		status = http.StatusOK
	}
	return response{
		status, redriveReceipt{accepted(c, out.CommandReceipt), out.ContinuedFrom, out.ResumeSequence},
	}, err
}

// reset responds with 202, or with 200 if the request was repeated.
func reset(a *API, c *call) (response, error) {
	var in protocol.ResetRequest
	if err := c.Read(&in); err != nil {
		return response{}, err
	}
	in.Target, in.Identity = c.target(), c.Principal.Name
	out, err := a.opt.Continuations.Reset(c.Ctx, in)
	c.detail = fmt.Sprintf("%s to event %d as %s", in.RunID, out.Event, out.RunID)
	if in.Reason != "" {
		c.detail += ": " + in.Reason
	}
	status := http.StatusAccepted
	if out.Retained {
		status = http.StatusOK
	}
	return response{status, out}, err
}

// deletionQuery is the query of delete_run.
type deletionQuery struct {
	Reason string `json:"reason" maxLength:"1000"`
}

// deleteRun deletes a closed run. The deletion writes its audit entry in the same transaction.
func deleteRun(a *API, c *call) (response, error) {
	q := c.query()
	in := protocol.RunDeletion{Target: c.target(), Reason: q.text("reason"), Identity: c.Principal.Name}
	if q.err != nil {
		return response{}, q.err
	}
	return ok(a.opt.Runs.DeleteRun(c.Ctx, in))
}

func repair(a *API, c *call) (response, error) { return endRun(c, a.opt.Runs.Repair) }
