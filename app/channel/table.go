package channel

import (
	"context"
	"strings"

	"github.com/sojourn-run/sojourn/shared/httpjson"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
)

// handle enters a method of a known worker, whose refusals are put into the words of the wire.
func handle[In, Out any](h rpc.Handlers, method string, fn func(ctx context.Context, p *worker, in In) (Out, error)) {
	rpc.Handle(h, method, func(ctx context.Context, in In) (out Out, err error) {
		p, err := caller(ctx)
		if err == nil {
			out, err = fn(ctx, p, in)
		}
		if err != nil {
			return out, refusal(err)
		}
		return out, nil
	}, sound)
}

// sound refuses what the HTTP routes refuse, in their words: members of other types, and strings that hold a NUL, which
// not every database can keep. What programs wrote may hold one by accident, and loses it.
func sound(raw []byte, in any, unread error) error {
	if in, is := in.(*protocol.ChannelComplete); is {
		withoutNUL(&in.JobOutcome)
		for i := range in.Items {
			withoutNUL(&in.Items[i])
		}
	}
	var why error
	if unread != nil {
		why = httpjson.Unfit(raw, in, unread)
	} else {
		why = httpjson.WithoutNUL(raw, in)
	}
	if in, is := in.(*protocol.SessionCreate); is {
		why = in.Refused(why)
	}
	return refusal(why)
}

func withoutNUL(o *protocol.JobOutcome) {
	o.ErrorMessage = strings.ReplaceAll(o.ErrorMessage, "\x00", "")
}

// verb enters a method that says the same on the wire as in the app.
func verb[In, Out any](
	h rpc.Handlers, method string, fn func(protocol.WorkerConnection, context.Context, In) (Out, error),
) {
	handle(h, method, func(ctx context.Context, p *worker, in In) (Out, error) { return fn(p, ctx, in) })
}

// caller is the worker that calls.
func caller(ctx context.Context) (*worker, error) {
	if p, ok := rpc.PrincipalFrom(ctx).(*worker); ok {
		return p, nil
	}
	return nil, protocol.Refuse(protocol.ReasonUnauthorized, "the caller is no worker")
}

// table is every method a worker may call: the verbs that have other words on the wire, and those that have not.
func (c *Channel) table() rpc.Handlers {
	h := rpc.Handlers{}
	handle(h, protocol.MethodPoll, c.poll)
	handle(h, protocol.MethodCompleteJob, c.completeJob)
	h.Unread(protocol.MethodCompleteJob, c.unreadCompletion)
	handle(h, protocol.MethodReturnJob, c.returnJob)
	handle(h, protocol.MethodExtendLock, c.extendLock)
	handle(h, protocol.MethodReportProgress, c.reportProgress)
	handle(h, protocol.MethodFetchHistory, c.fetchHistory)
	handle(h, protocol.MethodUploadLogs, c.uploadLogs)
	verb(h, protocol.MethodSettings, protocol.WorkerConnection.Settings)
	verb(h, protocol.MethodRegister, protocol.WorkerConnection.Register)
	verb(h, protocol.MethodDeregister, protocol.WorkerConnection.Deregister)
	verb(h, protocol.MethodHeartbeat, protocol.WorkerConnection.WorkerHeartbeat)
	verb(h, protocol.MethodCreateSession, protocol.WorkerConnection.CreateSession)
	verb(h, protocol.MethodHeartbeatSession, protocol.WorkerConnection.HeartbeatSession)
	verb(h, protocol.MethodReleaseSession, protocol.WorkerConnection.ReleaseSession)
	verb(h, protocol.MethodCloseSession, protocol.WorkerConnection.CloseSession)
	return h
}
