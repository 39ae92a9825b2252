// Package broker implements the app's API requests, one method each: it names the rows that a request needs, submits
// the transaction and builds the response. The rules are in package engine. A method returns only after its transaction
// is committed.
package broker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/evict"
	"github.com/sojourn-run/sojourn/app/internal/fleet"
	"github.com/sojourn-run/sojourn/app/internal/logs"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/querytask"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/internal/retry"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Several apps may serve one database, and each may die at any time. Therefore every guarantee of a method rests on
// rows that its transaction reads and writes. The memory of this process (heartbeats, results of polls, sticky workers)
// only saves reads and selects the worker to wake; all methods also work in an app without it.

// Options are the options of a broker. Zero values select the defaults named next to them.
type Options struct {
	Release       string
	StrictRelease bool
	App           string        // ID of this process
	Shared        bool          // other apps use the same database
	Alive         time.Duration // a worker without heartbeats for this long counts as dead: 60 s
	// on a shared database, how often a worker's liveness is stored while nothing changes: 60 s
	StoreAlive time.Duration
	// after this long without a heartbeat, the time of a worker's last heartbeat is stored: 15 s
	Quiet        time.Duration
	Heartbeat    time.Duration       // heartbeat interval that registrations return: 15 s
	AttemptLease time.Duration       // lease of attempts of workers that renew their leases: 120 s
	HTTPLease    time.Duration       // lease of attempts of clients of the HTTP API: 300 s
	Retention    time.Duration       // retention of ended sessions: 30 days
	LogAge       time.Duration       // retention of activity logs: 7 days
	AuditAge     time.Duration       // retention of audit entries: 365 days
	MaxBlamed    int                 // number of worker losses for which a task may be blamed: 3
	Quotas       *engine.QuotaLimits // quotas of namespaces without quotas of their own; nil: engine.DefaultQuotas
	Log          zerolog.Logger
	Metrics      *Metrics // nil: no metrics
}

// defaults fills zero options. Tests and programs that embed an app may pass the zero value; the app process sets all
// options from its settings.
func (o Options) defaults() Options {
	or := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	or(&o.Alive, 60*time.Second)
	or(&o.StoreAlive, 60*time.Second)
	or(&o.Quiet, 15*time.Second)
	or(&o.Heartbeat, 15*time.Second)
	or(&o.AttemptLease, 120*time.Second)
	or(&o.HTTPLease, 300*time.Second)
	or(&o.Retention, 30*24*time.Hour)
	or(&o.LogAge, 7*24*time.Hour)
	or(&o.AuditAge, 365*24*time.Hour)
	if o.Quotas == nil {
		o.Quotas = &engine.DefaultQuotas
	}
	return o
}

// Broker implements all API requests. All methods are safe for concurrent use.
type Broker struct {
	store    store.Store
	dispatch *dispatch.Dispatch
	opt      Options
	log      zerolog.Logger

	workers    *membership.Workers
	fleet      *fleet.Fleet
	polls      pollMemory
	questions  *querytask.Pending
	sticky     stickyRuns
	prefetch   historyPrefetch
	ended      endedRuns
	notices    atomic.Pointer[Notices]
	renewals   renewals
	namespaces namespaces
	evict      *evict.Evictor
	logs       *logs.Logs
	view       *view.View
	recounts   recounts
	batchJobs  batchJobs

	background sync.WaitGroup
	mu         sync.Mutex // guards draining and closing
	draining   bool
	drained    chan struct{} // closed when draining begins
	// largeCopies has an element for each redrive that holds a large history
	largeCopies chan struct{}
	life        context.Context
	end         context.CancelCauseFunc
}

// New returns a broker for a store that was opened with d as its dispatcher.
func New(s store.Store, d *dispatch.Dispatch, o Options) *Broker {
	b := &Broker{store: s, dispatch: d, opt: o.defaults(), log: o.Log, drained: make(chan struct{})}
	b.largeCopies = make(chan struct{}, maxLargeCopies)
	s.Quotas().Limit(*b.opt.Quotas)
	b.batchJobs = newBatchJobs()
	b.recounts = recounts{names: map[string]bool{}, wake: make(chan struct{}, 1)}
	b.logs = logs.New(s, logs.Options{Shared: o.Shared, Age: b.opt.LogAge, Attempt: b.AttemptStatus})
	// Membership is created first: query tasks, the read models and the fleet all depend on it.
	b.workers = membership.Open(s, d, membership.Options{
		App: o.App, Alive: b.opt.Alive, StoreAlive: b.opt.StoreAlive, Quiet: b.opt.Quiet, Heartbeat: b.opt.Heartbeat,
		AttemptLease: b.opt.AttemptLease, HTTPLease: b.opt.HTTPLease, PollKept: pollRetention,
		Shared: o.Shared, Release: o.Release, StrictRelease: o.StrictRelease, MaxBlamed: o.MaxBlamed,
		Lost: o.Metrics.countLostProcess, AppEnded: b.appEnded, AppLeft: b.batchJobs.signal, Log: o.Log,
	})
	b.questions = querytask.New(s, d, b.drained, o.Log)
	b.questions.Avoid = b.avoidsProcess
	b.questions.Answerable = func(ctx context.Context, q *store.Question) bool {
		ok, err := b.hasQueryWorker(ctx, q)
		return ok || err != nil
	}
	// called after the registration of the process was removed
	d.OnProcessEnded(func(store.Process) { b.questions.WorkerLeft() })
	b.view = view.New(s, view.Options{
		AppState: b, Dispatch: d, Workers: b.workers.Registry, Questions: b.questions.Count,
		App: o.App, Release: o.Release, Shared: o.Shared, Heartbeat: b.opt.Heartbeat, Alive: b.opt.Alive,
	})
	// Call Prefer before the first poll: without it, a task could be dispatched to a worker that must read the whole
	// history.
	d.Prefer(b.stickyWorkers)
	b.fleet = fleet.New(s, d, b.workers, b.view, o.Log)
	b.evict = evict.New(s, d, b.workers, b.isDraining, o.Metrics.countPlaceWait, o.Log)
	b.life, b.end = context.WithCancelCause(context.Background())
	return b
}

// appEnded is called when another app has died, not later than until.
func (b *Broker) appEnded(until time.Time) {
	b.recounts.appEnded(until)
	b.batchJobs.signal()
}

// Drain ends every poll with the status draining and stops dispatching.
func (b *Broker) Drain() {
	b.mu.Lock()
	// Set the flag first: a poll that the dispatcher ends reads the flag to report whether the app or the worker
	// drains.
	if !b.draining {
		b.draining = true
		close(b.drained)
	}
	b.mu.Unlock()
	b.dispatch.Drain()
}

// Drained returns a channel that is closed when draining begins.
func (b *Broker) Drained() <-chan struct{} { return b.drained }

func (b *Broker) isDraining() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.draining
}

// Close stops the background work of the broker and waits for its end.
func (b *Broker) Close() {
	// Deregister this app last, since background work may still write in its name.
	b.evict.Close()
	b.end(store.ErrClosed)
	b.background.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := b.workers.Withdraw(ctx); err != nil {
		b.log.Debug().Err(err).Msg("failed to deregister this app; the other apps detect its end by missing heartbeats")
	}
}

// Release returns the release of this app.
func (b *Broker) Release() string { return b.opt.Release }

// Dispatch returns the dispatcher, which holds waiting polls and publishes hints.
func (b *Broker) Dispatch() *dispatch.Dispatch { return b.dispatch }

// Membership returns the membership, which knows which workers are alive.
func (b *Broker) Membership() *membership.Workers { return b.workers }

// Fleet returns the operators' functions: drains and settings of workers.
func (b *Broker) Fleet() *fleet.Fleet { return b.fleet }

// Notices sends notices to connected workers. If a notice is lost or the worker is not connected, the next response to
// the worker repeats the information.
type Notices interface {
	fleet.Notices
	// YieldSession asks a worker to release a session, and reports whether the worker is connected.
	YieldSession(namespace, worker string, n protocol.SessionNotice) bool
	// EvictRuns notifies a worker that runs in its sticky cache have ended.
	EvictRuns(namespace, worker string, n protocol.EvictNotice)
}

// SetNotices sets the implementation that sends notices to workers.
func (b *Broker) SetNotices(n Notices) {
	b.evict.SetNotifier(n.YieldSession)
	b.fleet.SetNotices(n)
	b.notices.Store(&n)
}

// View returns the read models of this app.
func (b *Broker) View() *view.View { return b.view }

// Store returns the broker's store, for code that reads it directly.
func (b *Broker) Store() store.Store { return b.store }

// Watch monitors the workers until ctx ends, runs drains, and logs session moves.
func (b *Broker) Watch(ctx context.Context) error {
	var watching sync.WaitGroup
	watching.Go(func() { b.watchSessions(ctx) })
	watching.Go(func() { b.fleet.Watch(ctx) })
	watching.Go(func() { b.fleet.WatchPools(ctx) })
	watching.Go(func() { b.watchClosedRuns(ctx) })
	watching.Go(func() { b.recomputeSchedules(ctx) })
	watching.Go(func() { b.exchangeUsage(ctx) })
	watching.Go(func() { b.recountUsage(ctx) })
	watching.Go(func() { b.runBatchJobs(ctx) })
	defer watching.Wait()
	return b.workers.Watch(ctx)
}

// readyTimeout is the timeout of the database check in Ready. It is less than two seconds, so that the response is sent
// in time.
const readyTimeout = 1500 * time.Millisecond

// Ready reports within two seconds whether the app can write: the store responds, and its last batch was committed.
func (b *Broker) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if err := b.store.Writable(ctx); err != nil {
		return err
	}
	pinged := make(chan error, 1)
	go func() { // Ping may not return in time if the database hangs, so it runs in a goroutine
		pinged <- b.store.View(ctx, func(r store.Reader) error { return r.Ping(ctx) })
	}()
	select {
	case err := <-pinged:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// runInBackground runs work in the background, until Close. It may outlive the caller.
func (b *Broker) runInBackground(work func(context.Context)) {
	b.background.Add(1)
	go func() {
		defer b.background.Done()
		ctx, cancel := context.WithTimeout(b.life, 30*time.Second)
		defer cancel()
		work(ctx)
	}()
}

// retryInBackground runs work in the background and retries it while the store is unavailable, for the length of a
// lease. Use it for work that would otherwise have to wait until a lease expires.
func (b *Broker) retryInBackground(work func(context.Context) error) {
	b.background.Add(1)
	go func() {
		defer b.background.Done()
		ctx, cancel := context.WithTimeout(b.life, b.opt.HTTPLease)
		defer cancel()
		for back := (retry.Backoff{Min: 100 * time.Millisecond, Max: 5 * time.Second}); ; {
			if !errors.Is(work(ctx), store.ErrUnavailable) {
				return
			}
			select {
			case <-time.After(back.Next()):
			case <-ctx.Done():
				return
			}
		}
	}()
}
