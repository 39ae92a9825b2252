package channel

import (
	"context"

	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// notices sends notices to the worker at the other end of a socket and waits for its acknowledgement.
type notices struct{ socket *socketio.Socket }

var _ protocol.WorkerNotices = notices{}

// notice is the argument of an rpc-notify event.
type notice struct {
	Method  string `json:"method"`
	Payload any    `json:"payload,omitempty"`
}

func (n notices) send(ctx context.Context, method string, body any) error {
	_, err := n.socket.EmitWithAck(ctx, rpc.EventNotify, notice{method, body})
	return err
}

// CancelAttempt asks the worker to stop an attempt.
func (n notices) CancelAttempt(ctx context.Context, c protocol.CancelNotice) error {
	return n.send(ctx, protocol.NoticeCancel, c)
}

// EndSession notifies the worker that it no longer owns a session.
func (n notices) EndSession(ctx context.Context, s protocol.SessionNotice) error {
	return n.send(ctx, protocol.NoticeSession, s)
}

// YieldSession asks the worker to release a session.
func (n notices) YieldSession(ctx context.Context, s protocol.SessionNotice) error {
	return n.send(ctx, protocol.NoticeYield, s)
}

// PrepareSessions asks the worker for a heartbeat.
func (n notices) PrepareSessions(ctx context.Context) error {
	return n.send(ctx, protocol.NoticePrepare, struct{}{})
}

// EvictRuns notifies the worker that runs in its sticky cache have ended.
func (n notices) EvictRuns(ctx context.Context, e protocol.EvictNotice) error {
	return n.send(ctx, protocol.NoticeEvict, e)
}

// Drain asks the worker to finish its tasks and exit.
func (n notices) Drain(ctx context.Context) error {
	return n.send(ctx, protocol.NoticeDrain, struct{}{})
}

// Pause asks the worker to finish its tasks and stay connected.
func (n notices) Pause(ctx context.Context, p protocol.PauseNotice) error {
	return n.send(ctx, protocol.NoticePause, p)
}

// Resume asks the worker to poll again.
func (n notices) Resume(ctx context.Context) error {
	return n.send(ctx, protocol.NoticeResume, struct{}{})
}

// RefreshSettings asks the worker to fetch its settings again.
func (n notices) RefreshSettings(ctx context.Context) error {
	return n.send(ctx, protocol.NoticeSettings, struct{}{})
}
