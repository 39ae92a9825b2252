package channel

import (
	"context"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (p *Peer) currentIncarnation() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.incarnation
}

func (p *Peer) isRegistered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.registered
}

// register announces the worker; who it is the connection says.
func (c *Channel) register(ctx context.Context, p *Peer, in protocol.RegisterRequest) (protocol.RegisterAnswer, error) {
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
	if err := c.allow(p, queues); err != nil {
		return protocol.RegisterAnswer{}, err
	}
	a, err := c.verbs.Register(ctx, in)
	if err != nil {
		return a, err
	}
	p.mu.Lock()
	p.registered, p.incarnation = true, a.Incarnation
	p.mu.Unlock()
	c.tellMachine(ctx, p)
	return a, nil
}

// ensureRegistered registers a worker that never did so by itself: for activities of every type of its queues, and no
// workflow tasks.
func (c *Channel) ensureRegistered(ctx context.Context, p *Peer, queues []string) error {
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
	_, err := c.register(ctx, p, in)
	return err
}

func (c *Channel) deregister(
	ctx context.Context, p *Peer, in protocol.DeregisterRequest,
) (protocol.DeregisterAnswer, error) {
	in.WorkerID, in.Namespace, in.Incarnation = p.WorkerID, p.Namespace, p.currentIncarnation()
	a, err := c.verbs.Deregister(ctx, in)
	if err == nil {
		p.mu.Lock()
		p.registered = false
		p.mu.Unlock()
	}
	return a, err
}

// heartbeat is a worker's sign of life, which renews all it names.
func (c *Channel) heartbeat(
	ctx context.Context, p *Peer, in protocol.WorkerHeartbeat,
) (protocol.WorkerHeartbeatAnswer, error) {
	if err := c.ensureRegistered(ctx, p, nil); err != nil {
		return protocol.WorkerHeartbeatAnswer{}, err
	}
	if in.Draining {
		p.stopPolls() // a worker that drains must not be given what another has just handed back, or itself
	}
	in.WorkerID, in.Namespace, in.Incarnation = p.WorkerID, p.Namespace, p.currentIncarnation()
	return c.verbs.WorkerHeartbeat(ctx, in)
}
