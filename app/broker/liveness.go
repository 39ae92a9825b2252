package broker

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// registry is this app's memory of the workers it hears. Rows in it are snapshots: never changed, only replaced.
type registry struct {
	mu    sync.Mutex // guards all below
	drops uint64     // rises when a registration ends or is forgotten: a row that was read before may be out of date
	known map[engine.WorkerKey]*heard
	asked map[engine.QueueKey]time.Time // when the workers of a queue were last looked for
}

// heard is one worker, and what is known of it beside its row.
type heard struct {
	worker   *engine.Worker
	signals  map[string][]string // that the worker declared, by workflow type
	at       time.Time           // last sign of life at this app; zero: only read from the store
	storedAt time.Time           // when this app last stored one; zero: never, so the next one is stored
	stored   time.Time           // the sign of life that it stored then
	machine  json.RawMessage
	slots    json.RawMessage
	process  json.RawMessage
	gate     string // why the release gate holds it
	draining bool
	unsure   time.Time // when nobody knew last whether a poll of it was given something
	// when this app read a registration that another app took, or itself before it restarted; zero: it took it
	adopted time.Time
	lookAt  time.Time // when to look whether another app hears it still; zero: this app hears it, or never did
	beats   bool      // it sends heartbeats, as its row says as well once that is stored
	hushed  bool      // it missed so many heartbeats that its polls were ended
	left    bool      // by an app that is gone: what it holds is taken away if no other app hears it by lookAt
	// when this app gave it something last that it may hold for minutes, or heard it of that
	gave     time.Time
	promised bool // what is stored says that its heartbeats are stored

	// what an operator wants of it, as this app told it, and since when; of a drained one, when it was looked what it had
	// left, and whether that was nothing
	told           protocol.Intent
	toldAt, looked time.Time
	emptied        bool
}

// closely says whether every heartbeat of a worker is stored before it is answered: should it die together with this
// app, the others know when it was heard last. It is for those that hold something whose leases are too long to wait
// for; who rests is stored twice a minute.
func (h *heard) closely(holds time.Duration) bool {
	return !h.worker.Explicit && h.missed() && !h.gave.IsZero() && time.Since(h.gave) < holds
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
		h.draining, h.beats, h.adopted, h.gave = false, false, time.Time{}, time.Time{}
		h.told, h.looked, h.emptied = protocol.IntentWork, time.Time{}, false
	}
	h.worker, h.signals, h.storedAt, h.stored, h.promised = w, w.Declares("signals"), time.Time{}, time.Time{}, false
}

// hear notes a sign of life; the registry's mutex is held.
func (h *heard) hear() {
	now := time.Now()
	if h.at.IsZero() {
		h.adopted = now
	}
	h.at, h.lookAt, h.left, h.hushed = now, time.Time{}, false, false
}

// missed says whether the worker's silence means anything: it renews what it holds by itself, or sends heartbeats. Who
// only polls may be silent for as long as it works, and keeps its leases.
func (h *heard) missed() bool { return h.beats || h.worker.Beats }

// putRead is put for a row that was read after mark: not if a registration has ended since then, which may have been
// this one.
func (r *registry) putRead(w *engine.Worker, mark uint64) {
	if r.mark() == mark {
		r.put(w)
	}
}

// mark is to be taken before a row is read that is to be remembered.
func (r *registry) mark() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drops
}

// learn remembers a worker that another app heard, as it was read after mark; what is heard here counts more.
func (r *registry) learn(w *engine.Worker, mark uint64) {
	known := false
	r.with(w.Key(), func(h *heard) { known = !h.at.IsZero() && h.worker.Incarnation == w.Incarnation })
	if !known && w.Left.IsZero() {
		r.putRead(w, mark)
	}
}

// gone forgets a process whose registration is over.
func (r *registry) gone(p store.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drops++
	if h := r.known[p.Worker]; h != nil && h.worker.Incarnation == p.Incarnation {
		delete(r.known, p.Worker)
	}
}

// is says whether a process is the registered one, as far as is known here.
func (r *registry) is(k engine.WorkerKey, incarnation string) bool {
	w := r.get(k)
	return w != nil && w.Incarnation == incarnation
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
	r.drops++
	delete(r.known, k)
}

// swap forgets the process that is known of a worker, and remembers another, or none. What is known of it may be a
// later process already, and stays then.
func (r *registry) swap(k engine.WorkerKey, known, other *engine.Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[k]; h == nil || h.worker.Incarnation != known.Incarnation {
		return
	}
	r.drops++
	delete(r.known, k)
	if other != nil {
		r.known[k] = &heard{worker: other, signals: other.Declares("signals")}
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

// hear notes a sign of life of a process: whatever was accepted from it is one, polls and reports as well as
// heartbeats.
func (b *Broker) hear(k engine.WorkerKey) { b.hearProcess(k, "") }

// hearProcess is hear for a process that may have been superseded: one is not heard by what another says. "" is the one
// that is known.
func (b *Broker) hearProcess(k engine.WorkerKey, incarnation string) {
	overdue := false
	b.workers.with(k, func(h *heard) {
		if incarnation != "" && h.worker.Incarnation != incarnation {
			return
		}
		h.hear()
		overdue = b.opt.Shared && h.at.Sub(h.storedAt) >= b.opt.StoreAlive
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
	if b.workers.get(k) == nil {
		if _, err := b.standing(ctx, k); err != nil { // it polls at another app, or did so before this one was started
			return
		}
	}
	b.hearProcess(k, incarnation)
	b.gives(k)
}

// gives notes that a worker holds something.
func (b *Broker) gives(k engine.WorkerKey) { b.workers.with(k, func(h *heard) { h.gave = time.Now() }) }

// hears says whether a worker was heard here within the window.
func (b *Broker) hears(h heard) bool { return !h.at.IsZero() && time.Since(h.at) <= b.opt.Alive }

// alive says whether a worker can be believed to live at now: heard here within the window, or by its stored time.
func (b *Broker) alive(h heard, now time.Time) bool {
	if b.hears(h) {
		return true
	}
	return b.opt.Shared && h.at.IsZero() && h.worker.AliveUntil.After(now)
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
	b.workers.with(key, func(h *heard) {
		drains = in.Draining && !h.draining
		keep = b.opt.Shared && h.draining != in.Draining // for the other apps to know as well
		h.hear()
		h.draining = in.Draining
		if !in.Told && !h.missed() {
			h.beats, keep = true, true // for this app to know as well when it was started again
		}
		if len(in.Machine) > 0 {
			h.machine = in.Machine
		}
		if len(in.Slots) > 0 {
			h.slots = in.Slots
		}
		if len(in.Process) > 0 {
			h.process = in.Process
		}
		if b.opt.Shared && h.closely(b.opt.HTTPLease) {
			keep = true
		}
		overdue = b.opt.Shared && time.Since(h.storedAt) >= b.opt.StoreAlive
	})
	if drains { // the polls it still holds are answered, so that it need not wait for their end
		b.dispatch.Drop(key, dispatch.ErrDraining)
	}
	if keep {
		if err := b.storeAlive(ctx, key); err != nil {
			return protocol.WorkerHeartbeatAnswer{}, err
		}
		if known := b.workers.get(key); w.Explicit && known != nil && known.Incarnation != w.Incarnation {
			return protocol.WorkerHeartbeatAnswer{}, stale(key.ID)
		}
	} else if overdue {
		b.storeSoon()
	}
	has := len(in.Leases)+len(in.Sessions) > 0 // or, of one that names only what is due, as it was seen last
	b.workers.with(key, func(h *heard) { has = has || h.told == protocol.IntentLeave })
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
	if (incarnation == "" || incarnation == w.Incarnation) && covers(bound(ctx), w) {
		return w, nil
	}
	// Another app may have taken the newer registration: look before refusing. When it did not, what is known of the
	// living process stays.
	stored, err := b.stored(ctx, key)
	if err != nil {
		if protocol.ReasonOf(err) == protocol.ReasonWorkerNotRegistered {
			b.workers.swap(key, w, nil)
		}
		return nil, err
	}
	switch {
	case !stored.Left.IsZero():
		b.workers.swap(key, w, nil)
	case stored.Incarnation != w.Incarnation:
		b.workers.swap(key, w, stored)
	}
	if !covers(bound(ctx), stored) {
		return nil, noWorker(key.ID)
	}
	if !stored.Left.IsZero() {
		return nil, left(stored)
	}
	if incarnation != "" && incarnation != stored.Incarnation {
		return nil, stale(key.ID)
	}
	return stored, nil
}

// Status is what listings call a worker.
func (b *Broker) status(h heard, now time.Time) protocol.WorkerStatus {
	switch {
	case !b.alive(h, now):
		return protocol.WorkerStale
	case h.gate != "":
		return protocol.WorkerMismatched
	case h.draining, b.drainOf(h.worker) != nil:
		return protocol.WorkerDraining
	}
	return h.worker.Status
}
