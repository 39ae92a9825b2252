package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// idempotencyKey returns the Idempotency-Key of a start request, or "" for any other request.
func idempotencyKey(in any) string {
	switch in := in.(type) {
	case protocol.StartRequest:
		return in.IdempotencyKey
	case protocol.ActivityRequest:
		return in.IdempotencyKey
	}
	return ""
}

// identify generates the workflow ID and the Idempotency-Key of a start that lacks them. An app of a release that
// ignores the key recognizes a repeated request by the generated workflow ID.
func identify(id, key, duplicate *string, conflict string) {
	if *id == "" {
		*id = ulid.Make().String()
		if conflict == "" {
			*duplicate = protocol.ConflictUseExisting
		}
	}
	if *key == "" {
		*key = ulid.Make().String()
	}
}

// Start starts a workflow with these arguments. Without a workflow ID, Start generates one. It sends an
// Idempotency-Key: if the response of one app is lost and the client repeats the start at another app, no second run
// starts. If the ID is in use, the policies of the request decide what the start does; by default the app refuses it
// with the reason protocol.ReasonDuplicateStart.
func (c *Client) Start(ctx context.Context, in protocol.StartRequest, args ...any) (*Workflow, error) {
	keyless := in.IdempotencyKey == ""
	identify(&in.WorkflowID, &in.IdempotencyKey, &in.DuplicatePolicy, in.ConflictPolicy)
	if keyless && in.Cron != "" { // the start creates a schedule; the schedule's ID identifies a repeated request
		in.IdempotencyKey = ""
	}
	var err error
	if in.Input, err = input(in.Input, args); err != nil {
		return nil, err
	}
	var out protocol.StartResponse
	if err := c.Call(ctx, http.MethodPost, "/api/workflows", in, &out); err != nil {
		return nil, err
	}
	return c.Run(out.WorkflowID, out.RunID), nil
}

// input encodes args as a JSON envelope. Without args it returns raw, the input that the caller has encoded.
func input(raw json.RawMessage, args []any) (json.RawMessage, error) {
	if len(args) == 0 {
		return raw, nil
	}
	p, err := payload.EncodeArgs(args...)
	if err != nil {
		return nil, err
	}
	return json.Marshal(p)
}

// Workflow returns a handle of the current run of a workflow ID. It does not check that the workflow exists.
func (c *Client) Workflow(id string) *Workflow { return &Workflow{client: c, ID: id} }

// Run returns a handle of one run of a workflow ID. The app refuses commands to a run that is not the current one.
func (c *Client) Run(id, run string) *Workflow { return &Workflow{client: c, ID: id, RunID: run} }

// Workflow is a handle of a workflow or of one of its runs. It holds only their IDs and sends no request of its own.
type Workflow struct {
	client *Client
	ID     string
	RunID  string // empty: the current run of the workflow ID
}

// path returns the URL path of the workflow, or of its run, below root.
func (w *Workflow) path(root, suffix string) string {
	p := root + "/workflows/" + url.PathEscape(w.ID)
	if w.RunID != "" {
		p += "/runs/" + url.PathEscape(w.RunID)
	}
	return p + suffix
}

// check rejects IDs that no run can have.
func (w *Workflow) check() error {
	return protocol.CheckTarget(protocol.Target{WorkflowID: w.ID, RunID: w.RunID})
}

func (w *Workflow) call(ctx context.Context, method, path string, in, out any) error {
	if err := w.check(); err != nil {
		return err
	}
	return w.client.Call(ctx, method, path, in, out)
}

// Describe returns the run: its status, its input and output, and what it waits for.
func (w *Workflow) Describe(ctx context.Context) (v protocol.RunView, err error) {
	return v, w.call(ctx, http.MethodGet, w.path("/api", ""), nil, &v)
}

// retryTime is how long a call that waits for a result is retried while no app responds.
const retryTime = time.Minute

// outage stores since when no app has responded to a call that is being retried; zero while an app responds.
type outage struct{ since time.Time }

// final returns the error with which a call must fail after err, or nil if the call must be retried.
func (o *outage) final(ctx context.Context, c *Client, err error) error {
	var unreachable *UnreachableError
	switch {
	case err == nil:
		o.since = time.Time{}
	case ctx.Err() != nil, protocol.ReasonOf(err) != "",
		// no app ever responded: the URL may be wrong
		errors.As(err, &unreachable) && !c.responded.Load() && o.since.IsZero():
		return err
	case o.since.IsZero():
		o.since = time.Now()
	case time.Since(o.since) >= retryTime:
		return fmt.Errorf("%w; no response for %s", err, time.Since(o.since).Truncate(time.Second))
	}
	return nil
}

// pause waits for nextTry or for the end of ctx.
func pause(ctx context.Context, nextTry <-chan time.Time) error {
	select {
	case <-nextTry:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Wait waits until the run and all runs that it continues as have closed, and returns the last of them without its
// input, which Describe returns. If no app responds, Wait retries for a minute; this does not affect the run.
func (w *Workflow) Wait(ctx context.Context) (v protocol.RunView, err error) {
	var out outage
	for {
		// wait a second between requests: an app that is stopping responds immediately
		nextTry := time.After(time.Second)
		err = w.call(ctx, http.MethodGet, w.path("/api/sojourn", "/result?wait_seconds=60"), nil, &v)
		if err == nil && v.Terminal {
			return v, nil
		}
		if err = out.final(ctx, w.client, err); err != nil {
			return v, err
		}
		if err = pause(ctx, nextTry); err != nil {
			return v, err
		}
	}
}

// StartAndWait is Start and [Workflow.Wait], in one request if the workflow ends within a minute.
//
// If the response is lost, StartAndWait repeats the request with its Idempotency-Key, so it starts no second run.
//
// With an error, the returned run has only its IDs: none if the run was not started, and no run ID if it may have been.
func (c *Client) StartAndWait(ctx context.Context, in protocol.StartRequest, args ...any) (protocol.RunView, error) {
	identify(&in.WorkflowID, &in.IdempotencyKey, &in.DuplicatePolicy, in.ConflictPolicy)
	in.WaitSeconds = 60
	var err error
	if in.Input, err = input(in.Input, args); err != nil {
		return protocol.RunView{}, err
	}
	if err := in.Check(); err != nil {
		return protocol.RunView{}, err
	}
	var started protocol.StartResult
	var sent atomic.Bool // true once a connection was open: an app may have received the request
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	})
	send := func(base string) error {
		return c.request(traced, http.MethodPost, base+"/api/workflows", in, &started)
	}
	for out := (outage{}); ; {
		nextTry := time.After(time.Second)
		err := c.atAnyApp(ctx, send)
		switch {
		case err == nil && started.Terminal:
			return started.RunView, nil
		case err == nil:
			return c.Run(started.WorkflowID, started.RunID).await(ctx)
		// an app refused the request, or the URL may be wrong
		case protocol.ReasonOf(err) != "", !sent.Load() && !c.responded.Load():
			return protocol.RunView{}, err
		}
		if err = out.final(ctx, c, err); err == nil {
			err = pause(ctx, nextTry)
		}
		if err != nil {
			return protocol.RunView{WorkflowID: in.WorkflowID}, err
		}
	}
}

// await calls Wait. If Wait fails, the returned run has only its IDs.
func (w *Workflow) await(ctx context.Context) (protocol.RunView, error) {
	v, err := w.Wait(ctx)
	if err != nil {
		v = protocol.RunView{WorkflowID: w.ID, RunID: w.RunID}
	}
	return v, err
}

// Execute is StartAndWait and decodes the result into out, unless nil. If the workflow did not complete, the error is a
// *NotCompleted.
func (c *Client) Execute(ctx context.Context, in protocol.StartRequest, out any, args ...any) error {
	v, err := c.StartAndWait(ctx, in, args...)
	if err != nil {
		return err
	}
	return decodeResult(v, out)
}

// NotCompleted is the error for a workflow without a result: it failed, timed out, or was cancelled or terminated.
type NotCompleted struct{ Run protocol.RunView }

// Error returns the run, its status and its failure.
func (e *NotCompleted) Error() string {
	why := e.Run.Reason
	if f := e.Run.Failed(); f.Message != "" {
		why = f.Text()
	}
	if why != "" {
		why = ": " + why
	}
	return fmt.Sprintf("%s, run %s: %s%s", e.Run.WorkflowID, e.Run.RunID, e.Run.Status, why)
}

// Result waits for the end of the workflow, through runs that continue as new, and decodes the result of the last one
// into out, unless nil. If the workflow did not complete, the error is a *NotCompleted.
func (w *Workflow) Result(ctx context.Context, out any) error {
	v, err := w.Wait(ctx)
	if err != nil {
		return err
	}
	return decodeResult(v, out)
}

func decodeResult(v protocol.RunView, out any) error {
	if v.Status != "completed" {
		return &NotCompleted{v}
	}
	return decode(v.OutputEnvelope, out)
}

// Signal sends a signal. If the response is lost, Signal repeats the request at a second app; the run receives one
// signal.
func (w *Workflow) Signal(ctx context.Context, name string, args ...any) error {
	raw, err := input(nil, args)
	if err != nil {
		return err
	}
	in := protocol.SignalRequest{SignalName: name, Input: raw, RequestID: requestID()}
	return w.call(ctx, http.MethodPost, w.path("/api", "/signal/"+url.PathEscape(name)), in, nil)
}

// requestID returns a new request ID. An app that receives a request twice applies it once, by this ID.
func requestID() string { return "client-" + ulid.Make().String() }

// Query queries the run's code and decodes the result into out, unless nil.
func (w *Workflow) Query(ctx context.Context, name string, out any, args ...any) error {
	raw, err := input(nil, args)
	if err != nil {
		return err
	}
	var a protocol.QueryResponse
	in := protocol.QueryRequest{QueryName: name, Input: raw}
	if err := w.call(ctx, http.MethodPost, w.path("/api", "/query/"+url.PathEscape(name)), in, &a); err != nil {
		return err
	}
	return decode(a.ResultEnvelope, out)
}

func decode(p *payload.Payload, out any) error {
	if p == nil || out == nil {
		return nil
	}
	return payload.Decode(*p, out)
}

// UpdateFailed is the reason of an error if the update handler returned an error, or if the run closed before the
// update completed.
const UpdateFailed protocol.Reason = "update_failed"

// ErrQuotaExceeded matches, with errors.Is, refusals because of a quota of the namespace. The request had no effect;
// the message has the quota, its limit and the current value.
var ErrQuotaExceeded error = &protocol.Error{Reason: protocol.ReasonQuotaExceeded, Message: "a quota is exceeded"}

// Update sends an update, waits for its result, and decodes the result into out, unless nil.
func (w *Workflow) Update(ctx context.Context, name string, out any, args ...any) error {
	raw, err := input(nil, args)
	if err != nil {
		return err
	}
	wait := int64(60)
	in := protocol.UpdateRequest{
		UpdateName: name, Input: raw, RequestID: requestID(), WaitFor: protocol.WaitCompleted, WaitTimeout: &wait,
	}
	for { // repeating the request with the same ID waits for the same update
		var a protocol.UpdateResponse
		err := w.call(ctx, http.MethodPost, w.path("/api", "/update/"+url.PathEscape(name)), in, &a)
		if err != nil {
			return err
		}
		if a.UpdateStatus == protocol.WaitCompleted {
			return decode(a.ResultEnvelope, out)
		}
	}
}

// ErrCancelNotSupported is the error of [Workflow.Cancel], by errors.Is, if no registered worker of the workflow type
// supports requests for cancellation. Workers of the published SDKs do not. The run is unchanged; [Workflow.CancelNow]
// ends it.
var ErrCancelNotSupported error = &protocol.Error{
	Reason: protocol.ReasonCancelNotSupported, Message: "no worker of the type supports requests for cancellation",
}

// Cancel requests the cancellation of the run: the root context of its code is cancelled, so the code can compensate
// and decides how the run ends. An activity run has no workflow code and is cancelled at once.
func (w *Workflow) Cancel(ctx context.Context, reason string) error {
	err := w.command(ctx, "request-cancellation", reason)
	if protocol.ReasonOf(err) == protocol.ReasonActivityRun {
		return w.CancelNow(ctx, reason)
	}
	return err
}

// CancelNow closes the run as cancelled immediately. The workflow code does not run again, so it cannot compensate.
func (w *Workflow) CancelNow(ctx context.Context, reason string) error {
	return w.command(ctx, "cancel", reason)
}

// Terminate closes the run immediately, without running its code.
func (w *Workflow) Terminate(ctx context.Context, reason string) error {
	return w.command(ctx, "terminate", reason)
}

// Delete deletes one closed run with its history, logs and search attributes, and the ended sessions that its code
// started. It cannot be undone. Without a RunID it deletes the current run. The audit log has the reason. The error's
// reason is protocol.ReasonRunNotClosed if the run is open.
func (w *Workflow) Delete(ctx context.Context, reason string) error {
	if err := protocol.CheckRequest(protocol.RunDeletion{Reason: reason}); err != nil {
		return err
	}
	run := w
	if w.RunID == "" {
		v, err := w.Describe(ctx)
		if err != nil {
			return err
		}
		run = w.client.Run(w.ID, v.RunID)
	}
	path := run.path("/api", "")
	if reason != "" {
		path += "?" + url.Values{"reason": {reason}}.Encode()
	}
	return w.call(ctx, http.MethodDelete, path, nil, nil)
}

func (w *Workflow) command(ctx context.Context, verb, reason string) error {
	in := protocol.EndRequest{Reason: reason, RequestID: requestID()}
	return w.call(ctx, http.MethodPost, w.path("/api", "/"+verb), in, nil)
}

// History iterates over the events that the run has now, oldest first.
func (w *Workflow) History(ctx context.Context) iter.Seq2[history.Event, error] {
	if err := w.check(); err != nil {
		return func(yield func(history.Event, error) bool) { yield(history.Event{}, err) }
	}
	return pages[history.Event](ctx, w.client, w.path("/api", "/history"), "events", 1000, url.Values{})
}
