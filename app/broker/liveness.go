package broker

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// registry is this app's memory of the workers it hears. Rows in it are snapshots: never changed, only replaced.
type registry struct {
	mu    sync.Mutex // guards known
	known map[engine.WorkerKey]*heard
}

// heard is one worker, and what is known of it beside its row.
type heard struct {
	worker   *engine.Worker
	at       time.Time // last sign of life at this app; zero: only read from the store
	storedAt time.Time // when this app last stored one; zero: never, so the next heartbeat is stored
	machine  json.RawMessage
	slots    json.RawMessage
	process  json.RawMessage
	gate     string // why the release gate holds it
	draining bool
	adopted  time.Time // when this app read a registration that another app took, or itself before it restarted; zero: it took it
	lookAt   time.Time // when to look whether another app hears it still; zero: this app hears it, or never did
	beats    bool      // it sends heartbeats, so that its silence means something also when it names no process
	left     bool      // by an app that is gone: what it holds is taken away if no other app hears it by lookAt
}

func (r *registry) put(w *engine.Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil {
		r.known = map[engine.WorkerKey]*heard{}
	}
	h := r.known[w.Key()]
	if h == nil {
		h = &heard{}
		r.known[w.Key()] = h
	}
	if h.worker != nil && h.worker.Incarnation != w.Incarnation {
		h.draining, h.beats, h.adopted = false, false, time.Time{}
	}
	h.worker, h.storedAt = w, time.Time{}
}

// learn remembers a worker that another app heard, as it is stored; what is heard here counts more.
func (r *registry) learn(w *engine.Worker) {
	known := false
	r.with(w.Key(), func(h *heard) { known = !h.at.IsZero() && h.worker.Incarnation == w.Incarnation })
	if !known {
		r.put(w)
	}
}

func (r *registry) get(k engine.WorkerKey) *engine.Worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[k]; h != nil {
		return h.worker
	}
	return nil
}

func (r *registry) drop(k engine.WorkerKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, k)
}

// swap forgets the process that is known of a worker, and remembers another, or none. What is known of it may be a later process already, and stays then.
func (r *registry) swap(k engine.WorkerKey, known, other *engine.Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[k]; h == nil || h.worker.Incarnation != known.Incarnation {
		return
	}
	delete(r.known, k)
	if other != nil {
		r.known[k] = &heard{worker: other}
	}
}

// with runs fn on what is known of a worker, if anything is.
func (r *registry) with(k engine.WorkerKey, fn func(*heard)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[k]; h != nil {
		fn(h)
	}
}

// drains says whether a worker's last heartbeat said that it drains.
func (r *registry) drains(k engine.WorkerKey) (said bool) {
	r.with(k, func(h *heard) { said = h.draining })
	return said
}

// all lists what is known of the workers of a namespace; "" means all.
func (r *registry) all(namespace string) map[engine.WorkerKey]heard {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := make(map[engine.WorkerKey]heard, len(r.known))
	for k, h := range r.known {
		if namespace == "" || k.Namespace == namespace {
			m[k] = *h
		}
	}
	return m
}

// hear notes a sign of life; polls count as well as heartbeats.
func (b *Broker) hear(k engine.WorkerKey) {
	b.workers.with(k, func(h *heard) {
		if h.at.IsZero() {
			h.adopted = time.Now()
		}
		h.at, h.lookAt, h.left = time.Now(), time.Time{}, false
	})
}

// hears says whether a worker was heard here within the window.
func (b *Broker) hears(h heard) bool { return !h.at.IsZero() && time.Since(h.at) <= b.opt.Alive }

// alive says whether a worker can be believed to live at now: heard here within the window, or by its stored time.
func (b *Broker) alive(h heard, now time.Time) bool {
	if b.hears(h) {
		return true
	}
	return b.opt.Shared && h.at.IsZero() && h.worker.AliveUntil.After(now)
}

// WorkerHeartbeat takes a worker's sign of life, renews every attempt and session it names, and says what the worker should do. One statement a
// table stores all of it, whatever the number.
func (b *Broker) WorkerHeartbeat(ctx context.Context, in protocol.WorkerHeartbeat) (protocol.WorkerHeartbeatAnswer, error) {
	if in.WorkerID == "" {
		return protocol.WorkerHeartbeatAnswer{}, protocol.Invalid("worker_id", "is missing")
	}
	key := engine.WorkerKey{Namespace: namespace(in.Namespace), ID: in.WorkerID}
	w, err := b.current(ctx, key, in.Incarnation)
	if err != nil {
		return protocol.WorkerHeartbeatAnswer{}, err
	}
	store, drains := false, false
	b.workers.with(key, func(h *heard) {
		drains = in.Draining && !h.draining
		store = b.opt.Shared && h.draining != in.Draining // for the other apps to know as well
		if h.at.IsZero() {
			h.adopted = time.Now()
		}
		h.at, h.lookAt, h.left, h.draining, h.beats = time.Now(), time.Time{}, false, in.Draining, true
		if len(in.Machine) > 0 {
			h.machine = in.Machine
		}
		if len(in.Slots) > 0 {
			h.slots = in.Slots
		}
		if len(in.Process) > 0 {
			h.process = in.Process
		}
		if b.opt.Shared && time.Since(h.storedAt) >= b.opt.StoreAlive {
			h.storedAt, store = time.Now(), true
		}
	})
	if drains { // the polls it still holds are answered, so that it need not wait for their end
		b.dispatch.Drop(key, "", dispatch.ErrDraining)
	}
	if store {
		if err := b.storeAlive(ctx, w, in.Draining); err != nil {
			return protocol.WorkerHeartbeatAnswer{}, err
		}
	}
	a := protocol.WorkerHeartbeatAnswer{
		WorkerID: w.ID, Acknowledged: true, HeartbeatInterval: int64(b.opt.Heartbeat.Seconds()), StaleAfter: int64(b.opt.Alive.Seconds()),
		Drain: b.isDraining(), AppRelease: b.opt.Release,
		Leases: make([]protocol.HeartbeatAnswer, len(in.Leases)), Sessions: make([]protocol.SessionState, len(in.Sessions)),
	}
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

// storeAlive stores a sign of life. A process that another one superseded, at whatever app, is refused.
func (b *Broker) storeAlive(ctx context.Context, w *engine.Worker, draining bool) error {
	key := w.Key()
	_, err := b.store.Commit(ctx, store.Change{
		Needs: store.Keys{Workers: []engine.WorkerKey{key}},
		Decide: func(rows store.Rows, now time.Time) (store.Writes, error) {
			old := rows.Worker(key)
			switch {
			case old == nil:
				return store.Writes{}, nil
			case w.Explicit && old.Incarnation != w.Incarnation:
				return store.Writes{}, stale(key.ID)
			}
			next := *old
			next.AliveUntil, next.HeartbeatAt = history.At(now.Add(b.opt.Alive+b.opt.StoreAlive)), history.At(now)
			next.Status = protocol.WorkerActive
			if draining {
				next.Status = protocol.WorkerDraining
			}
			return store.Writes{Workers: []engine.Worker{next}}, nil
		},
	})
	if protocol.ReasonOf(err) == protocol.ReasonStaleRegistration {
		b.superseded(ctx, key)
	}
	return err
}

// current is the registration of a worker, refused when the caller is an older process of that name.
func (b *Broker) current(ctx context.Context, key engine.WorkerKey, incarnation string) (*engine.Worker, error) {
	w, err := b.worker(ctx, key)
	if err != nil {
		return nil, err
	}
	if incarnation == "" || incarnation == w.Incarnation {
		return w, nil
	}
	// Another app may have taken the newer registration: look before refusing. When it did not, what is known of the living process stays.
	stored, err := b.stored(ctx, key)
	if err != nil {
		if protocol.ReasonOf(err) == protocol.ReasonWorkerNotRegistered {
			b.workers.swap(key, w, nil)
		}
		return nil, err
	}
	if stored.Incarnation != w.Incarnation {
		b.workers.swap(key, w, stored)
	}
	if incarnation != stored.Incarnation {
		return nil, stale(key.ID)
	}
	return stored, nil
}

// Watch looks after the holders of sessions and of workflow tasks until ctx ends: when a worker this app used to hear falls silent, or one that a dead
// app heard, what it held is set free and its sessions are orphaned. It costs no statement while everybody is heard. It logs how sessions move, and
// keeps this app known to the others.
func (b *Broker) Watch(ctx context.Context) error {
	tick := time.NewTicker(max(b.opt.Alive/12, 100*time.Millisecond))
	defer tick.Stop()
	var watching sync.WaitGroup
	watching.Go(func() { b.watchSessions(ctx) })
	watching.Go(func() { b.watchSuperseded(ctx) })
	defer watching.Wait()
	behind := orphans{due: b.started.Add(b.opt.Alive)} // by then all that live have come to this app, or their time is stored
	announce := func() {
		apps, err := b.announce(ctx)
		if err == nil {
			behind.met(apps)
		} else if ctx.Err() == nil {
			b.log.Warn().Err(err).Msg("tell the other apps of this one")
		}
	}
	announce()
	for announced := time.Now(); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			if b.opt.Shared && time.Since(announced) >= b.opt.StoreAlive {
				announced = time.Now()
				announce()
			}
			if !behind.due.IsZero() && !time.Now().Before(behind.due) {
				if err := b.takeUp(ctx); err == nil {
					behind.due = time.Time{}
				} else if ctx.Err() == nil {
					b.log.Warn().Err(err).Msg("look for workers that an app left behind")
				}
			}
			for k, h := range b.workers.all("") {
				if err := b.look(ctx, k, h); err != nil && ctx.Err() == nil {
					b.log.Error().Err(err).Str("worker_id", k.ID).Msg("look after a silent worker")
				}
			}
		}
	}
}

// Status is what listings call a worker.
func (b *Broker) status(h heard, now time.Time) protocol.WorkerStatus {
	switch {
	case !b.alive(h, now):
		return protocol.WorkerStale
	case h.gate != "":
		return protocol.WorkerMismatched
	case h.draining:
		return protocol.WorkerDraining
	}
	return h.worker.Status
}
