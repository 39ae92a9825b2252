package workerapi

import (
	"errors"
	"slices"

	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// maxPolls is the default limit of polls that an app holds at once. capacityRetry is the time in seconds after which a
// poll above the limit should retry. A held poll costs a connection and some 30 KB; a worker of the Rust SDK has up to
// 21 polls.
const (
	maxPolls      = 10_000
	capacityRetry = 2
)

// reservePoll returns a place for a held poll, or an error if there is none. A poll with a timeout of zero needs no
// place. When all places are used, a caller below its share gets a place of the namespace, or of the token in its own
// namespace, with the most places: cut ends one of its polls, which gets the same error as a poll without a place.
func (a *API) reservePoll(c *call, in *protocol.PollRequest, cut budget.Cutter) (*budget.Grant, error) {
	if in.Timeout != nil && *in.Timeout == 0 {
		return nil, nil
	}
	if place, ok := a.held.Place(c.Principal.Owner(c.NS), cut); ok {
		return place, nil
	}
	return nil, a.full(c, in)
}

// errPollDisplaced ends a held poll in favor of another caller with fewer held polls.
var errPollDisplaced = errors.New("the poll was ended to make room for another caller")

// full returns the error of a poll for which there is no place.
func (a *API) full(c *call, in *protocol.PollRequest) error {
	c.addErrorMember("task", nil)
	c.addErrorMember("poll_status", protocol.ReasonPollCapacity)
	c.addErrorMember("task_kind", taskKind(in.Kinds))
	c.addErrorMember("task_queue", in.TaskQueue)
	c.addErrorMember("retryable", true)
	c.addErrorMember("retry_after_seconds", capacityRetry)
	return protocol.Refuse(
		protocol.ReasonPollCapacity, "this app holds %d polls, which is the maximum; try again", a.opt.MaxPolls,
	)
}

// taskKind returns the kind of a rejected poll, as published workers compare it.
func taskKind(kinds []protocol.TaskKind) string {
	switch {
	case len(kinds) == 0 || slices.Contains(kinds, protocol.KindWorkflow):
		return "workflow_task"
	case slices.Contains(kinds, protocol.KindActivity):
		return "activity_task"
	case slices.Contains(kinds, protocol.KindQuery):
		return "query_task"
	}
	return "update_validation_task"
}
