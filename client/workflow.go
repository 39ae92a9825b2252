package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// Handle returns a handle of a run of a workflow ID; with an empty run ID, of its current run. It sends no request and
// does not check that the run exists. The app refuses commands to a run that is not the current one.
func (c *Client) Handle(id, run string) *Workflow { return &Workflow{client: c, ID: id, RunID: run} }

// Workflow is a handle of a run of a workflow, or of an activity run.
type Workflow struct {
	client *Client
	ID     string // workflow ID
	RunID  string // empty: the current run of the workflow ID
}

func (w *Workflow) target() protocol.Target {
	return protocol.Target{WorkflowID: w.ID, RunID: w.RunID}
}

// path returns the path of the run with a suffix.
func (w *Workflow) path(suffix string) string { return apiclient.RunPath("/api", w.target()) + suffix }

// check rejects IDs that no run can have.
func (w *Workflow) check() error { return public(protocol.CheckTarget(w.target())) }

func (w *Workflow) call(ctx context.Context, method, path string, in, out any) error {
	if err := w.check(); err != nil {
		return err
	}
	return w.client.Call(ctx, method, path, in, out)
}

// Describe returns the run: its status, its input and output, and what it waits for.
func (w *Workflow) Describe(ctx context.Context) (v RunInfo, err error) {
	err = w.call(ctx, http.MethodGet, w.path(""), nil, &v)
	return w.client.decoded(v), err
}

// Wait waits until the run and all runs that it continues as have closed, and returns the last of them without its
// input, which Describe returns. If no app responds, Wait retries for a minute; this does not affect the run.
func (w *Workflow) Wait(ctx context.Context) (RunInfo, error) {
	v, err := apiclient.Wait[runView](ctx, w.client.api, w.target())
	return w.client.decoded(v.RunInfo), public(err)
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

func decodeResult(v RunInfo, out any) error {
	if v.Status != StatusCompleted {
		return &NotCompleted{v}
	}
	return v.DecodeResult(out)
}

// Signal sends a signal. If the response is lost, Signal repeats the request at a second app; the run receives one
// signal.
func (w *Workflow) Signal(ctx context.Context, name string, args ...any) error {
	return w.intercept(ctx, workflow.OpSignal, name, args, nil, func(
		ctx context.Context, headers map[string]string,
	) error {
		raw, err := w.client.rawArgs(args)
		if err != nil {
			return err
		}
		in := protocol.SignalRequest{SignalName: name, Input: raw, RequestID: apiclient.RequestID(), Headers: headers}
		return w.call(ctx, http.MethodPost, w.path("/signal/"+url.PathEscape(name)), in, nil)
	})
}

// intercept sends a request to the run inside the interceptors of the client; see Client.intercept.
func (w *Workflow) intercept(
	ctx context.Context, op workflow.Operation, name string, args []any, own map[string]string,
	send func(ctx context.Context, headers map[string]string) error,
) error {
	return w.client.intercept(ctx, workflow.Call{Operation: op, Name: name, WorkflowID: w.ID, Args: args}, own, send)
}

// Query queries the run's code and decodes the result into out, unless nil.
func (w *Workflow) Query(ctx context.Context, name string, out any, args ...any) error {
	return w.intercept(ctx, workflow.OpQuery, name, args, nil, func(
		ctx context.Context, headers map[string]string,
	) error {
		raw, err := w.client.rawArgs(args)
		if err != nil {
			return err
		}
		var a struct {
			Result *payload.Payload `json:"result_envelope"`
		}
		in := protocol.QueryRequest{QueryName: name, Input: raw, Headers: headers}
		if err := w.call(ctx, http.MethodPost, w.path("/query/"+url.PathEscape(name)), in, &a); err != nil {
			return err
		}
		return decode(w.client.codecs, a.Result, out)
	})
}

// Update sends an update, waits for its result, and decodes the result into out, unless nil. If a validator rejects the
// update before the workflow accepts it, the reason of the error is ReasonUpdateRejected. If the validator, which runs
// again right before the handler, rejects the update then, or the handler returns an error, or the run closes before
// the update has ended, the reason is ReasonUpdateFailed.
func (w *Workflow) Update(ctx context.Context, name string, out any, args ...any) error {
	return w.intercept(ctx, workflow.OpUpdate, name, args, nil, func(
		ctx context.Context, headers map[string]string,
	) error {
		raw, err := w.client.rawArgs(args)
		if err != nil {
			return err
		}
		u := &Update{Name: name, run: w, request: protocol.UpdateRequest{
			UpdateName: name, Input: raw, RequestID: apiclient.RequestID(), WaitFor: protocol.WaitCompleted,
			WaitTimeout: new(int64(60)), Headers: headers,
		}}
		return u.Result(ctx, out)
	})
}

// Cancel requests the cancellation of the run: the root context of its code is cancelled, so the code can compensate
// and decides how the run ends. An activity run has no workflow code and is cancelled at once.
func (w *Workflow) Cancel(ctx context.Context, reason string) error {
	err := w.command(ctx, "request-cancellation", reason)
	if ReasonOf(err) == ReasonActivityRun {
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

// Redrive continues a failed run as a new run of the workflow ID and returns a handle of the new run. Completed
// activities keep their results, and the activities whose failure ended the run are executed again. Without a RunID it
// redrives the current run. The error's reason is ReasonRunNotFailed if the run is open or closed in another way, and
// ReasonNotCurrentRun if the workflow ID has a later run.
func (w *Workflow) Redrive(ctx context.Context) (*Workflow, error) {
	run, err := w.named(ctx)
	if err != nil {
		return nil, err
	}
	var out protocol.RedriveReceipt
	in := protocol.RedriveRequest{RequestID: apiclient.RequestID()}
	if err := run.call(ctx, http.MethodPost, run.path("/redrive"), in, &out); err != nil {
		return nil, err
	}
	return w.client.Handle(w.ID, out.RunID), nil
}

// ResetTo names a workflow task at whose end a reset continues.
type ResetTo string

// These are the workflow tasks that a reset can name without an event number: of those that recorded events and left
// the run open, the first and the last one.
const (
	ResetToFirstTask ResetTo = "first_task"
	ResetToLastTask  ResetTo = "last_task"
)

// ResetOptions define from where a reset continues. Either Event or To is required.
type ResetOptions struct {
	Event  int64   // number of the last event that a workflow task of the run recorded
	To     ResetTo // a workflow task instead of an event
	Reason string  // for people
	// NoReapply drops the signals, the updates without a result and the outcomes of awakeables that the run received after
	// that point. By default the new run receives them again.
	NoReapply bool
}

// Reset continues an open or closed run from the end of one of its workflow tasks as a new run of the workflow ID, and
// returns a handle of the new run. An open run closes as terminated. Activities that were open at that point run again.
// Without a RunID it resets the current run. The error's reason is ReasonResetPoint if the event does not end a
// workflow task, and ReasonNotCurrentRun if the workflow ID has a later run.
func (w *Workflow) Reset(ctx context.Context, o ResetOptions) (*Workflow, error) {
	in := protocol.ResetRequest{
		Event: o.Event, To: protocol.ResetTo(o.To), Reason: o.Reason, RequestID: apiclient.RequestID(),
	}
	if o.NoReapply {
		in.Reapply = new(bool)
	}
	if err := in.Check(); err != nil {
		return nil, public(err)
	}
	run, err := w.named(ctx)
	if err != nil {
		return nil, err
	}
	var out protocol.ResetReceipt
	path := apiclient.RunPath("/api/sojourn", run.target()) + "/reset"
	if err := run.call(ctx, http.MethodPost, path, in, &out); err != nil {
		return nil, err
	}
	return w.client.Handle(w.ID, out.RunID), nil
}

func (w *Workflow) command(ctx context.Context, verb, reason string) error {
	in := protocol.EndRequest{Reason: reason, RequestID: apiclient.RequestID()}
	return w.call(ctx, http.MethodPost, w.path("/"+verb), in, nil)
}

// Delete deletes one closed run with its history, logs and search attributes, and the ended sessions that its code
// started. It cannot be undone. Without a RunID it deletes the current run. The audit log has the reason. The error's
// reason is ReasonRunNotClosed if the run is open.
func (w *Workflow) Delete(ctx context.Context, reason string) error {
	if err := protocol.CheckRequest(protocol.RunDeletion{Reason: reason}); err != nil {
		return public(err)
	}
	run, err := w.named(ctx)
	if err != nil {
		return err
	}
	path := run.path("")
	if reason != "" {
		path += "?" + url.Values{"reason": {reason}}.Encode()
	}
	return w.client.Call(ctx, http.MethodDelete, path, nil, nil)
}

// History iterates over the events that the run has now, oldest first. Without a RunID it reads the current run.
func (w *Workflow) History(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		run, err := w.named(ctx)
		if err != nil {
			yield(Event{}, err)
			return
		}
		for e, err := range pages[Event](ctx, w.client, run.path("/history"), "events", 1000, url.Values{}) {
			if !yield(w.client.decodedEvent(e), err) {
				return
			}
		}
	}
}

// named returns the handle with a run ID: its own, or that of the current run.
func (w *Workflow) named(ctx context.Context) (*Workflow, error) {
	if w.RunID != "" {
		return w, w.check()
	}
	v, err := w.Describe(ctx)
	if err != nil {
		return nil, err
	}
	return w.client.Handle(w.ID, v.RunID), nil
}
