package link

import "github.com/sojourn-run/sojourn/shared/protocol"

// ref names a task to the app.
func ref(kind protocol.TaskKind, task, attemptID string, attempt int64, owner string) protocol.JobRef {
	if kind == "" {
		kind = protocol.KindActivity
	}
	return protocol.JobRef{ID: task, Token: protocol.TaskTokenOf(kind, task, attemptID, attempt, owner).Token()}
}

// outcome puts the end of a task into the channel's words.
func outcome(c protocol.CompleteItem) protocol.JobOutcome {
	o := protocol.JobOutcome{JobRef: ref(c.Kind, c.TaskID, c.AttemptID, c.Attempt, c.Owner), Lines: c.Lines}
	if c.Returned != "" {
		o.Returned = c.Returned
		if c.LostCount {
			o.Returned, o.Status, o.ErrorMessage = "", protocol.JobInternalError, c.Returned
		}
		return o
	}
	o.Status = protocol.JobOK
	if c.Failure != nil {
		o.Status = protocol.JobUserFailure
	}
	o.Response = &protocol.JobResponse{
		Commands: c.Commands, Kept: c.Kept, Result: protocol.Value{Payload: c.Result}, Failure: c.Failure, Epoch: c.Epoch,
		Recovered: c.Recovered, Then: c.Then, CodeVersion: c.CodeVersion,
	}
	if c.Kind == protocol.KindQuery {
		o.Response.Result, o.Response.ResultEnvelope = protocol.Value{}, c.Result
	}
	return o
}
