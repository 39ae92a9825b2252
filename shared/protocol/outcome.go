package protocol

// Item converts the outcome to an item of the HTTP routes, for the task of the token. The transport sets the owner,
// namespace and incarnation.
func (o JobOutcome) Item(g TaskToken) (CompleteItem, error) {
	item := CompleteItem{Kind: g.Kind, TaskID: o.ID, Owner: g.Owner, Attempt: g.Attempt(), AttemptID: g.AttemptID(o.ID)}
	if o.Malformed != nil {
		item.Malformed = o.Malformed
		if o.Outline != nil && g.Kind == KindWorkflow {
			item = o.Outline.Unreadable(item, o.Malformed)
		}
		return item, nil
	}
	item.Lines, item.Executor = o.Lines, o.Executor
	if o.Returned != "" {
		item.Returned, item.Began = o.Returned, o.Began
		return item, nil
	}
	r := o.Response
	if r == nil {
		r = &JobResponse{}
	}
	item.Epoch, item.Recovered, item.Eager, item.CodeVersion = r.Epoch, r.Recovered, r.Eager, r.CodeVersion
	switch o.Status {
	case JobOK, JobUserFailure:
		if r.Failure == nil && o.Status == JobUserFailure {
			item.Failure = &Failure{Message: o.message("the job failed")}
			return item, nil
		}
		item.Failure, item.Commands, item.StreamWaits, item.Kept = r.Failure, r.Commands, r.StreamWaits, r.Kept
		item.RecordFrom = r.RecordFrom
		if g.Kind == KindQuery && !r.ResultEnvelope.IsZero() {
			item.Result = r.ResultEnvelope
			return item, nil
		}
		var err error
		item.Result, err = r.Result.Under(r.Codec)
		return item, err
	case JobTimeout:
		item.Failure = &Failure{Message: o.message("the job ran out of time"), Type: "timeout", Kind: "timeout"}
	case JobMemoryIssue:
		item.Failure = &Failure{Message: o.message("the job ran out of memory"), Type: "out_of_memory"}
	case JobLogSizeExceeded:
		item.Failure = &Failure{Message: o.message("the job logged too much"), Type: "log_size_exceeded", NonRetryable: true}
	case JobInternalError:
		item.Returned, item.LostCount = o.message("internal_error"), true
	default:
		return item, Invalid(
			"status", "must be OK, USER_FAILURE, TIMEOUT, MEMORY_ISSUE, LOG_SIZE_EXCEEDED or INTERNAL_ERROR, not %.40q",
			o.Status,
		)
	}
	return item, nil
}

func (o JobOutcome) message(otherwise string) string {
	if o.ErrorMessage != "" {
		return o.ErrorMessage
	}
	return otherwise
}

// Receipt converts the response to an outcome to the form of the channel.
func (a CompleteResponse) Receipt(id string) JobReceipt {
	r := JobReceipt{
		ID: id, Outcome: a.Outcome, Recorded: a.Recorded, Created: a.CreatedTaskIDs, Eager: a.Eager, Error: a.Error,
		Warnings: a.Warnings,
	}
	if a.Reason != nil {
		r.Reason = *a.Reason
	}
	return r
}

// Lock converts the response to a heartbeat to the form of the channel. If the caller no longer has the lease it
// returns a refusal: a worker could ignore a member of a response and continue.
func (a HeartbeatResponse) Lock() (JobLock, error) {
	if !a.Renewed {
		reason := ReasonStaleAttempt
		if a.Reason != nil {
			reason = Reason(*a.Reason)
		}
		return JobLock{}, Refuse(reason, "the lock of job %s is lost", a.TaskID).With("cancelRequested", a.CancelRequested)
	}
	return JobLock{LockExpiresAt: a.LeaseExpiresAt, CancelRequested: a.CancelRequested || !a.CanContinue}, nil
}

// Rejected returns the response to an outcome that was refused before its task was checked.
func Rejected(taskID string, err error) CompleteResponse {
	body := BodyOf(err)
	reason := string(body.Reason)
	return CompleteResponse{TaskID: taskID, Outcome: "rejected", Reason: &reason, Err: err, Error: body}
}
