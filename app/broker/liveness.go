package broker

import (
	"context"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/presence"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// hear notes a sign of life of a process: whatever was accepted from it is one, polls and reports as well as
// heartbeats.
func (b *Broker) hear(k engine.WorkerKey) { b.hearProcess(k, "") }

// hearProcess is hear for a process that may have been superseded: what a newer process says is no sign of life
// of an older one. "" stands for the process that is known.
func (b *Broker) hearProcess(k engine.WorkerKey, incarnation string) {
	overdue := false
	b.workers.With(k, func(h *presence.Heard) {
		if incarnation != "" && h.Worker.Incarnation != incarnation {
			return
		}
		h.Hear()
		overdue = b.opt.Shared && h.At.Sub(h.StoredAt) >= b.opt.StoreAlive
	})
	if overdue {
		b.storeSoon()
	}
}

// storeSoon has the signs of life stored that are overdue, with those of others that will be soon.
func (b *Broker) storeSoon() {
	select {
	case b.unstored <- struct{}{}:
	default:
	}
}

// credit notes that a report was accepted under a lease, or a verb under a holding, which is a sign of life of the
// process that has it.
func (b *Broker) credit(ctx context.Context, k engine.WorkerKey, incarnation string) {
	if k.ID == "" || incarnation == "" {
		return
	}
	if b.workers.Get(k) == nil {
		if _, err := b.standing(ctx, k); err != nil { // it polls at another app, or did so before this one was started
			return
		}
	}
	b.hearProcess(k, incarnation)
	b.gives(k)
}

// gives notes that a worker holds something.
func (b *Broker) gives(k engine.WorkerKey) {
	b.workers.With(k, func(h *presence.Heard) { h.Gave = time.Now() })
}

// WorkerHeartbeat takes a worker's sign of life, renews every attempt and session it names, and says what the worker
// should do. One statement a table stores all of it, whatever the number.
func (b *Broker) WorkerHeartbeat(
	ctx context.Context, in protocol.WorkerHeartbeat,
) (protocol.WorkerHeartbeatAnswer, error) {
	if in.WorkerID == "" {
		return protocol.WorkerHeartbeatAnswer{}, protocol.Invalid("worker_id", "is missing")
	}
	key := engine.WorkerKey{Namespace: change.Namespace(in.Namespace), ID: in.WorkerID}
	w, err := b.current(ctx, key, in.Incarnation)
	if err != nil {
		return protocol.WorkerHeartbeatAnswer{}, err
	}
	keep, overdue, drains := false, false, false
	b.workers.With(key, func(h *presence.Heard) {
		drains = in.Draining && !h.Draining
		keep = b.opt.Shared && h.Draining != in.Draining // for the other apps to know as well
		h.Hear()
		h.Draining = in.Draining
		if !in.Told && !h.Missed() {
			h.Beats, keep = true, true // for this app to know as well when it was started again
		}
		if len(in.Machine) > 0 {
			h.Machine = in.Machine
		}
		if len(in.Slots) > 0 {
			h.Slots = in.Slots
		}
		if len(in.Process) > 0 {
			h.Process = in.Process
		}
		if b.opt.Shared && h.Closely(b.opt.HTTPLease) {
			keep = true
		}
		overdue = b.opt.Shared && time.Since(h.StoredAt) >= b.opt.StoreAlive
	})
	if drains { // the polls it still holds are answered, so that it need not wait for their end
		b.dispatch.Drop(key, dispatch.ErrDraining)
	}
	if keep {
		if err := b.storeAlive(ctx, key); err != nil {
			return protocol.WorkerHeartbeatAnswer{}, err
		}
		if known := b.workers.Get(key); w.Explicit && known != nil && known.Incarnation != w.Incarnation {
			return protocol.WorkerHeartbeatAnswer{}, change.StaleWorker(key.ID)
		}
	} else if overdue {
		b.storeSoon()
	}
	has := len(in.Leases)+len(in.Sessions) > 0 // or, of one that names only what is due, as it was seen last
	b.workers.With(key, func(h *presence.Heard) { has = has || h.Told == protocol.IntentLeave })
	a := protocol.WorkerHeartbeatAnswer{
		WorkerID: w.ID, Acknowledged: true, HeartbeatInterval: int64(b.opt.Heartbeat.Seconds()),
		StaleAfter: int64(b.opt.Alive.Seconds()),
		Drain:      b.isDraining(), AppRelease: b.opt.Release, Intent: b.intent(w, b.about(), has),
		Leases: make([]protocol.HeartbeatAnswer, len(in.Leases)), Sessions: make([]protocol.SessionState, len(in.Sessions)),
	}
	_, a.Settings = b.FleetWide(key.Namespace)
	var wait sync.WaitGroup
	for i, l := range in.Leases {
		l.Owner = w.ID
		wait.Go(func() { a.Leases[i] = b.renewLease(ctx, l) })
	}
	for i, s := range in.Sessions {
		wait.Go(func() { a.Sessions[i] = b.renewSession(ctx, key, s) })
	}
	wait.Wait()
	if renewed := kept(a.Sessions); renewed > 0 {
		b.opt.Metrics.renewed(renewed)
		b.log.Debug().Str("worker_id", w.ID).Int("sessions", renewed).Int("asked", len(in.Sessions)).Msg("sessions renewed")
	}
	a.StoreTime = b.storeTime()
	return a, nil
}

// kept counts the sessions whose lease was renewed.
func kept(states []protocol.SessionState) (n int) {
	for _, s := range states {
		if s.Held && !s.LeaseExpiresAt.IsZero() {
			n++
		}
	}
	return n
}

// current is the registration of a worker, refused when the caller is an older process of that name, or may not speak
// for it.
func (b *Broker) current(ctx context.Context, key engine.WorkerKey, incarnation string) (*engine.Worker, error) {
	w, err := b.standing(ctx, key)
	if err != nil {
		return nil, err
	}
	if (incarnation == "" || incarnation == w.Incarnation) && auth.BoundFrom(ctx).SpeaksFor(w) {
		return w, nil
	}
	// Another app may have taken the newer registration: look before refusing. When it did not, what is known of the
	// living process stays.
	stored, err := b.stored(ctx, key)
	if err != nil {
		if protocol.ReasonOf(err) == protocol.ReasonWorkerNotRegistered {
			b.workers.Swap(key, w, nil)
		}
		return nil, err
	}
	switch {
	case !stored.Left.IsZero():
		b.workers.Swap(key, w, nil)
	case stored.Incarnation != w.Incarnation:
		b.workers.Swap(key, w, stored)
	}
	if !auth.BoundFrom(ctx).SpeaksFor(stored) {
		return nil, change.NoWorker(key.ID)
	}
	if !stored.Left.IsZero() {
		return nil, left(stored)
	}
	if incarnation != "" && incarnation != stored.Incarnation {
		return nil, change.StaleWorker(key.ID)
	}
	return stored, nil
}
