package link

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
)

// Call makes the request that is the method's.
func (c *httpConn) Call(ctx context.Context, method string, in, out any) error {
	ctx, cancel := within(ctx)
	defer cancel()
	switch in := in.(type) {
	case protocol.RegisterRequest:
		c.mu.Lock()
		c.hello.incarnation, c.hello.release = in.Incarnation, in.Release
		c.mu.Unlock()
		if in.TaskQueue == "" && len(in.TaskQueues) == 0 {
			in.TaskQueue = "default"
		}
		return c.do(ctx, http.MethodPost, "/register", in, out)
	case protocol.DeregisterRequest:
		query := url.Values{"incarnation": {in.Incarnation}}
		return c.do(ctx, http.MethodDelete, "/registrations/"+url.PathEscape(in.WorkerID)+"?"+query.Encode(), nil, out)
	case protocol.ChannelPoll:
		answer, err := c.poll(ctx, in)
		return give(out, answer, err)
	case protocol.ChannelComplete:
		answer, err := c.complete(ctx, in)
		return give(out, answer, err)
	case protocol.JobHistory:
		g, _ := protocol.ParseToken(in.Token)
		return c.do(ctx, http.MethodPost, task("workflow", in.ID, "history"), protocol.HistoryRequest{
			TaskID: in.ID, Owner: g.Owner, Attempt: g.Attempt(), PageToken: in.PageToken, PageSize: in.PageSize,
		}, out)
	case protocol.JobProgress:
		lock, err := c.progress(ctx, in)
		return give(out, lock, err)
	case protocol.JobLogs:
		said, err := c.logs(ctx, in)
		return give(out, said, err)
	case protocol.WorkerHeartbeat:
		answer, err := c.heartbeat(ctx, in)
		return give(out, answer, err)
	case protocol.SessionCreate:
		in.WorkerID, in.Incarnation = c.identity()
		return c.do(ctx, http.MethodPost, "/sessions", in, out)
	case protocol.SessionVerb:
		in.WorkerID, _ = c.identity()
		at := "/sessions/" + url.PathEscape(in.SessionID)
		switch method {
		case protocol.MethodHeartbeatSession:
			return c.do(ctx, http.MethodPost, at+"/heartbeat", in, out)
		case protocol.MethodReleaseSession:
			return c.do(ctx, http.MethodPost, at+"/release", in, out)
		case protocol.MethodCloseSession:
			return c.do(ctx, http.MethodDelete, at, in, out)
		}
	}
	return rpc.Errorf(rpc.CodeUnknownMethod, http.StatusNotFound, "no route for method %q", method)
}

// Notify is a call whose answer nobody waits for; over HTTP there is no cheaper one.
func (c *httpConn) Notify(ctx context.Context, method string, in any) error {
	return c.Call(ctx, method, in, nil)
}

func within(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, rpc.DefaultTimeout)
}

// give stores an answer where the caller wants it.
func give[T any](out any, answer T, err error) error {
	if to, ok := out.(*T); ok && err == nil {
		*to = answer
	}
	return err
}

func task(kind, id, verb string) string {
	return "/" + kind + "-tasks/" + url.PathEscape(id) + "/" + verb
}

func (c *httpConn) identity() (worker, incarnation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hello.worker, c.hello.incarnation
}

// said is the release the worker registered with; the gate binds whoever says one.
func (c *httpConn) said() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hello.release
}

// poll waits for tasks until the worker drains.
func (c *httpConn) poll(ctx context.Context, in protocol.ChannelPoll) (protocol.ChannelPollAnswer, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.polls, cancel)()
	var said protocol.PollAnswer
	err := c.do(waiting, http.MethodPost, "/tasks/poll", c.request(in), &said)
	if err != nil && c.polls.Err() != nil && ctx.Err() == nil && c.ctx.Err() == nil {
		return protocol.ChannelPollAnswer{Many: true, Status: protocol.PollDraining, RetryAfter: 1000}, nil
	}
	return jobs(said), err
}

// request is a poll in the words of the routes.
func (c *httpConn) request(in protocol.ChannelPoll) protocol.PollRequest {
	out := protocol.PollRequest{
		Release: in.Release, Queues: in.Queues, Kinds: in.Kinds, Free: in.Free, Max: in.Max, BuildID: in.BuildID,
		PollID: in.PollID, PageSize: in.PageSize,
		PagedQueries: in.PagedQueries, Turns: in.Turns,
	}
	out.WorkerID, out.Incarnation = c.identity()
	if in.TimeoutMS != nil {
		seconds := min(60, int64(time.Duration(*in.TimeoutMS)*time.Millisecond/time.Second))
		out.Timeout = &seconds
	}
	return out
}

// jobs is a poll's answer in the words of the link, which reads nothing of a job but its task.
func jobs(a protocol.PollAnswer) protocol.ChannelPollAnswer {
	out := protocol.ChannelPollAnswer{
		Many: true, Status: a.Status, Reason: a.Reason, RetryAfter: a.RetryAfter, AppRelease: a.AppRelease,
		StoreTime: a.StoreTime,
	}
	for _, t := range a.Tasks {
		out.Jobs = append(out.Jobs, protocol.Job{Kind: t.Kind, Task: t})
	}
	return out
}

func (c *httpConn) complete(ctx context.Context, in protocol.ChannelComplete) (protocol.ChannelCompleteAnswer, error) {
	req := protocol.CompleteRequest{Items: make([]protocol.CompleteItem, len(in.Items))}
	_, incarnation := c.identity()
	for i, o := range in.Items {
		g, ok := protocol.ParseToken(o.Token)
		if !ok {
			return protocol.ChannelCompleteAnswer{}, protocol.Refuse(
				protocol.ReasonMalformedPayload, "token of job %s: not one of this worker's", o.ID,
			)
		}
		item, err := o.Item(g)
		if err != nil {
			return protocol.ChannelCompleteAnswer{}, err
		}
		item.Incarnation = incarnation
		req.Items[i] = item
	}
	if in.Next != nil && c.polls.Err() == nil {
		next := c.request(*in.Next)
		req.Next = &next
	}
	var said protocol.CompleteBatchAnswer
	if err := c.do(ctx, http.MethodPost, "/tasks/complete", req, &said); err != nil {
		return protocol.ChannelCompleteAnswer{}, err
	}
	out := protocol.ChannelCompleteAnswer{Many: true}
	for i, a := range said.Items {
		out.Items = append(out.Items, a.Receipt(req.Items[i].TaskID))
	}
	if said.Next != nil {
		next := jobs(*said.Next)
		out.Next = &next
	}
	return out, nil
}

// progress is a sign of life of an activity's own code.
func (c *httpConn) progress(ctx context.Context, in protocol.JobProgress) (protocol.JobLock, error) {
	g, _ := protocol.ParseToken(in.Token)
	var said protocol.HeartbeatAnswer
	err := c.do(ctx, http.MethodPost, task("activity", in.ID, "heartbeat"), protocol.HeartbeatRequest{
		TaskID: in.ID, Owner: g.Owner, AttemptID: g.AttemptID(in.ID), Progress: in.Progress, Rebuild: in.Rebuild,
	}, &said)
	if err != nil {
		return protocol.JobLock{}, err
	}
	lock, err := said.Lock()
	var lost *protocol.Error
	if errors.As(err, &lost) {
		refusal := rpc.Errorf(string(lost.Reason), lost.Reason.Status(), "%s", lost.Message)
		refusal.Details = lost.Details
		return lock, refusal
	}
	return lock, err
}

// logs hands over lines of running attempts.
func (c *httpConn) logs(ctx context.Context, in protocol.JobLogs) (out protocol.JobLogsAnswer, err error) {
	req := protocol.LogsRequest{Items: make([]protocol.AttemptLogs, len(in.Items))}
	for i, l := range in.Items {
		g, _ := protocol.ParseToken(l.Token)
		req.Items[i] = protocol.AttemptLogs{
			TaskID: l.ID, Owner: g.Owner, AttemptID: g.AttemptID(l.ID), LogChunk: l.LogChunk,
		}
	}
	var said protocol.LogsAnswer
	if err := c.do(ctx, http.MethodPost, "/tasks/logs", req, &said); err != nil {
		return out, err
	}
	for _, r := range said.Items {
		out.Items = append(out.Items, protocol.JobLogReceipt{
			ID: r.TaskID, Recorded: r.Recorded, Reason: r.Reason, Message: r.Message,
		})
	}
	return out, nil
}

// heartbeat tells of the worker. One that is not answered in time says that nothing gets through any more.
func (c *httpConn) heartbeat(
	ctx context.Context, in protocol.WorkerHeartbeat,
) (a protocol.WorkerHeartbeatAnswer, err error) {
	if in.Draining {
		c.stopPolls() // a worker that drains must not be given what another has just handed back, or itself
	}
	in.WorkerID, in.Incarnation = c.identity()
	if err := c.do(ctx, http.MethodPost, "/heartbeat", in, &a); err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.closeWith(errors.New("a heartbeat was not answered in time"))
		}
		return a, err
	}
	c.heard(ctx, a)
	return a, nil
}
