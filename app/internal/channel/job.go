package channel

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"time"

	"github.com/sojourn-run/sojourn/app/internal/workerconn"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// taskToken parses a job's token. The verb checks that the worker holds the task.
func taskToken(ref protocol.JobRef) (protocol.TaskToken, error) {
	var missing []string
	if ref.ID == "" {
		missing = append(missing, "jobId")
	}
	if ref.Token == "" {
		missing = append(missing, "token")
	}
	if err := protocol.Missing(missing); err != nil {
		return protocol.TaskToken{}, err
	}
	g, ok := protocol.ParseToken(ref.Token)
	if !ok {
		return g, protocol.Refuse(protocol.ReasonMalformedPayload, "token was not issued by this app")
	}
	return g, nil
}

// jobOf converts a task to the channel's type.
func jobOf(t protocol.Task) protocol.Job {
	j := protocol.Job{Kind: t.Kind, Task: t}
	var g protocol.TaskToken
	switch {
	case t.Workflow != nil:
		w := t.Workflow
		j.ID, j.Queue, j.LockExpiresAt, j.Release = w.TaskID, w.TaskQueue, w.LeaseExpiresAt, w.Release
		g = protocol.TaskToken{Kind: t.Kind, Delivery: w.Attempt, Owner: w.LeaseOwner}
	case t.Activity != nil:
		a := t.Activity
		j.ID, j.Queue, j.LockExpiresAt, j.Release = a.TaskID, a.TaskQueue, a.LeaseExpiresAt, a.Release
		g = protocol.TaskTokenOf(t.Kind, a.TaskID, a.AttemptID, 0, a.LeaseOwner)
		if s := a.Session; s != nil {
			j.Session = &protocol.JobSession{SessionID: s.SessionID, Epoch: s.Epoch, IsNew: s.IsNew}
		}
	case t.Query != nil:
		q := t.Query
		j.ID, j.Queue, j.LockExpiresAt = q.TaskID, q.TaskQueue, q.LeaseExpiresAt
		g = protocol.TaskToken{Kind: t.Kind, Delivery: q.Attempt, Owner: q.LeaseOwner}
	case t.Validation != nil:
		v := t.Validation
		j.ID, j.Queue, j.LockExpiresAt = v.TaskID, v.TaskQueue, v.LeaseExpiresAt
		g = protocol.TaskToken{Kind: t.Kind, Delivery: v.Attempt, Owner: v.LeaseOwner}
	}
	j.Token = g.Token()
	return j
}

// poll returns jobs for a worker.
func (c *Channel) poll(ctx context.Context, p *worker, in protocol.ChannelPoll) (protocol.ChannelPollResponse, error) {
	req := pollRequest(in)
	if in.TimeoutMS != nil {
		seconds := workerconn.Seconds(max(0, time.Duration(*in.TimeoutMS)*time.Millisecond))
		req.Timeout = &seconds
	}
	counted, release := c.counted(ctx, p)
	defer release()
	a, err := p.Poll(counted, req)
	if err != nil {
		return protocol.ChannelPollResponse{}, err
	}
	return c.pollResponse(ctx, a, in.Max > 0), nil
}

// pollRequest converts a poll to the broker's type.
func pollRequest(in protocol.ChannelPoll) protocol.PollRequest {
	release := in.Release
	if release == "" && in.MachineInformation != nil && in.Props != nil {
		release = in.Props.Version
	}
	return protocol.PollRequest{
		Release: release, Queues: in.Queues, Kinds: in.Kinds, Free: in.Free, Max: in.Max, BuildID: in.BuildID,
		PollID: in.PollID, PageSize: in.PageSize, PagedQueries: in.PagedQueries, PagedSignals: in.PagedSignals,
		EagerTasks: in.EagerTasks, HandOver: in.HandOver,
	}
}

// pollResponse converts the tasks of a poll to jobs, and returns the tasks at once if the response is lost.
func (c *Channel) pollResponse(ctx context.Context, a protocol.PollResponse, many bool) protocol.ChannelPollResponse {
	out := protocol.ChannelPollResponse{
		Many: many, Status: a.Status, Reason: a.Reason, RetryAfter: a.RetryAfter, AppRelease: a.AppRelease,
		StoreTime: a.StoreTime, Error: a.Error,
	}
	if out.Status == "" {
		out.Status = protocol.PollEmpty
	}
	if len(a.Tasks) == 0 {
		return out
	}
	out.Jobs = make([]protocol.Job, len(a.Tasks))
	for i, t := range a.Tasks {
		out.Jobs[i] = jobOf(t)
	}
	if a.Undo != nil {
		rpc.OnDelivered(ctx, func(ok bool) {
			if !ok {
				c.counts.undone.Add(1)
				a.Undo()
			}
		})
	}
	return out
}

// extendLock renews the lock of one job.
func (c *Channel) extendLock(ctx context.Context, p *worker, in protocol.JobRef) (protocol.JobLock, error) {
	return heartbeat(ctx, p, protocol.JobProgress{JobRef: in}, false)
}

// reportProgress renews a job's lease and stores its progress. It counts as a heartbeat of the activity code, except
// for a rebuild report, which the worker itself sends.
func (c *Channel) reportProgress(ctx context.Context, p *worker, in protocol.JobProgress) (protocol.JobLock, error) {
	return heartbeat(ctx, p, in, in.Rebuild == nil)
}

func heartbeat(ctx context.Context, p *worker, in protocol.JobProgress, alive bool) (protocol.JobLock, error) {
	g, err := taskToken(in.JobRef)
	if err != nil {
		return protocol.JobLock{}, err
	}
	a, err := p.HeartbeatTask(ctx, protocol.HeartbeatRequest{
		Kind: g.Kind, TaskID: in.ID, Owner: g.Owner, Attempt: g.Attempt(), AttemptID: g.AttemptID(in.ID),
		Progress: in.Progress, Rebuild: in.Rebuild, Beat: alive,
	})
	if err != nil {
		return protocol.JobLock{}, err
	}
	a.TaskID = in.ID
	return a.Lock()
}

func (c *Channel) fetchHistory(ctx context.Context, p *worker, in protocol.JobHistory) (protocol.HistoryPage, error) {
	g, err := taskToken(in.JobRef)
	if err != nil {
		return protocol.HistoryPage{}, err
	}
	return p.HistoryPage(ctx, protocol.HistoryRequest{
		TaskID: in.ID, Owner: g.Owner, Attempt: g.Attempt(), PageToken: in.PageToken, After: in.After,
		PageSize: in.PageSize,
	})
}

// uploadLogs stores log lines of running attempts, of one job or of many.
func (c *Channel) uploadLogs(ctx context.Context, p *worker, in protocol.JobLogs) (protocol.JobLogsResponse, error) {
	many, list := in.Items != nil, in.Items
	if !many {
		list = []protocol.JobLines{in.JobLines}
	}
	out := protocol.JobLogsResponse{Items: make([]protocol.JobLogReceipt, len(list))}
	var req protocol.LogsRequest
	var places []int // index of each item in the list
	for i, l := range list {
		g, err := taskToken(l.JobRef)
		if l.Malformed != nil {
			err = l.Malformed
		}
		switch {
		case err != nil && !many:
			return out, err
		case err != nil:
			out.Items[i] = protocol.JobLogReceipt{ID: l.ID, Reason: protocol.ReasonOf(err), Message: err.Error()}
			continue
		}
		places = append(places, i)
		req.Items = append(req.Items, protocol.AttemptLogs{
			TaskID: l.ID, Owner: g.Owner, AttemptID: g.AttemptID(l.ID), LogChunk: l.LogChunk,
		})
	}
	if len(req.Items) == 0 {
		return out, nil
	}
	a, err := p.RecordLogs(ctx, req)
	if err != nil {
		return out, err
	}
	for k, r := range a.Items {
		if r.Err != nil && !many {
			return out, r.Err
		}
		out.Items[places[k]] = protocol.JobLogReceipt{
			ID: r.TaskID, Recorded: r.Recorded, Reason: r.Reason, Message: r.Message,
		}
	}
	return out, nil
}

// readLogs decodes lines job by job if they cannot be decoded as a whole.
func readLogs(raw json.RawMessage, why error) (in protocol.JobLogs, err error) {
	_, err = httpjson.Bundle(raw, why, httpjson.List{
		Name: "items", Most: protocol.MaxItems,
		Add: httpjson.AppendTo(&in.Items, func(raw json.RawMessage, why error) (l protocol.JobLines) {
			l.Malformed = why
			protocol.ReadMembers(raw, map[string]any{"jobId": &l.ID, "token": &l.Token})
			return l
		}),
	})
	if err == nil && in.Items == nil { // malformed lines of a single job
		err = why
	}
	return in, err
}

// refusal converts an error to its form on the wire. Other errors are returned unchanged: the caller learns only that
// the call failed.
func refusal(err error) error {
	var e *protocol.Error
	if !errors.As(err, &e) {
		return err
	}
	r := rpc.Errorf(string(e.Reason), e.Reason.Status(), "%s", e.Message)
	r.Details = maps.Clone(e.Details)
	if len(e.Fields) > 0 {
		if r.Details == nil {
			r.Details = map[string]any{}
		}
		r.Details["errors"] = e.Fields
	}
	return r
}
