// Package linktest is a proxy between worker and app for tests: it cuts, delays, counts and changes calls on any
// carrier.
package linktest

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Call sends a request to the app and returns its response.
type Call func(ctx context.Context, in any) (out any, err error)

// Wire is a connection that passes every call to Through, with the method name of the verb in protocol.WorkerVerbs.
// When Through returns no error, its response must have the verb's type.
type Wire struct {
	To        protocol.WorkerConnection
	Intercept func(ctx context.Context, verb string, in any, call Call) (out any, err error)
}

var _ protocol.WorkerConnection = Wire{}

func intercept[In, Out any](
	ctx context.Context, w Wire, name string, in In,
	verb func(protocol.WorkerConnection, context.Context, In) (Out, error),
) (out Out, err error) {
	response, err := w.Intercept(ctx, name, in, func(ctx context.Context, in any) (any, error) {
		out, err := verb(w.To, ctx, in.(In))
		return out, err
	})
	if err != nil {
		return out, err
	}
	return response.(Out), nil
}

// Settings passes the call through.
func (w Wire) Settings(ctx context.Context, in protocol.MachineInformation) (protocol.WorkerSettings, error) {
	return intercept(ctx, w, "Settings", in, protocol.WorkerConnection.Settings)
}

// Register passes the call through.
func (w Wire) Register(ctx context.Context, in protocol.RegisterRequest) (protocol.RegisterResponse, error) {
	return intercept(ctx, w, "Register", in, protocol.WorkerConnection.Register)
}

// Deregister passes the call through.
func (w Wire) Deregister(ctx context.Context, in protocol.DeregisterRequest) (protocol.DeregisterResponse, error) {
	return intercept(ctx, w, "Deregister", in, protocol.WorkerConnection.Deregister)
}

// WorkerHeartbeat passes the call through.
func (w Wire) WorkerHeartbeat(
	ctx context.Context, in protocol.WorkerHeartbeat,
) (protocol.WorkerHeartbeatResponse, error) {
	return intercept(ctx, w, "WorkerHeartbeat", in, protocol.WorkerConnection.WorkerHeartbeat)
}

// Poll passes the call through.
func (w Wire) Poll(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
	return intercept(ctx, w, "Poll", in, protocol.WorkerConnection.Poll)
}

// Complete passes the call through.
func (w Wire) Complete(ctx context.Context, in protocol.CompleteRequest) (protocol.CompleteBatchResponse, error) {
	return intercept(ctx, w, "Complete", in, protocol.WorkerConnection.Complete)
}

// HeartbeatTask passes the call through.
func (w Wire) HeartbeatTask(ctx context.Context, in protocol.HeartbeatRequest) (protocol.HeartbeatResponse, error) {
	return intercept(ctx, w, "HeartbeatTask", in, protocol.WorkerConnection.HeartbeatTask)
}

// RecordLogs passes the call through.
func (w Wire) RecordLogs(ctx context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error) {
	return intercept(ctx, w, "RecordLogs", in, protocol.WorkerConnection.RecordLogs)
}

// HistoryPage passes the call through.
func (w Wire) HistoryPage(ctx context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	return intercept(ctx, w, "HistoryPage", in, protocol.WorkerConnection.HistoryPage)
}

// CreateSession passes the call through.
func (w Wire) CreateSession(ctx context.Context, in protocol.SessionCreate) (protocol.SessionResponse, error) {
	return intercept(ctx, w, "CreateSession", in, protocol.WorkerConnection.CreateSession)
}

// HeartbeatSession passes the call through.
func (w Wire) HeartbeatSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return intercept(ctx, w, "HeartbeatSession", in, protocol.WorkerConnection.HeartbeatSession)
}

// ReleaseSession passes the call through.
func (w Wire) ReleaseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return intercept(ctx, w, "ReleaseSession", in, protocol.WorkerConnection.ReleaseSession)
}

// CloseSession passes the call through.
func (w Wire) CloseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return intercept(ctx, w, "CloseSession", in, protocol.WorkerConnection.CloseSession)
}

// Conn is a connection of a link whose calls go through Wire.
type Conn struct {
	Wire
	link
}

// link lists the methods of a connection that are not calls.
type link interface {
	Done() <-chan struct{}
	Err() error
	Close()
	String() string
}

// Between returns a connection whose calls pass through a wire first.
func Between[C interface {
	protocol.WorkerConnection
	link
}](conn C, w func(ctx context.Context, verb string, in any, call Call) (any, error)) Conn {
	return Conn{Wire{conn, w}, conn}
}
