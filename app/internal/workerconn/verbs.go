package workerconn

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Register announces the worker.
func (p *Conn) Register(ctx context.Context, in protocol.RegisterRequest) (protocol.RegisterResponse, error) {
	return serve(ctx, p, in, p.registerWorker)
}

// Deregister deletes the registration of the worker.
func (p *Conn) Deregister(ctx context.Context, in protocol.DeregisterRequest) (protocol.DeregisterResponse, error) {
	return serve(ctx, p, in, p.deregisterWorker)
}

// WorkerHeartbeat sends the worker's heartbeat, which renews all leases that it names.
func (p *Conn) WorkerHeartbeat(
	ctx context.Context, in protocol.WorkerHeartbeat,
) (protocol.WorkerHeartbeatResponse, error) {
	return serve(ctx, p, in, p.heartbeat)
}

// Poll returns tasks for the worker. The caller calls Undo if it could not deliver them.
func (p *Conn) Poll(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
	return serve(ctx, p, in, p.pollTasks)
}

// Complete stores the outcomes of tasks, each checked separately, and may include the next poll.
func (p *Conn) Complete(ctx context.Context, in protocol.CompleteRequest) (protocol.CompleteBatchResponse, error) {
	return serve(ctx, p, in, p.completeTasks)
}

// HeartbeatTask renews the lease of one attempt.
func (p *Conn) HeartbeatTask(ctx context.Context, in protocol.HeartbeatRequest) (protocol.HeartbeatResponse, error) {
	return serve(ctx, p, in, func(
		ctx context.Context, in protocol.HeartbeatRequest,
	) (a protocol.HeartbeatResponse, err error) {
		if err := p.checkOwner(in.Owner); err != nil {
			return a, err
		}
		in.Namespace = p.Namespace
		return p.registry.verbs.HeartbeatTask(ctx, in)
	})
}

// RecordLogs stores log lines of running attempts. It checks the leases of the attempts without renewing them: a log
// line is no heartbeat.
func (p *Conn) RecordLogs(ctx context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error) {
	return serve(ctx, p, in, p.recordOwnLogs)
}

func (p *Conn) recordOwnLogs(ctx context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error) {
	out := protocol.LogsResponse{Items: make([]protocol.LogReceipt, len(in.Items))}
	req := protocol.LogsRequest{Items: make([]protocol.AttemptLogs, 0, len(in.Items))}
	places := make([]int, 0, len(in.Items)) // index in the request of each valid item
	for i, l := range in.Items {
		if err := p.checkOwner(l.Owner); err != nil {
			out.Items[i] = protocol.LogReceipt{
				TaskID: l.TaskID, AttemptID: l.AttemptID, Reason: protocol.ReasonOf(err), Message: err.Error(), Err: err,
			}
			continue
		}
		l.Namespace = p.Namespace
		req.Items, places = append(req.Items, l), append(places, i)
	}
	if len(req.Items) == 0 {
		return out, nil
	}
	a, err := p.registry.verbs.RecordLogs(ctx, req)
	for i, r := range a.Items {
		out.Items[places[i]] = r
	}
	return out, err
}

// HistoryPage returns a page of the history of a task that the worker holds.
func (p *Conn) HistoryPage(ctx context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	return serve(ctx, p, in, func(ctx context.Context, in protocol.HistoryRequest) (page protocol.HistoryPage, err error) {
		if err := p.checkOwner(in.Owner); err != nil {
			return page, err
		}
		in.Namespace = p.Namespace
		return p.registry.verbs.HistoryPage(ctx, in)
	})
}

// CreateSession acquires a session for the worker.
func (p *Conn) CreateSession(ctx context.Context, in protocol.SessionCreate) (protocol.SessionResponse, error) {
	return serve(ctx, p, in, func(ctx context.Context, in protocol.SessionCreate) (protocol.SessionResponse, error) {
		if err := p.ensureRegistered(ctx, nil); err != nil {
			return protocol.SessionResponse{}, err
		}
		in.WorkerID, in.Namespace, in.Incarnation = p.WorkerID, p.Namespace, p.process()
		return p.registry.verbs.CreateSession(ctx, in)
	})
}

// HeartbeatSession renews a session that the worker holds.
func (p *Conn) HeartbeatSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return serve(ctx, p, p.named(in), p.registry.verbs.HeartbeatSession)
}

// ReleaseSession releases a session of the worker.
func (p *Conn) ReleaseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return serve(ctx, p, p.named(in), p.registry.verbs.ReleaseSession)
}

// CloseSession ends a session permanently.
func (p *Conn) CloseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return serve(ctx, p, p.named(in), p.registry.verbs.CloseSession)
}

func (p *Conn) named(in protocol.SessionVerb) protocol.SessionVerb {
	in.WorkerID, in.Namespace = p.WorkerID, p.Namespace
	return in
}
