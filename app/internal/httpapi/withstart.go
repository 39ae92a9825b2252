package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/internal/serve"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// signalWithStartBody is a start request with a signal.
type signalWithStartBody struct {
	startBody
	SignalName  string          `json:"signal_name" minLength:"1" maxLength:"255"`
	SignalInput json.RawMessage `json:"signal_input"` // a plain array of arguments or an envelope
}

// updateWithStartBody is a start request with an update.
type updateWithStartBody struct {
	startBody
	UpdateName  string          `json:"update_name" minLength:"1" maxLength:"255"`
	UpdateInput json.RawMessage `json:"update_input"`                       // a plain array of arguments or an envelope
	WaitFor     string          `json:"wait_for" enum:"accepted,completed"` // accepted (default), completed
	WaitTimeout *int64          `json:"wait_timeout_seconds" minimum:"1"`   // default 30, at most 60
}

// signalledWithStart is the response to a start with a signal.
type signalledWithStart struct {
	receipt
	StartOutcome string `json:"start_outcome" enum:"started_new,returned_existing_active"`
}

// updatedWithStart is the response to a start with an update.
type updatedWithStart struct {
	updated
	StartOutcome string `json:"start_outcome" enum:"started_new,returned_existing_active"`
}

// withStartRoutes returns the routes that start a workflow together with a signal or an update.
func withStartRoutes(ours lineFunc) []route {
	const one = "/api/sojourn/workflows/{workflow}"
	updated := ours(post, one+"/update-with-start", "update_with_start", auth.Writer, updateWithStart)
	updated.Limit = serve.Held
	return []route{ours(post, one+"/signal-with-start", "signal_with_start", auth.Writer, signalWithStart), updated}
}

// signalWithStart starts a workflow with a signal. 201: it started a run, 202: an open run received the signal.
func signalWithStart(a *API, c *call) (response, error) {
	var body signalWithStartBody
	if err := c.Read(&body); err != nil {
		return response{}, err
	}
	start, err := body.request(c, c.PathValue("workflow"))
	if err != nil {
		return response{}, err
	}
	out, err := a.opt.Starts.SignalWithStart(c.Ctx, protocol.SignalWithStartRequest{
		StartRequest: start, SignalName: body.SignalName, SignalInput: body.SignalInput,
	})
	status := http.StatusAccepted
	if out.StartOutcome == "started_new" {
		status = http.StatusCreated
	}
	return response{status, signalledWithStart{accepted(c, out.CommandReceipt), out.StartOutcome}}, err
}

// updateWithStart starts a workflow with an update and waits for the requested stage. The statuses are those of an
// update.
func updateWithStart(a *API, c *call) (response, error) {
	var body updateWithStartBody
	if err := c.Read(&body); err != nil {
		return response{}, err
	}
	start, err := body.request(c, c.PathValue("workflow"))
	if err != nil {
		return response{}, err
	}
	out, err := a.opt.Starts.UpdateWithStart(c.Ctx, protocol.UpdateWithStartRequest{
		StartRequest: start, UpdateName: body.UpdateName, UpdateInput: body.UpdateInput, WaitFor: body.WaitFor,
		WaitTimeout: body.WaitTimeout,
	})
	return response{updateStatus(out.UpdateResponse), updatedWithStart{updatedBy(out.UpdateResponse), out.StartOutcome}},
		err
}
