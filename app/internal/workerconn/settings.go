package workerconn

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"

	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These are default settings of workers, in seconds.
const (
	pollSeconds   = 50
	lockSeconds   = 120
	extendSeconds = 30
	beatSeconds   = 10
	drainSeconds  = 25
)

// WorkerSettings returns the current settings of a namespace's workers, for every transport.
func (s *Registry) WorkerSettings(namespace string) protocol.WorkerSettings {
	var w protocol.WorkerSettings
	if s.opt.Settings != nil {
		w = s.opt.Settings()
	}
	w.Release = s.opt.Release
	if s.opt.Fleet != nil {
		var set protocol.FleetSettings
		set, w.Revision = s.opt.Fleet(namespace)
		w.Concurrency, w.IsolationMin, w.Fresh = set.Concurrency, set.IsolationMin, set.Fresh
		w.LogLevel = cmp.Or(set.LogLevel, w.LogLevel)
	}
	if w.ExecutionMode == "" {
		w.ExecutionMode = "process"
	}
	for _, d := range []struct {
		field *int64
		value int64
	}{
		{&w.PollSeconds, pollSeconds},
		{&w.LockSeconds, lockSeconds},
		{&w.ExtendSeconds, extendSeconds},
		{&w.BeatSeconds, beatSeconds},
		{&w.DrainSeconds, drainSeconds},
	} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if w.MaxPayload <= 0 {
		w.MaxPayload = payload.MaxBytes
	}
	return w
}

// Settings returns the settings of the worker. It stores the worker's machine information as the JSON text.
func (p *Conn) Settings(ctx context.Context, m protocol.MachineInformation) (protocol.WorkerSettings, error) {
	return serve(ctx, p, m, func(
		ctx context.Context, m protocol.MachineInformation,
	) (w protocol.WorkerSettings, err error) {
		raw, err := json.Marshal(m)
		if err != nil {
			return w, err
		}
		p.RecordMachine(ctx, m, raw)
		return p.registry.WorkerSettings(p.Namespace), nil
	})
}

// RecordMachine records the machine information of the worker, in raw as it was received. It is sent to the broker once
// the worker is registered.
func (p *Conn) RecordMachine(ctx context.Context, m protocol.MachineInformation, raw json.RawMessage) {
	p.mu.Lock()
	p.machine = raw
	if m.Props != nil {
		p.release = m.Props.Version
		p.concurrency, _ = strconv.Atoi(string(m.Props.Concurrency))
	}
	known := p.registered
	p.mu.Unlock()
	if known {
		p.storeMachine(ctx)
	}
}

// storeMachine sends the machine information that arrived before the registration. It is a separate heartbeat, since it
// may fail.
func (p *Conn) storeMachine(ctx context.Context) {
	p.mu.Lock()
	raw, incarnation := p.machine, p.incarnation
	p.machine = nil
	p.mu.Unlock()
	if len(raw) == 0 {
		return
	}
	_, err := p.registry.verbs.WorkerHeartbeat(ctx, protocol.WorkerHeartbeat{
		WorkerID: p.WorkerID, Namespace: p.Namespace, Incarnation: incarnation, Machine: raw, FromSettings: true,
	})
	if err != nil {
		p.registry.log.Warn().Str("worker_id", p.WorkerID).Err(err).Msg("failed to store machine information of a worker")
	}
}
