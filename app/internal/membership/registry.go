// Package membership tracks which workers are alive: heartbeats received by this app, heartbeats stored by other apps,
// and the expiry of dead workers' leases. The Registry is in memory. Workers implements the verbs that store
// registrations and heartbeats and requeue the tasks of dead workers.
package membership

import (
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Registry caches the workers whose heartbeats an app receives. Its rows are immutable snapshots that are only
// replaced.
type Registry struct {
	opt Options

	mu       sync.Mutex // guards the fields below
	drops    uint64     // rises when a registration ends or is forgotten: a row that was read before may be out of date
	known    map[engine.WorkerKey]*TrackedWorker
	asked    map[engine.QueueKey]time.Time // when the workers of a queue were last read
	releases []string                      // releases that live apps serve, as far as this app knows
}

// Options are the timeouts by which an app judges its workers, and its notices to them.
type Options struct {
	App   string        // id of this process
	Alive time.Duration // a worker is dead this long after its last heartbeat
	// how often the last heartbeat of an active worker is stored when the database is shared
	StoreAlive    time.Duration
	Quiet         time.Duration // silence after which the exact time of a worker's last heartbeat is stored
	Heartbeat     time.Duration // interval at which workers should send heartbeats
	AttemptLease  time.Duration // lease of workers that renew it themselves
	HTTPLease     time.Duration // lease of HTTP workers
	PollKept      time.Duration // how long a poll may be repeated after it was answered
	Shared        bool          // other apps receive heartbeats too, so stored heartbeats count
	Release       string        // release of this app
	StrictRelease bool
	MaxBlamed     int                          // setting max-blamed-losses; 0: engine.DefaultBlamedLosses
	Lost          func(transaction.LossResult) // called after each loss of a process, for metrics; may be nil
	// AppEnded is called when an app of the database died: its liveness expired at the time until, and it had not
	// withdrawn its registration. It is also called for this app, if the other apps considered it dead while it was
	// paused. It must not block.
	AppEnded func(until time.Time)
	AppLeft  func() // is called when another app announced its shutdown; must not block; may be nil
	Log      zerolog.Logger
	// Settings returns the decisions about a queue or, with an empty name, about a whole namespace, as this app knows
	// them. Open sets it.
	Settings func(engine.QueueKey) *engine.Queue
}

// New returns an empty registry.
func New(o Options) *Registry { return &Registry{opt: o, known: map[engine.WorkerKey]*TrackedWorker{}} }

// ReceivesHeartbeats reports whether this app received a heartbeat of the worker within Options.Alive.
func (r *Registry) ReceivesHeartbeats(h TrackedWorker) bool {
	return !h.At.IsZero() && time.Since(h.At) <= r.opt.Alive
}

// Alive reports whether a worker is alive at now: this app received a heartbeat within Options.Alive, or another app
// received one and the row has not expired.
func (r *Registry) Alive(h TrackedWorker, now time.Time) bool {
	if r.ReceivesHeartbeats(h) {
		return true
	}
	return r.opt.Shared && (h.At.IsZero() && h.Worker.AliveUntil.After(now) || h.Elsewhere.After(now))
}

// Put caches a registration.
func (r *Registry) Put(w *engine.Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.known[w.Key()]
	if h == nil {
		h = &TrackedWorker{}
		r.known[w.Key()] = h
	}
	if h.Worker == nil || h.Worker.Incarnation != w.Incarnation || h.At.IsZero() {
		h.Draining, h.DrainUnstored = w.Status == protocol.WorkerDraining, false
	}
	if h.Worker != nil && h.Worker.Incarnation != w.Incarnation {
		h.Beats, h.Adopted, h.LastLeaseAt, h.IdleAt = false, time.Time{}, time.Time{}, nil
		h.SentIntent, h.LeasesCheckedAt, h.HadNoLeases = protocol.IntentWork, time.Time{}, false
	}
	h.Worker, h.signals, h.StoredAt, h.Stored = w, w.Declares("signals"), time.Time{}, time.Time{}
	h.StoresEach, h.ExactExpiry = false, false
}

// PutRead is like Put, for a row that was read after mark. It does nothing if any registration has ended since, because
// it may be this one.
func (r *Registry) PutRead(w *engine.Worker, mark uint64) {
	if r.Mark() == mark {
		r.Put(w)
	}
}

// Mark returns the mark to pass to PutRead; call it before reading the row.
func (r *Registry) Mark() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drops
}

// CacheRow caches a worker of another app from its row, which was read after mark; state from heartbeats at this app
// takes precedence.
func (r *Registry) CacheRow(w *engine.Worker, mark uint64) {
	known := false
	r.With(w.Key(), func(h *TrackedWorker) { known = !h.At.IsZero() && h.Worker.Incarnation == w.Incarnation })
	if !known && w.DeregisteredAt.IsZero() {
		r.PutRead(w, mark)
	}
}

// RemoveProcess removes a deregistered process from memory.
func (r *Registry) RemoveProcess(p store.Process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drops++
	if h := r.known[p.Worker]; h != nil && h.Worker.Incarnation == p.Incarnation {
		delete(r.known, p.Worker)
	}
}

// IsRegistered reports whether a process is the registered one, as far as this app knows.
func (r *Registry) IsRegistered(k engine.WorkerKey, incarnation string) bool {
	w := r.Get(k)
	return w != nil && w.Incarnation == incarnation
}

// AcceptsTasks reports whether a process is the registered incarnation and does not drain, as far as this app knows.
func (r *Registry) AcceptsTasks(w *engine.Worker) (takes bool) {
	r.With(w.Key(), func(h *TrackedWorker) { takes = h.Worker.Incarnation == w.Incarnation && !h.Draining })
	return takes && r.DrainOf(w) == nil
}

// Get returns the registration of a worker, or nil if this app knows none.
func (r *Registry) Get(k engine.WorkerKey) *engine.Worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[k]; h != nil {
		return h.Worker
	}
	return nil
}

// Remove removes a worker from the cache, whatever its process.
func (r *Registry) Remove(k engine.WorkerKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drops++
	delete(r.known, k)
}

// Swap replaces the cached registration of a worker by another one, or removes it. If the cache already has a later
// process, it stays.
func (r *Registry) Swap(k engine.WorkerKey, known, other *engine.Worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[k]; h == nil || h.Worker.Incarnation != known.Incarnation {
		return
	}
	r.drops++
	delete(r.known, k)
	if other != nil {
		h := TrackRow(other)
		r.known[k] = &h
	}
}

// With calls fn with the state of a worker, if there is one.
func (r *Registry) With(k engine.WorkerKey, fn func(*TrackedWorker)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h := r.known[k]; h != nil {
		fn(h)
	}
}

// Each calls fn with the state of each worker of a namespace, without copies.
func (r *Registry) Each(namespace string, fn func(engine.WorkerKey, *TrackedWorker)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, h := range r.known {
		if k.Namespace == namespace {
			fn(k, h)
		}
	}
}

// Served returns the queues that the known workers serve, once for each worker.
func (r *Registry) Served() (list []engine.QueueKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for k, h := range r.known {
		for _, name := range h.Worker.Queues {
			list = append(list, engine.QueueKey{Namespace: k.Namespace, Name: name})
		}
	}
	return list
}

// ReportedDrain returns whether a worker drained in its last heartbeat, as far as this app knows, and whether the
// worker's row contains this state.
func (r *Registry) ReportedDrain(w *engine.Worker) (drains, stored bool) {
	drains, stored = w.Status == protocol.WorkerDraining, true
	r.With(w.Key(), func(h *TrackedWorker) {
		if h.Worker.Incarnation == w.Incarnation {
			drains, stored = h.Draining, !h.DrainUnstored
		}
	})
	return drains, stored
}

// All returns the known workers of a namespace; "" selects all namespaces.
func (r *Registry) All(namespace string) map[engine.WorkerKey]TrackedWorker {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := make(map[engine.WorkerKey]TrackedWorker, len(r.known))
	for k, h := range r.known {
		if namespace == "" || k.Namespace == namespace {
			m[k] = *h
		}
	}
	return m
}
