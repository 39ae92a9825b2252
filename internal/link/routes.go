package link

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// callTime limits a request without a deadline.
const callTime = 60 * time.Second

// request sends one request.
func request[Out any](ctx context.Context, c *httpConn, method, path string, in any) (out Out, err error) {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, callTime)
		defer cancel()
	}
	err = c.do(ctx, method, path, in, &out)
	return out, err
}

func task(kind protocol.TaskKind, id, verb string) string {
	return "/" + string(kind) + "-tasks/" + url.PathEscape(id) + "/" + verb
}

func (c *httpConn) identity() (worker, incarnation string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hello.worker, c.hello.incarnation
}

// registeredRelease returns the release with which the worker registered. The release check applies only to requests
// with a release.
func (c *httpConn) registeredRelease() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hello.release
}

// Register announces the worker.
func (c *httpConn) Register(ctx context.Context, in protocol.RegisterRequest) (protocol.RegisterResponse, error) {
	c.mu.Lock()
	c.hello.incarnation, c.hello.release = in.Incarnation, in.Release
	c.mu.Unlock()
	if in.TaskQueue == "" && len(in.TaskQueues) == 0 {
		in.TaskQueue = "default"
	}
	return request[protocol.RegisterResponse](ctx, c, http.MethodPost, "/register", in)
}

// Deregister removes the registration.
func (c *httpConn) Deregister(ctx context.Context, in protocol.DeregisterRequest) (protocol.DeregisterResponse, error) {
	query := url.Values{"incarnation": {in.Incarnation}}
	return request[protocol.DeregisterResponse](
		ctx, c, http.MethodDelete, "/registrations/"+url.PathEscape(in.WorkerID)+"?"+query.Encode(), nil,
	)
}

// Poll waits for tasks until the worker drains.
func (c *httpConn) Poll(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	if !in.HandOver {
		defer context.AfterFunc(c.polls, cancel)()
	}
	a, err := request[protocol.PollResponse](waiting, c, http.MethodPost, "/tasks/poll", c.inItsName(in))
	if err != nil && !in.HandOver && c.polls.Err() != nil && ctx.Err() == nil && c.ctx.Err() == nil {
		return protocol.PollResponse{Status: protocol.PollDraining, RetryAfter: 1000}, nil
	}
	return a, err
}

// maxHold is the longest that the routes hold a poll, in seconds.
const maxHold = 60

// inItsName returns a poll with the ID and namespace of this connection's worker.
func (c *httpConn) inItsName(in protocol.PollRequest) protocol.PollRequest {
	in.WorkerID, in.Incarnation = c.identity()
	if in.Timeout != nil {
		seconds := min(maxHold, *in.Timeout)
		in.Timeout = &seconds
	}
	return in
}

// Complete reports outcomes. A worker that drains does not poll in the same request.
func (c *httpConn) Complete(
	ctx context.Context, in protocol.CompleteRequest,
) (protocol.CompleteBatchResponse, error) {
	req := protocol.CompleteRequest{Items: make([]protocol.CompleteItem, len(in.Items))}
	_, incarnation := c.identity()
	for i := range in.Items {
		req.Items[i] = in.Items[i]
		req.Items[i].Incarnation = incarnation
	}
	if in.Next != nil && c.polls.Err() == nil {
		next := c.inItsName(*in.Next)
		req.Next = &next
	}
	return request[protocol.CompleteBatchResponse](ctx, c, http.MethodPost, "/tasks/complete", req)
}

// HeartbeatTask sends a heartbeat of an activity's code.
func (c *httpConn) HeartbeatTask(
	ctx context.Context, in protocol.HeartbeatRequest,
) (protocol.HeartbeatResponse, error) {
	in.Kind, in.Epoch = "", 0 // the path contains the kind, and the app knows the epoch
	return request[protocol.HeartbeatResponse](
		ctx, c, http.MethodPost, task(protocol.KindActivity, in.TaskID, "heartbeat"), in,
	)
}

// HistoryPage fetches a page of the history behind a task.
func (c *httpConn) HistoryPage(ctx context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	return request[protocol.HistoryPage](
		ctx, c, http.MethodPost, task(protocol.KindWorkflow, in.TaskID, "history"), in,
	)
}

// RecordLogs sends log lines of running attempts.
func (c *httpConn) RecordLogs(ctx context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error) {
	return request[protocol.LogsResponse](ctx, c, http.MethodPost, "/tasks/logs", in)
}

// WorkerHeartbeat sends a heartbeat. A timeout ends the connection.
func (c *httpConn) WorkerHeartbeat(
	ctx context.Context, in protocol.WorkerHeartbeat,
) (protocol.WorkerHeartbeatResponse, error) {
	if in.Draining {
		c.stopPolls() // a draining worker must not receive tasks that it or another worker has just returned
	}
	in.WorkerID, in.Incarnation = c.identity()
	a, err := request[protocol.WorkerHeartbeatResponse](ctx, c, http.MethodPost, "/heartbeat", in)
	if err != nil {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.closeWith(errors.New("the app did not respond to a heartbeat in time"))
		}
		return a, err
	}
	c.applyHeartbeat(ctx, a)
	return a, nil
}

// CreateSession acquires a session.
func (c *httpConn) CreateSession(ctx context.Context, in protocol.SessionCreate) (protocol.SessionResponse, error) {
	in.WorkerID, in.Incarnation = c.identity()
	return request[protocol.SessionResponse](ctx, c, http.MethodPost, "/sessions", in)
}

// HeartbeatSession renews the lease of a session.
func (c *httpConn) HeartbeatSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return c.session(ctx, http.MethodPost, "/heartbeat", in)
}

// ReleaseSession releases a session.
func (c *httpConn) ReleaseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return c.session(ctx, http.MethodPost, "/release", in)
}

// CloseSession ends a session permanently.
func (c *httpConn) CloseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return c.session(ctx, http.MethodDelete, "", in)
}

func (c *httpConn) session(
	ctx context.Context, method, verb string, in protocol.SessionVerb,
) (protocol.SessionResponse, error) {
	in.WorkerID, _ = c.identity()
	return request[protocol.SessionResponse](ctx, c, method, "/sessions/"+url.PathEscape(in.SessionID)+verb, in)
}
