package link

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/sojourn-run/sojourn/internal/certs"
	"github.com/sojourn-run/sojourn/internal/mask"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Socket is the carrier over Socket.IO. A worker tries the apps in an order that depends on its ID; see route.
type Socket struct {
	URLs   []string // URLs of apps, such as "http://127.0.0.1:7700"
	Header http.Header
	TLS    certs.Rules // called for each connection; nil: the default
	// NetDial replaces how connections are made, for tests and proxies.
	NetDial func(ctx context.Context, network, address string) (net.Conn, error)
	// ReturnWithin is the time within which a worker returns to the app that it prefers: 10 min.
	ReturnWithin time.Duration
	// Failed is called with errors of notices whose handler panicked; may be nil.
	Failed func(error)

	route route
}

var errNoURL = errors.New("no app URL is configured; set --app-url")

// Refused reports that an app refused the worker's connection.
type Refused struct {
	URL    string
	Reason string // unauthorized, forbidden, …
	Cause  error
}

func (e *Refused) Error() string {
	if e.Reason == string(protocol.ReasonUnauthorized) {
		return fmt.Sprintf("the app at %s rejected this worker's token; set --token or SOJOURN_TOKEN", mask.URL(e.URL))
	}
	cause := e.Cause.Error()
	if refused, ok := errors.AsType[*socketio.ConnectError](e.Cause); ok {
		cause = refused.Message
	} else if refused, ok := errors.AsType[*protocol.Error](e.Cause); ok {
		cause = refused.Message
	}
	return fmt.Sprintf("the app at %s rejected this worker: %s", mask.URL(e.URL), cause)
}

// Unwrap returns the cause.
func (e *Refused) Unwrap() error { return e.Cause }

// socketConn is a connection over one socket. It is the only place of the worker that uses the terms of the socket
// protocol (jobs, tokens and locks), and it converts requests to them.
type socketConn struct {
	app    rpc.SocketCaller
	client *socketio.Client
	place
}

// Dial connects to one app.
func (c *Socket) Dial(ctx context.Context, hello protocol.ChannelAuth, notices protocol.WorkerNotices) (Conn, error) {
	url := c.route.next(c.URLs, hello.WorkerID)
	if url == "" {
		return nil, errNoURL
	}
	rules, err := c.TLS.Config()
	if err != nil {
		return nil, err
	}
	client, err := socketio.Dial(ctx, url, protocol.NamespaceWorkers, hello, socketio.DialOptions{
		Header: c.Header, TLS: rules, NetDial: c.NetDial,
		OnSocket: func(s *socketio.Socket) { rpc.Serve(s, noticeHandlers(notices), rpc.Serving{}) },
		Failed: func(_ *socketio.Socket, err error) {
			if c.Failed != nil {
				c.Failed(err)
			}
		},
	})
	if err != nil {
		c.route.failed(url)
		var refused *socketio.ConnectError
		if errors.As(err, &refused) {
			return nil, &Refused{URL: url, Reason: refused.Reason, Cause: err}
		}
		return nil, err
	}
	context.AfterFunc(client.Context(), func() { c.route.failed(url) })
	probe := &HTTP{Header: c.Header, TLS: c.TLS, NetDial: c.NetDial}
	return &socketConn{app: rpc.SocketCaller{Socket: client.Socket}, client: client, place: place{
		route: &c.route, url: url, within: c.ReturnWithin,
		check: func(ctx context.Context, url string) (protocol.WorkerSettings, error) {
			return probe.check(ctx, url, hello)
		},
	}}, nil
}

func (c *socketConn) Settings(
	ctx context.Context, m protocol.MachineInformation,
) (s protocol.WorkerSettings, err error) {
	ack, err := c.client.EmitWithAck(ctx, protocol.EventFetchSettings, m)
	if err != nil {
		return s, err
	}
	if len(ack) == 0 {
		return s, errors.New("the app confirmed the settings call without settings")
	}
	if err := json.Unmarshal(ack[0], &s); err != nil {
		return s, fmt.Errorf("settings: %w", err)
	}
	if s.Release == "" {
		return s, fmt.Errorf("settings without APP_VERSION: %.200s", ack[0])
	}
	return s, nil
}

func (c *socketConn) Done() <-chan struct{} { return c.client.Done() }
func (c *socketConn) Err() error            { return c.client.Err() }
func (c *socketConn) String() string        { return mask.URL(c.url) }

// closeTime is the time that Close waits for handlers of notices.
const closeTime = 5 * time.Second

func (c *socketConn) Close() {
	c.client.Close(nil)
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	// A goroutine that does not end in time must not block the caller.
	_ = c.client.Wait(ctx)
}

// Apps returns the number of configured app URLs.
func (c *Socket) Apps() int { return len(c.URLs) }

// noticeHandlers returns the handlers for notices of the app.
func noticeHandlers(w protocol.WorkerNotices) rpc.Handlers {
	h := rpc.Handlers{}
	handleNotice(h, protocol.NoticeCancel, w.CancelAttempt)
	handleNotice(h, protocol.NoticeSession, w.EndSession)
	handleNotice(h, protocol.NoticeYield, w.YieldSession)
	handleNotice(h, protocol.NoticeEvict, w.EvictRuns)
	handleNotice(h, protocol.NoticePause, w.Pause)
	plain := func(handle func(context.Context) error) func(context.Context, rpc.None) error {
		return func(ctx context.Context, _ rpc.None) error { return handle(ctx) }
	}
	handleNotice(h, protocol.NoticeDrain, plain(w.Drain))
	handleNotice(h, protocol.NoticeResume, plain(w.Resume))
	handleNotice(h, protocol.NoticePrepare, plain(w.PrepareSessions))
	handleNotice(h, protocol.NoticeSettings, plain(w.RefreshSettings))
	return h
}

func handleNotice[In any](h rpc.Handlers, method string, handle func(context.Context, In) error) {
	rpc.Handle(h, method, func(ctx context.Context, in In) (rpc.None, error) { return rpc.None{}, handle(ctx, in) })
}

// callApp calls a method of the app. A refusal is a *protocol.Error; after other errors the outcome of the call is
// unknown. F
func callApp[Out any](ctx context.Context, c *socketConn, method string, in any) (out Out, err error) {
	err = c.app.Call(ctx, method, in, &out)
	var e *rpc.Error
	if !errors.As(err, &e) {
		return out, err
	}
	switch e.Code {
	case rpc.CodeDeadlineExceeded, rpc.CodeCancelled, rpc.CodeInternal, rpc.CodeMalformedResponse:
		return out, err
	}
	return out, &protocol.Error{Reason: protocol.Reason(e.Code), Message: e.Message, Details: e.Details}
}

// Register calls the app's method of this name, as do the following methods.
func (c *socketConn) Register(ctx context.Context, in protocol.RegisterRequest) (protocol.RegisterResponse, error) {
	return callApp[protocol.RegisterResponse](ctx, c, protocol.MethodRegister, in)
}

// Deregister calls the app's method.
func (c *socketConn) Deregister(
	ctx context.Context, in protocol.DeregisterRequest,
) (protocol.DeregisterResponse, error) {
	return callApp[protocol.DeregisterResponse](ctx, c, protocol.MethodDeregister, in)
}

// WorkerHeartbeat calls the app's method.
func (c *socketConn) WorkerHeartbeat(
	ctx context.Context, in protocol.WorkerHeartbeat,
) (protocol.WorkerHeartbeatResponse, error) {
	return callApp[protocol.WorkerHeartbeatResponse](ctx, c, protocol.MethodHeartbeat, in)
}

// CreateSession calls the app's method.
func (c *socketConn) CreateSession(ctx context.Context, in protocol.SessionCreate) (protocol.SessionResponse, error) {
	return callApp[protocol.SessionResponse](ctx, c, protocol.MethodCreateSession, in)
}

// HeartbeatSession calls the app's method.
func (c *socketConn) HeartbeatSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return callApp[protocol.SessionResponse](ctx, c, protocol.MethodHeartbeatSession, in)
}

// ReleaseSession calls the app's method.
func (c *socketConn) ReleaseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return callApp[protocol.SessionResponse](ctx, c, protocol.MethodReleaseSession, in)
}

// CloseSession calls the app's method.
func (c *socketConn) CloseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return callApp[protocol.SessionResponse](ctx, c, protocol.MethodCloseSession, in)
}

// Poll requests jobs.
func (c *socketConn) Poll(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
	a, err := callApp[protocol.ChannelPollResponse](ctx, c, protocol.MethodPoll, channelPoll(in))
	return tasksOf(a), err
}

func channelPoll(in protocol.PollRequest) protocol.ChannelPoll {
	out := protocol.ChannelPoll{
		Queues: in.Queues, Kinds: in.Kinds, Free: in.Free, Max: in.Max, PollID: in.PollID, Release: in.Release,
		BuildID: in.BuildID, PageSize: in.PageSize, PagedQueries: in.PagedQueries,
		PagedSignals: in.PagedSignals, EagerTasks: in.EagerTasks, HandOver: in.HandOver,
	}
	if in.Timeout != nil {
		ms := *in.Timeout * 1000
		out.TimeoutMS = &ms
	}
	return out
}

func tasksOf(a protocol.ChannelPollResponse) protocol.PollResponse {
	out := protocol.PollResponse{
		Status: a.Status, Reason: a.Reason, RetryAfter: a.RetryAfter, AppRelease: a.AppRelease, StoreTime: a.StoreTime,
	}
	for _, j := range a.Jobs {
		out.Tasks = append(out.Tasks, j.Task)
	}
	return out
}

// Complete sends the outcomes of jobs.
func (c *socketConn) Complete(
	ctx context.Context, in protocol.CompleteRequest,
) (protocol.CompleteBatchResponse, error) {
	req := protocol.ChannelComplete{Items: make([]protocol.JobOutcome, len(in.Items))}
	for i := range in.Items {
		req.Items[i] = outcome(&in.Items[i])
	}
	if in.Next != nil {
		next := channelPoll(*in.Next)
		req.Next = &next
	}
	response, err := callApp[protocol.ChannelCompleteResponse](ctx, c, protocol.MethodCompleteJob, req)
	if err != nil {
		return protocol.CompleteBatchResponse{}, err
	}
	out := protocol.CompleteBatchResponse{Items: make([]protocol.CompleteResponse, len(response.Items))}
	for i, r := range response.Items {
		out.Items[i] = protocol.CompleteResponse{
			TaskID: r.ID, Outcome: r.Outcome, Recorded: r.Recorded, CreatedTaskIDs: r.Created, Eager: r.Eager, Error: r.Error,
			Warnings: r.Warnings,
		}
		if r.Reason != "" {
			out.Items[i].Reason = &r.Reason
		}
	}
	if response.Next != nil {
		next := tasksOf(*response.Next)
		out.Next = &next
	}
	return out, nil
}

// ref identifies a job to the app by the token that the app sent with it.
func ref(kind protocol.TaskKind, task, attemptID string, attempt int64, owner string) protocol.JobRef {
	return protocol.JobRef{ID: task, Token: protocol.TaskTokenOf(kind, task, attemptID, attempt, owner).Token()}
}

// outcome converts the outcome of a task to the outcome of a job.
func outcome(c *protocol.CompleteItem) protocol.JobOutcome {
	o := protocol.JobOutcome{
		JobRef: ref(cmp.Or(c.Kind, protocol.KindActivity), c.TaskID, c.AttemptID, c.Attempt, c.Owner), Lines: c.Lines,
		Executor: c.Executor,
	}
	if c.Returned != "" {
		o.Returned, o.Began = c.Returned, c.Began
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
		Commands: c.Commands, RecordFrom: c.RecordFrom, Kept: c.Kept,
		Result: protocol.Value{Payload: c.Result}, Failure: c.Failure, Epoch: c.Epoch,
		Recovered: c.Recovered, Eager: c.Eager, CodeVersion: c.CodeVersion,
	}
	if c.Kind == protocol.KindQuery {
		o.Response.Result, o.Response.ResultEnvelope = protocol.Value{}, c.Result
	}
	return o
}

// HeartbeatTask renews the lock of a job. The app rejects the call if the lock is lost, so that no worker overlooks the
// loss; HeartbeatTask converts this error to a response.
func (c *socketConn) HeartbeatTask(
	ctx context.Context, in protocol.HeartbeatRequest,
) (protocol.HeartbeatResponse, error) {
	job := ref(cmp.Or(in.Kind, protocol.KindActivity), in.TaskID, in.AttemptID, in.Attempt, in.Owner)
	a := protocol.HeartbeatResponse{TaskID: in.TaskID, AttemptID: in.AttemptID, Attempt: in.Attempt, Owner: in.Owner}
	lock, err := callApp[protocol.JobLock](
		ctx, c, protocol.MethodReportProgress, protocol.JobProgress{JobRef: job, Progress: in.Progress, Rebuild: in.Rebuild},
	)
	var lost *protocol.Error
	if errors.As(err, &lost) {
		if cancelled, reported := lost.Details["cancelRequested"].(bool); reported {
			reason := string(lost.Reason)
			a.Reason, a.CancelRequested = &reason, cancelled
			return a, nil
		}
	}
	a.Renewed, a.LeaseExpiresAt = err == nil, lock.LockExpiresAt
	a.CancelRequested, a.CanContinue = lock.CancelRequested, err == nil && !lock.CancelRequested
	return a, err
}

// HistoryPage fetches a page of the history behind a job.
func (c *socketConn) HistoryPage(ctx context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	return callApp[protocol.HistoryPage](ctx, c, protocol.MethodFetchHistory, protocol.JobHistory{
		JobRef:    ref(cmp.Or(in.Kind, protocol.KindWorkflow), in.TaskID, "", in.Attempt, in.Owner),
		PageToken: in.PageToken, After: in.After, PageSize: in.PageSize,
	})
}

// RecordLogs uploads the log lines of jobs.
func (c *socketConn) RecordLogs(ctx context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error) {
	req := protocol.JobLogs{Items: make([]protocol.JobLines, len(in.Items))}
	for i, a := range in.Items {
		req.Items[i] = protocol.JobLines{
			JobRef: ref(protocol.KindActivity, a.TaskID, a.AttemptID, 0, a.Owner), LogChunk: a.LogChunk,
		}
	}
	response, err := callApp[protocol.JobLogsResponse](ctx, c, protocol.MethodUploadLogs, req)
	if err != nil {
		return protocol.LogsResponse{}, err
	}
	out := protocol.LogsResponse{Items: make([]protocol.LogReceipt, len(response.Items))}
	for i, r := range response.Items {
		out.Items[i] = protocol.LogReceipt{TaskID: r.ID, Recorded: r.Recorded, Reason: r.Reason, Message: r.Message}
	}
	return out, nil
}
