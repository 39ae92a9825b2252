package workerconn

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Register announces the worker.
func (p *Peer) Register(ctx context.Context, in protocol.RegisterRequest) (protocol.RegisterResponse, error) {
	return serve(ctx, p, in, p.announce)
}

// Deregister deletes the registration of the worker.
func (p *Peer) Deregister(ctx context.Context, in protocol.DeregisterRequest) (protocol.DeregisterResponse, error) {
	return serve(ctx, p, in, p.sayGoodbye)
}

// WorkerHeartbeat is its heartbeat, which renews all it names.
func (p *Peer) WorkerHeartbeat(
	ctx context.Context, in protocol.WorkerHeartbeat,
) (protocol.WorkerHeartbeatResponse, error) {
	return serve(ctx, p, in, p.beat)
}

// Poll returns tasks for the worker. The caller calls Undo if it could not deliver them.
func (p *Peer) Poll(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error) {
	return serve(ctx, p, in, p.waitForTasks)
}

// Complete stores the outcomes of tasks, each checked separately, and may include the next poll.
func (p *Peer) Complete(ctx context.Context, in protocol.CompleteRequest) (protocol.CompleteBatchResponse, error) {
	return serve(ctx, p, in, p.endTasks)
}

// HeartbeatTask renews the lease of one attempt.
func (p *Peer) HeartbeatTask(ctx context.Context, in protocol.HeartbeatRequest) (protocol.HeartbeatResponse, error) {
	return serve(ctx, p, in, func(
		ctx context.Context, in protocol.HeartbeatRequest,
	) (a protocol.HeartbeatResponse, err error) {
		if err := p.holds(in.Owner); err != nil {
			return a, err
		}
		in.Namespace = p.Namespace
		return p.room.verbs.HeartbeatTask(ctx, in)
	})
}

// RecordLogs stores log lines of running attempts. It checks the leases of the attempts without renewing them: a log
// line is no heartbeat.
func (p *Peer) RecordLogs(ctx context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error) {
	return serve(ctx, p, in, p.takeLines)
}

func (p *Peer) takeLines(ctx context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error) {
	out := protocol.LogsResponse{Items: make([]protocol.LogReceipt, len(in.Items))}
	req := protocol.LogsRequest{Items: make([]protocol.AttemptLogs, 0, len(in.Items))}
	places := make([]int, 0, len(in.Items)) // index in the request of each valid item
	for i, l := range in.Items {
		if err := p.holds(l.Owner); err != nil {
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
	a, err := p.room.verbs.RecordLogs(ctx, req)
	for i, r := range a.Items {
		out.Items[places[i]] = r
	}
	return out, err
}

// HistoryPage is a page of the history behind a task that the worker has.
func (p *Peer) HistoryPage(ctx context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error) {
	return serve(ctx, p, in, func(ctx context.Context, in protocol.HistoryRequest) (page protocol.HistoryPage, err error) {
		if err := p.holds(in.Owner); err != nil {
			return page, err
		}
		in.Namespace = p.Namespace
		return p.room.verbs.HistoryPage(ctx, in)
	})
}

// CreateSession claims a session.
func (p *Peer) CreateSession(ctx context.Context, in protocol.SessionCreate) (protocol.SessionResponse, error) {
	return serve(ctx, p, in, func(ctx context.Context, in protocol.SessionCreate) (protocol.SessionResponse, error) {
		if err := p.ensureRegistered(ctx, nil); err != nil {
			return protocol.SessionResponse{}, err
		}
		in.WorkerID, in.Namespace, in.Incarnation = p.WorkerID, p.Namespace, p.process()
		return p.room.verbs.CreateSession(ctx, in)
	})
}

// HeartbeatSession renews a session that the worker holds.
func (p *Peer) HeartbeatSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return serve(ctx, p, p.named(in), p.room.verbs.HeartbeatSession)
}

// ReleaseSession releases a session of the worker.
func (p *Peer) ReleaseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return serve(ctx, p, p.named(in), p.room.verbs.ReleaseSession)
}

// CloseSession ends one for good.
func (p *Peer) CloseSession(ctx context.Context, in protocol.SessionVerb) (protocol.SessionResponse, error) {
	return serve(ctx, p, p.named(in), p.room.verbs.CloseSession)
}

func (p *Peer) named(in protocol.SessionVerb) protocol.SessionVerb {
	in.WorkerID, in.Namespace = p.WorkerID, p.Namespace
	return in
}
