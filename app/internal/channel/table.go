package channel

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// handle registers a method for registered connections, and converts its errors to their protocol form.
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
	}, decodeStrict)
}

// bundle serves payloads of a method that cannot be decoded as a whole: read decodes their items one by one, or returns
// why if the call must be refused.
func bundle[In, Out any](
	h rpc.Handlers, method string, read func(raw json.RawMessage, why error) (In, error),
	fn func(ctx context.Context, p *worker, in In) (Out, error),
) {
	h.Unread(method, func(ctx context.Context, raw json.RawMessage, why error) (any, error) {
		p, err := caller(ctx)
		if err != nil {
			return nil, refusal(err)
		}
		in, err := read(raw, why)
		if err != nil {
			return nil, refusal(err)
		}
		out, err := fn(ctx, p, in)
		if err != nil {
			return nil, refusal(err)
		}
		return out, nil
	})
}

func readHeartbeat(raw json.RawMessage, why error) (protocol.WorkerHeartbeat, error) {
	return httpjson.Heartbeat(raw, why)
}

// decodeStrict rejects what the HTTP routes reject, with the same errors: members of other types, and strings with a
// NUL, which not every database can store. Payloads of programs may contain a NUL by accident; sound removes it there.
func decodeStrict(raw []byte, in any, unread error) error {
	if in, is := in.(*protocol.ChannelComplete); is {
		withoutNUL(&in.JobOutcome)
		for i := range in.Items {
			withoutNUL(&in.Items[i])
		}
	}
	var why error
	if unread != nil {
		why = httpjson.DecodeError(raw, in, unread)
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

// verb registers a method whose protocol types are the app's types.
func verb[In, Out any](
	h rpc.Handlers, method string, fn func(protocol.WorkerConnection, context.Context, In) (Out, error),
) {
	handle(h, method, func(ctx context.Context, p *worker, in In) (Out, error) { return fn(p, ctx, in) })
}

// caller returns the worker that made the call.
func caller(ctx context.Context) (*worker, error) {
	if p, ok := rpc.PrincipalFrom(ctx).(*worker); ok {
		return p, nil
	}
	return nil, protocol.Refuse(protocol.ReasonUnauthorized, "only workers may call this method")
}

// table returns the methods that a worker may call: methods with a different form on the wire, and all others.
func (c *Channel) table() rpc.Handlers {
	h := rpc.Handlers{}
	handle(h, protocol.MethodPoll, c.poll)
	handle(h, protocol.MethodCompleteJob, c.completeJob)
	bundle(h, protocol.MethodCompleteJob, readCompletion, c.completeJob)
	handle(h, protocol.MethodReturnJob, c.returnJob)
	handle(h, protocol.MethodExtendLock, c.extendLock)
	handle(h, protocol.MethodReportProgress, c.reportProgress)
	handle(h, protocol.MethodFetchHistory, c.fetchHistory)
	handle(h, protocol.MethodUploadLogs, c.uploadLogs)
	bundle(h, protocol.MethodUploadLogs, readLogs, c.uploadLogs)
	verb(h, protocol.MethodSettings, protocol.WorkerConnection.Settings)
	verb(h, protocol.MethodRegister, protocol.WorkerConnection.Register)
	verb(h, protocol.MethodDeregister, protocol.WorkerConnection.Deregister)
	verb(h, protocol.MethodHeartbeat, protocol.WorkerConnection.WorkerHeartbeat)
	bundle(h, protocol.MethodHeartbeat, readHeartbeat, func(
		ctx context.Context, p *worker, in protocol.WorkerHeartbeat,
	) (protocol.WorkerHeartbeatResponse, error) {
		return p.WorkerHeartbeat(ctx, in)
	})
	verb(h, protocol.MethodCreateSession, protocol.WorkerConnection.CreateSession)
	verb(h, protocol.MethodHeartbeatSession, protocol.WorkerConnection.HeartbeatSession)
	verb(h, protocol.MethodReleaseSession, protocol.WorkerConnection.ReleaseSession)
	verb(h, protocol.MethodCloseSession, protocol.WorkerConnection.CloseSession)
	return h
}

// beforeSettings are the methods that are served before the settings were fetched: a job token proves on any connection
// that the worker holds the job. Clients of Socket.IO buffer calls while they are disconnected, and send them on a new
// connection before its connect handlers run.
var beforeSettings = []string{
	protocol.MethodExtendLock, protocol.MethodCompleteJob, protocol.MethodReturnJob, protocol.MethodReportProgress,
}

// tableBeforeSettings rejects every method that is not in beforeSettings.
func (c *Channel) tableBeforeSettings() rpc.Handlers {
	h := rpc.Handlers{}
	for method, handler := range c.handlers {
		if slices.Contains(beforeSettings, method) {
			h[method] = handler
			continue
		}
		rpc.Handle(h, method, func(context.Context, json.RawMessage) (rpc.None, error) {
			c.counts.early.Add(1)
			return rpc.None{}, rpc.Errorf(
				"settings_required", http.StatusConflict, "fetch the worker settings before calling %s", method,
			)
		})
	}
	return h
}
