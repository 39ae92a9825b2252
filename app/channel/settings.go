package channel

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// What workers are told when the app does not say otherwise, in seconds.
const (
	pollSeconds   = 50
	lockSeconds   = 120
	extendSeconds = 30
	beatSeconds   = 10
	drainSeconds  = 25
)

// WorkerSettings is what a worker of a namespace is handed now, over whatever transport.
func (c *Channel) WorkerSettings(namespace string) protocol.WorkerSettings {
	var s protocol.WorkerSettings
	if c.opt.Settings != nil {
		s = c.opt.Settings()
	}
	s.Release = c.verbs.Release()
	if c.opt.Fleet != nil {
		var set protocol.FleetSettings
		set, s.Revision = c.opt.Fleet(namespace)
		s.Concurrency, s.IsolationMin = set.Concurrency, set.IsolationMin
		s.LogLevel = cmp.Or(set.LogLevel, s.LogLevel)
	}
	if s.ExecutionMode == "" {
		s.ExecutionMode = "process"
	}
	for _, d := range []struct {
		field *int64
		value int64
	}{
		{&s.PollSeconds, pollSeconds},
		{&s.LockSeconds, lockSeconds},
		{&s.ExtendSeconds, extendSeconds},
		{&s.BeatSeconds, beatSeconds},
		{&s.DrainSeconds, drainSeconds},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if s.MaxPayload <= 0 {
		s.MaxPayload = payload.MaxBytes
	}
	return s
}

// fetchSettings is what EventFetchSettings does, for carriers without events.
func (c *Channel) fetchSettings(
	ctx context.Context, p *Peer, m protocol.MachineInformation,
) (protocol.WorkerSettings, error) {
	raw, err := json.Marshal(m)
	if err != nil {
		return protocol.WorkerSettings{}, err
	}
	c.meet(ctx, p, m, raw)
	return c.WorkerSettings(p.Namespace), nil
}

// meet notes what a worker tells of itself. The broker learns of the machine once it knows the worker.
func (c *Channel) meet(ctx context.Context, p *Peer, m protocol.MachineInformation, raw json.RawMessage) {
	p.mu.Lock()
	p.machine = raw
	if m.Props != nil {
		p.release = m.Props.Version
		p.concurrency, _ = strconv.Atoi(string(m.Props.Concurrency))
	}
	known := p.registered
	p.mu.Unlock()
	if known {
		c.tellMachine(ctx, p)
	}
}

// tellMachine hands on the machine information that was kept back. That it may fail is why a heartbeat of its own
// follows.
func (c *Channel) tellMachine(ctx context.Context, p *Peer) {
	p.mu.Lock()
	raw, incarnation := p.machine, p.incarnation
	p.machine = nil
	p.mu.Unlock()
	if len(raw) == 0 {
		return
	}
	_, err := c.verbs.WorkerHeartbeat(ctx, protocol.WorkerHeartbeat{
		WorkerID: p.WorkerID, Namespace: p.Namespace, Incarnation: incarnation, Machine: raw, Told: true,
	})
	if err != nil {
		c.log.Warn().Str("worker_id", p.WorkerID).Err(err).Msg("machine information not stored")
	}
}
