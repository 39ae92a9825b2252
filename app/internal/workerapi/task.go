package workerapi

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Every call about a leased task names its holder and attempt, in members that differ between clients. They are parsed
// in one place, since confusing two attempts would count a result twice.

// holder has the members of every call about a leased task.
type holder struct {
	Owner       string `json:"lease_owner"`           // as in the task; the worker ID
	Incarnation string `json:"incarnation"`           // incarnation of the registration; optional
	Attempt     int64  `json:"workflow_task_attempt"` // as in the task; an outdated number changes nothing
	AttemptID   string `json:"activity_attempt_id"`   // as in the task; an outdated ID changes nothing
	AttemptOld  string `json:"attempt_id"`            // alternative name of activity_attempt_id
	Epoch       int64  `json:"session_epoch"`         // as in the task's worker_session; checked if present
}

func (h holder) attemptID() string {
	if h.AttemptID != "" {
		return h.AttemptID
	}
	return h.AttemptOld
}

// workflowItem starts the outcome of a workflow task; from here on an error contains the task and the attempt.
func workflowItem(c *call, h holder) protocol.CompleteItem {
	id := c.PathValue("task")
	c.addErrorMember("task_id", id)
	c.addErrorMember("workflow_task_attempt", h.Attempt)
	c.addErrorMember("recorded", false)
	c.addErrorMember("outcome", "rejected")
	return protocol.CompleteItem{
		Namespace: c.NS, Kind: protocol.KindWorkflow, TaskID: id, Owner: h.Owner, Incarnation: h.Incarnation,
		Attempt: h.Attempt,
	}
}

// activityItem starts the outcome of an activity attempt.
func activityItem(c *call, h holder) protocol.CompleteItem {
	id := c.PathValue("task")
	c.addErrorMember("task_id", id)
	c.addErrorMember("activity_attempt_id", h.attemptID())
	c.addErrorMember("recorded", false)
	c.addErrorMember("outcome", "rejected")
	return protocol.CompleteItem{
		Namespace: c.NS, Kind: protocol.KindActivity, TaskID: id, Owner: h.Owner, Incarnation: h.Incarnation,
		AttemptID: h.attemptID(), Epoch: h.Epoch,
	}
}

// submit completes one item.
func (a *API) submit(c *call, item protocol.CompleteItem) (protocol.CompleteResponse, error) {
	out, err := a.opt.Verbs.Complete(c.Ctx, protocol.CompleteRequest{Items: []protocol.CompleteItem{item}})
	if err != nil {
		return protocol.CompleteResponse{}, err
	}
	return out.Items[0], out.Items[0].Err
}

type workflowOutcome struct {
	TaskID    string   `json:"task_id"`
	Attempt   int64    `json:"workflow_task_attempt"`
	Outcome   string   `json:"outcome"`
	Recorded  bool     `json:"recorded"`
	RunID     string   `json:"run_id,omitempty"`
	RunStatus string   `json:"run_status,omitempty"`
	Created   []string `json:"created_task_ids"`
	Next      *string  `json:"next_task_id"`
	Reason    *string  `json:"reason"`
	// Warnings are about accepted commands that had no effect.
	Warnings []protocol.Warning `json:"warnings,omitempty"`
}

func workflowResponse(a protocol.CompleteResponse) response {
	created := a.CreatedTaskIDs
	if created == nil {
		created = []string{}
	}
	return response{http.StatusOK, workflowOutcome{
		TaskID: a.TaskID, Attempt: a.Attempt, Outcome: a.Outcome, Recorded: a.Recorded, RunID: a.RunID,
		RunStatus: a.RunStatus, Created: created,
		Next: a.NextTaskID, Reason: a.Reason, Warnings: a.Warnings,
	}}
}

func completeWorkflow(a *API, c *call) (response, error) {
	var in commandsBody
	if err := c.Need(&in); err != nil {
		workflowItem(c, in.holder)
		raw, _ := c.Body() // the body was read above
		var h holder
		if rest, ok := protocol.OutlineOf(raw); ok && json.Unmarshal(raw, &h) == nil {
			if _, e := a.submit(c, rest.Unreadable(workflowItem(c, h), err)); protocol.ReasonOf(e) == protocol.ReasonValidation {
				err = e
			}
		}
		return response{}, err
	}
	item := workflowItem(c, in.holder)
	item.Commands, item.StreamWaits = in.Commands, in.StreamWaits
	out, err := a.submit(c, item)
	a.lateReport(c, in.Owner, err)
	return workflowResponse(out), err
}

func failWorkflow(a *API, c *call) (response, error) {
	var in failing
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	item := workflowItem(c, in.holder)
	var err error
	if item.Failure, err = in.failure(c); err != nil {
		return response{}, err
	}
	if len(item.Failure.Type) > 512 {
		return response{}, protocol.Invalid("failure.type", "is longer than 512 bytes")
	}
	if len(item.Failure.Reason) > 191 {
		return response{}, protocol.Invalid("failure.reason", "is longer than 191 bytes")
	}
	out, err := a.submit(c, item)
	a.lateReport(c, in.Owner, err)
	return workflowResponse(out), err
}

// A lateStatuses report of a workflow task is rejected and changes nothing. The published Rust SDK ends the whole
// worker after such an error status, so terminating one run would stop all other runs of the worker. Its workers get
// these errors with status 200.
var lateStatuses = map[protocol.Reason]int{
	protocol.ReasonRunClosed: http.StatusOK, protocol.ReasonTaskNotLeased: http.StatusOK,
	protocol.ReasonLeaseOwnerMismatch: http.StatusOK,
	protocol.ReasonLeaseExpired:       http.StatusOK, protocol.ReasonAttemptMismatch: http.StatusOK,
	protocol.ReasonTaskNotFound: http.StatusOK,
}

// lateReport selects the statuses of the error for a worker's late report.
func (a *API) lateReport(c *call, worker string, err error) {
	if lateStatuses[protocol.ReasonOf(err)] != 0 && strings.HasPrefix(
		a.opt.Workers.SDK(c.Ctx, c.NS, worker), protocol.RustSDK,
	) {
		c.statuses = lateStatuses
		c.addErrorMember("created_task_ids", []string{})
		c.addErrorMember("next_task_id", nil)
	}
}

type activityOutcome struct {
	TaskID    string  `json:"task_id"`
	AttemptID string  `json:"activity_attempt_id"`
	Outcome   string  `json:"outcome"`
	Recorded  bool    `json:"recorded"`
	RunID     string  `json:"run_id,omitempty"`
	Next      *string `json:"next_task_id"`
	Reason    *string `json:"reason"`
}

func activityResponse(a protocol.CompleteResponse) response {
	return response{http.StatusOK, activityOutcome{
		TaskID: a.TaskID, AttemptID: a.AttemptID, Outcome: a.Outcome, Recorded: a.Recorded, RunID: a.RunID,
		Next: a.NextTaskID, Reason: a.Reason,
	}}
}

func completeActivity(a *API, c *call) (response, error) {
	var in completing
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	item := activityItem(c, in.holder)
	var err error
	if item.Result, err = in.result(); err != nil {
		return response{}, err
	}
	out, err := a.submit(c, item)
	return activityResponse(out), err
}

func failActivity(a *API, c *call) (response, error) {
	var in failing
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	item := activityItem(c, in.holder)
	var err error
	if item.Failure, err = in.failure(c); err != nil {
		return response{}, err
	}
	out, err := a.submit(c, item)
	return activityResponse(out), err
}

func historyPage(a *API, c *call) (response, error) {
	var in historyBody
	if err := c.Need(&in); err != nil {
		return response{}, err
	}
	if err := protocol.CheckLimits(in); err != nil {
		return response{}, err
	}
	size := max(in.PageSize, in.Older)
	id := c.PathValue("task")
	c.addErrorMember("task_id", id)
	c.addErrorMember("workflow_task_attempt", in.Attempt)
	all, err := flag(c, "all")
	if err != nil {
		return response{}, err
	}
	out, err := a.opt.Verbs.HistoryPage(c.Ctx, protocol.HistoryRequest{
		Namespace: c.NS, TaskID: id, Owner: in.Owner, Attempt: in.Attempt, PageToken: in.PageToken, PageSize: size,
		After: in.After, All: all || in.All,
	})
	if err != nil {
		return response{}, err
	}
	small, err := pack(out.Events, in.Encoding)
	if small == nil || err != nil {
		return response{http.StatusOK, out}, err
	}
	return response{http.StatusOK, packedPage{&page{&out}, *small}}, nil
}

// flag reads a true or false of the query string.
func flag(c *call, name string) (bool, error) {
	switch v := c.URL.Query().Get(name); v {
	case "", "0", "false":
		return false, nil
	case "1", "true":
		return true, nil
	default:
		return false, protocol.Invalid(name, "must be true or false, not %.40q", v)
	}
}
