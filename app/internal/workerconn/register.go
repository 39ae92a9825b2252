package workerconn

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// process returns the incarnation that the worker registered as.
func (p *Conn) process() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.incarnation
}

func (p *Conn) isRegistered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.registered
}

// registerWorker registers the worker; the connection determines its identity.
func (p *Conn) registerWorker(ctx context.Context, in protocol.RegisterRequest) (protocol.RegisterResponse, error) {
	in.WorkerID, in.Namespace, in.Gated = p.WorkerID, p.Namespace, true
	if in.Incarnation == "" {
		in.Incarnation = protocol.SocketProcess
	}
	if in.Release == "" {
		p.mu.Lock()
		in.Release = p.release
		p.mu.Unlock()
	}
	queues := in.TaskQueues
	if len(queues) == 0 {
		if in.TaskQueue == "" {
			in.TaskQueue = "default"
		}
		queues = []string{in.TaskQueue}
	}
	if err := p.registry.allow(p, queues); err != nil {
		return protocol.RegisterResponse{}, err
	}
	a, err := p.registry.verbs.Register(ctx, in)
	if err != nil {
		return a, err
	}
	p.mu.Lock()
	p.registered, p.incarnation = true, a.Incarnation
	p.release = in.Release // the worker is listed with this release, so its polls are checked against it
	p.mu.Unlock()
	p.storeMachine(ctx)
	return a, nil
}

// ensureRegistered registers a worker that did not register itself: for all activity types of its queues, without
// workflow types.
func (p *Conn) ensureRegistered(ctx context.Context, queues []string) error {
	if p.isRegistered() {
		return nil
	}
	p.registering.Lock()
	defer p.registering.Unlock()
	if p.isRegistered() {
		return nil
	}
	p.mu.Lock()
	slots := p.concurrency
	p.mu.Unlock()
	none := 0
	in := protocol.RegisterRequest{TaskQueues: queues, AnyActivity: true, Runtime: "socket", WorkflowSlots: &none}
	if slots > 0 {
		in.ActivitySlots = &slots
	}
	_, err := p.registerWorker(ctx, in)
	return err
}

func (p *Conn) deregisterWorker(
	ctx context.Context, in protocol.DeregisterRequest,
) (protocol.DeregisterResponse, error) {
	in.WorkerID, in.Namespace, in.Incarnation = p.WorkerID, p.Namespace, p.process()
	a, err := p.registry.verbs.Deregister(ctx, in)
	if err == nil {
		p.mu.Lock()
		p.registered = false
		p.mu.Unlock()
	}
	return a, err
}

// heartbeat sends the worker's heartbeat to the broker. If the heartbeat reports a drain, the worker's polls end, so
// that the worker receives neither tasks that other workers return nor tasks that it returned itself.
func (p *Conn) heartbeat(ctx context.Context, in protocol.WorkerHeartbeat) (protocol.WorkerHeartbeatResponse, error) {
	if err := p.ensureRegistered(ctx, nil); err != nil {
		return protocol.WorkerHeartbeatResponse{}, err
	}
	if in.Draining {
		p.stopPolls()
	}
	in.WorkerID, in.Namespace, in.Incarnation, in.Patient = p.WorkerID, p.Namespace, p.process(), true
	return p.registry.verbs.WorkerHeartbeat(ctx, in)
}
