package channel

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
)

// handle enters a method of a known worker, whose refusals are put into the words of the wire.
func handle[In, Out any](
	c *Channel, h rpc.Handlers, method string, fn func(ctx context.Context, p *Peer, in In) (Out, error),
) {
	rpc.Handle(h, method, func(ctx context.Context, in In) (out Out, err error) {
		p, err := c.caller(ctx)
		if err == nil {
			out, err = fn(p.calls(ctx), p, in)
		}
		if err != nil {
			return out, refusal(err)
		}
		return out, nil
	})
}

// caller is the worker that calls, if it may still.
func (c *Channel) caller(ctx context.Context) (*Peer, error) {
	p, ok := rpc.PrincipalFrom(ctx).(*Peer)
	if !ok {
		return nil, protocol.Refuse(protocol.ReasonUnauthorized, "the caller is no worker")
	}
	return p, c.still(ctx, p)
}

// table is every method a worker may call.
func (c *Channel) table() rpc.Handlers {
	h := rpc.Handlers{}
	handle(c, h, protocol.MethodSettings, c.fetchSettings)
	handle(c, h, protocol.MethodRegister, c.register)
	handle(c, h, protocol.MethodDeregister, c.deregister)
	handle(c, h, protocol.MethodPoll, c.poll)
	handle(c, h, protocol.MethodCompleteJob, c.completeJob)
	h.Unread(protocol.MethodCompleteJob, c.unreadCompletion)
	handle(c, h, protocol.MethodReturnJob, c.returnJob)
	handle(c, h, protocol.MethodExtendLock, c.extendLock)
	handle(c, h, protocol.MethodReportProgress, c.reportProgress)
	handle(c, h, protocol.MethodFetchHistory, c.fetchHistory)
	handle(c, h, protocol.MethodUploadLogs, c.uploadLogs)
	handle(c, h, protocol.MethodHeartbeat, c.heartbeat)
	handle(c, h, protocol.MethodCreateSession, func(
		ctx context.Context, p *Peer, in protocol.SessionCreate,
	) (protocol.SessionAnswer, error) {
		if err := c.ensureRegistered(ctx, p, nil); err != nil {
			return protocol.SessionAnswer{}, err
		}
		in.WorkerID, in.Namespace, in.Incarnation = p.WorkerID, p.Namespace, p.currentIncarnation()
		return c.verbs.CreateSession(ctx, in)
	})
	session := func(method string, verb func(context.Context, protocol.SessionVerb) (protocol.SessionAnswer, error)) {
		handle(c, h, method, func(ctx context.Context, p *Peer, in protocol.SessionVerb) (protocol.SessionAnswer, error) {
			in.WorkerID, in.Namespace = p.WorkerID, p.Namespace
			return verb(ctx, in)
		})
	}
	session(protocol.MethodHeartbeatSession, c.verbs.HeartbeatSession)
	session(protocol.MethodReleaseSession, c.verbs.ReleaseSession)
	session(protocol.MethodCloseSession, c.verbs.CloseSession)
	return h
}
