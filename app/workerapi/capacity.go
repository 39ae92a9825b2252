package workerapi

import (
	"slices"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// maxPolls is how many polls an app holds at once where the settings do not say, and capacityRetry when one above that
// is to come again, in seconds. A poll that is held is a connection and some 30 KB; a worker of the Rust SDK has up to
// 21 of them.
const (
	maxPolls      = 10_000
	capacityRetry = 2
)

// takePlace takes one of the places for polls that are held, and gives it back with the function it returns. A poll
// that waits for nothing needs none.
func (a *API) takePlace(c *call, in *protocol.PollRequest) (release func(), err error) {
	if in.Timeout != nil && *in.Timeout == 0 {
		return func() {}, nil
	}
	if a.held.Add(1) <= int64(a.opt.MaxPolls) {
		return func() { a.held.Add(-1) }, nil
	}
	a.held.Add(-1)
	c.tell("task", nil)
	c.tell("poll_status", protocol.ReasonPollCapacity)
	c.tell("task_kind", taskKind(in.Kinds))
	c.tell("task_queue", in.TaskQueue)
	c.tell("retryable", true)
	c.tell("retry_after_seconds", capacityRetry)
	return nil, protocol.Refuse(
		protocol.ReasonPollCapacity, "this app holds %d polls, which is all it may; try again", a.opt.MaxPolls,
	)
}

// taskKind is what a refused poll asked for, in the words that published workers compare with their own.
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
