// Package broker implements the app's verbs, one method each: it names the rows of a request, submits the change and
// builds the response. The rules are in package engine. A verb responds only after its change is committed.
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

// Several apps may serve one database, and each may die at any time. So every guarantee of a verb rests on rows that
// its change reads and writes in one transaction. The memory of this process (heartbeats, results of polls, sticky
// workers) only saves reads and selects the worker to wake; the verbs also work in an app without it.

// Options of a broker. Zero values mean the defaults named next to them.
type Options struct {
	Release       string
	StrictRelease bool
	App           string              // id of this process
	Shared        bool                // other apps use the same database
	Alive         time.Duration       // time after the last heartbeat at which a worker counts as dead: 60 s
	StoreAlive    time.Duration       // how often its liveness is stored at rest when the database is shared: 60 s
	Quiet         time.Duration       // silence after which the exact time of a worker's last heartbeat is stored: 15 s
	Heartbeat     time.Duration       // heartbeat interval that registrations return: 15 s
	AttemptLease  time.Duration       // of workers that renew by themselves: 120 s
	HTTPLease     time.Duration       // of clients of the HTTP contract: 300 s
	Retention     time.Duration       // of ended sessions: 30 days
	LogAge        time.Duration       // how long lines of activities are kept: 7 days
	AuditAge      time.Duration       // retention of audit entries: 365 days
	MaxBlamed     int                 // losses of worker processes that a task may be blamed for: 3
	Quotas        *engine.QuotaLimits // of namespaces without their own; nil: engine.DefaultQuotas
	Log           zerolog.Logger
	Metrics       *Metrics // nil: none
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

// Broker serves every verb. All methods may be called from any goroutine.
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

	background sync.WaitGroup
	mu         sync.Mutex // guards draining and closing
	draining   bool
	drained    chan struct{} // closed when draining begins
	life       context.Context
	end        context.CancelCauseFunc
}

// New returns a broker for a store that was opened with d as its dispatcher.
func New(s store.Store, d *dispatch.Dispatch, o Options) *Broker {
	b := &Broker{store: s, dispatch: d, opt: o.defaults(), log: o.Log, drained: make(chan struct{})}
	s.Quotas().Limit(*b.opt.Quotas)
	b.recounts = recounts{names: map[string]bool{}, wake: make(chan struct{}, 1)}
	b.logs = logs.New(s, logs.Options{Shared: o.Shared, Age: b.opt.LogAge, Attempt: b.AttemptStatus})
	// Membership is created first: query tasks, the read models and the fleet all depend on it.
	b.workers = membership.Open(s, d, membership.Options{
		App: o.App, Alive: b.opt.Alive, StoreAlive: b.opt.StoreAlive, Quiet: b.opt.Quiet, Heartbeat: b.opt.Heartbeat,
		AttemptLease: b.opt.AttemptLease, HTTPLease: b.opt.HTTPLease, PollKept: pollRetention,
		Shared: o.Shared, Release: o.Release, StrictRelease: o.StrictRelease, MaxBlamed: o.MaxBlamed,
		Lost: o.Metrics.countLostProcess, AppEnded: b.recounts.appEnded, Log: o.Log,
	})
	b.questions = querytask.New(s, d, b.drained, o.Log)
	b.questions.Avoid = b.avoidsProcess
	b.questions.Answerable = func(ctx context.Context, q *store.Question) bool {
		ok, err := b.hasQueryWorker(ctx, q)
		return ok || err != nil
	}
	d.OnProcessEnded(func(store.Process) { b.questions.WorkerLeft() }) // called after the registry has removed the process
	b.view = view.New(s, view.Options{
		AppState: b, Dispatch: d, Workers: b.workers.Registry, Questions: b.questions.Count,
		App: o.App, Release: o.Release, Shared: o.Shared, Heartbeat: b.opt.Heartbeat, Alive: b.opt.Alive,
	})
	// Call Prefer before the first poll: without it a task could go to a worker that must read the whole history.
	d.Prefer(b.stickyWorkers)
	b.fleet = fleet.New(s, d, b.workers, b.view, o.Log)
	b.evict = evict.New(s, d, b.workers, b.isDraining, o.Metrics.countPlaceWait, o.Log)
	b.life, b.end = context.WithCancelCause(context.Background())
	return b
}

// Drain ends every poll with the drain status and stops dispatch.
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
	// Notify the other apps last, since background work may still write as this app.
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

// Membership returns the membership: the workers that are alive, as this app knows.
func (b *Broker) Membership() *membership.Workers { return b.workers }

// Fleet returns the operators' part: drains and settings of workers.
func (b *Broker) Fleet() *fleet.Fleet { return b.fleet }

// Notices sends notices to connected workers. A notice may be lost, and a worker may be disconnected: the next response
// to the worker repeats the information.
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

// View answers what people ask, by what this broker's app knows of its workers.
func (b *Broker) View() *view.View { return b.view }

// Store returns the broker's store, for code that reads it directly.
func (b *Broker) Store() store.Store { return b.store }

// Watch monitors the workers until ctx ends, runs drains, and logs session moves.
func (b *Broker) Watch(ctx context.Context) error {
	var watching sync.WaitGroup
	watching.Go(func() { b.watchSessions(ctx) })
	watching.Go(func() { b.fleet.Watch(ctx) })
	watching.Go(func() { b.watchEnded(ctx) })
	watching.Go(func() { b.recomputeSchedules(ctx) })
	watching.Go(func() { b.exchangeUsage(ctx) })
	watching.Go(func() { b.recountUsage(ctx) })
	defer watching.Wait()
	return b.workers.Watch(ctx)
}

// readyTime is the timeout of the readiness check. It is below the two seconds of Ready, so that the response is sent
// in time.
const readyTime = 1500 * time.Millisecond

// Ready reports within two seconds whether the app can write: the store responds and has committed its last batch.
func (b *Broker) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	if err := b.store.Writable(ctx); err != nil {
		return err
	}
	pinged := make(chan error, 1)
	go func() { // a ping of a hanging database may outlast ctx
		pinged <- b.store.View(ctx, func(r store.Reader) error { return r.Ping(ctx) })
	}()
	select {
	case err := <-pinged:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// async runs work that outlives its caller, until Close.
func (b *Broker) async(work func(context.Context)) {
	b.background.Add(1)
	go func() {
		defer b.background.Done()
		ctx, cancel := context.WithTimeout(b.life, 30*time.Second)
		defer cancel()
		work(ctx)
	}()
}

// persist runs work in the background, for work whose loss would leave a lease to expire. While the store is
// unavailable, persist retries for the length of such a lease.
func (b *Broker) persist(work func(context.Context) error) {
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
