package channel

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
)

// handle enters a method of a known worker, whose refusals are put into the words of the wire.
func handle[In, Out any](h rpc.Handlers, method string, fn func(ctx context.Context, p *Peer, in In) (Out, error)) {
	rpc.Handle(h, method, func(ctx context.Context, in In) (Out, error) {
		p, ok := rpc.PrincipalFrom(ctx).(*Peer)
		if !ok {
			var none Out
			return none, refusal(protocol.Refuse(protocol.ReasonUnauthorized, "the caller is no worker"))
		}
		out, err := fn(ctx, p, in)
		if err != nil {
			return out, refusal(err)
		}
		return out, nil
	})
}

// table is every method a worker may call.
func (c *Channel) table() rpc.Handlers {
	h := rpc.Handlers{}
	handle(h, protocol.MethodSettings, c.fetchSettings)
	handle(h, protocol.MethodRegister, c.register)
	handle(h, protocol.MethodDeregister, c.deregister)
	handle(h, protocol.MethodPoll, c.poll)
	handle(h, protocol.MethodCompleteJob, c.completeJob)
	handle(h, protocol.MethodReturnJob, c.returnJob)
	handle(h, protocol.MethodExtendLock, c.extendLock)
	handle(h, protocol.MethodReportProgress, c.reportProgress)
	handle(h, protocol.MethodFetchHistory, c.fetchHistory)
	handle(h, protocol.MethodUploadLogs, c.uploadLogs)
	handle(h, protocol.MethodHeartbeat, c.heartbeat)
	handle(h, protocol.MethodCreateSession, func(ctx context.Context, p *Peer, in protocol.SessionCreate) (protocol.SessionAnswer, error) {
		if err := c.ensureRegistered(ctx, p, nil); err != nil {
			return protocol.SessionAnswer{}, err
		}
		in.WorkerID, in.Namespace, in.Incarnation = p.WorkerID, p.Namespace, p.currentIncarnation()
		return c.verbs.CreateSession(ctx, in)
	})
	session := func(method string, verb func(context.Context, protocol.SessionVerb) (protocol.SessionAnswer, error)) {
		handle(h, method, func(ctx context.Context, p *Peer, in protocol.SessionVerb) (protocol.SessionAnswer, error) {
			in.WorkerID, in.Namespace = p.WorkerID, p.Namespace
			return verb(ctx, in)
		})
	}
	session(protocol.MethodHeartbeatSession, c.verbs.HeartbeatSession)
	session(protocol.MethodReleaseSession, c.verbs.ReleaseSession)
	session(protocol.MethodCloseSession, c.verbs.CloseSession)
	return h
}
