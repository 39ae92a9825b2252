package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A failed update is a result, not a rejected request, but clients of the contract distinguish the two by status only.
// So a failed update has a separate status, with all members of an update and the reason.

// updateBody is an update request and the member wait_policy, which the contract removed; it is rejected even if null.
type updateBody struct {
	protocol.UpdateRequest
	WaitPolicy json.RawMessage `json:"wait_policy"`
}

// updated is the state of an update, with the members that every command's response has.
type updated struct {
	protocol.UpdateResponse
	RequestedRun    *string  `json:"requested_run_id"`
	ResolvedRun     string   `json:"resolved_run_id"`
	Scope           string   `json:"target_scope"` // instance, run
	Source          string   `json:"command_source"`
	Reason          *string  `json:"reason"` // update_failed if it failed
	RejectionReason *string  `json:"rejection_reason"`
	Message         *string  `json:"message,omitempty"`
	Errors          []string `json:"validation_errors"`
}

// update sends an update and waits for the requested stage. 200: completed, 202: accepted, 422: its handler failed.
func update(a *API, c *call) (response, error) {
	var body updateBody
	if err := c.Read(&body); err != nil {
		return response{}, err
	}
	if body.WaitPolicy != nil {
		return response{}, protocol.Invalid("wait_policy", "was removed from the contract; use wait_for")
	}
	in := body.UpdateRequest
	in.Target, in.UpdateName, in.Identity = c.target(), c.PathValue("name"), c.Principal.Name
	out, err := a.opt.Runs.Update(c.Ctx, in)
	result := updatedBy(out)
	if in.RunID != "" {
		result.RequestedRun, result.Scope = &in.RunID, "run"
	}
	return response{updateStatus(out), result}, err
}

// updatedBy returns the response of an update in its current state.
func updatedBy(out protocol.UpdateResponse) updated {
	result := updated{
		UpdateResponse: out, ResolvedRun: out.RunID, Scope: "instance", Source: "control_plane", Errors: []string{},
	}
	if out.UpdateStatus == "failed" {
		reason := "update_failed"
		result.Reason, result.Message = &reason, out.FailureMessage
	}
	return result
}

// updateStatus returns the status of the response of an update.
func updateStatus(out protocol.UpdateResponse) int {
	switch out.UpdateStatus {
	case "completed":
		return http.StatusOK
	case "failed":
		return http.StatusUnprocessableEntity
	}
	return http.StatusAccepted
}
