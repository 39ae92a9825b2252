// Package app is the control plane process: it joins store, dispatch, broker, sweeper and transports, serves them on one port, and drains.
package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/channel"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/httpapi"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/sweep"
	"github.com/sojourn-run/sojourn/app/workerapi"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/web"
)

// Options of an app. Open and Release are required.
type Options struct {
	// Open opens the store with this dispatcher, under this app's id.
	Open   func(ctx context.Context, app string, d store.Dispatcher) (store.Store, error)
	Shared bool // other apps use the same database

	Addr         string // host:port; port 0 takes a free one
	Release      string
	Strict       bool
	Token        string // the bootstrap token
	NoAuth       bool   // every caller is trusted; the address must be loopback
	Transports   []string
	Settings     func() protocol.WorkerSettings
	Cleanup      time.Duration // of ended sessions
	AttemptLease time.Duration
	Drain        time.Duration // how long a shutdown may take: 25 s
	Metrics      bool
	Log          zerolog.Logger

	Around func(http.Handler) http.Handler // stands around all that is served, for tests; nil: nothing
}

// keepSessions is how long sessions that ended for good are kept: the retention of a namespace.
const keepSessions = 30 * 24 * time.Hour

// App is a control plane. Make it with New, serve with Run.
type App struct {
	opt      Options
	id       string
	store    store.Store
	dispatch *dispatch.Dispatch
	broker   *broker.Broker
	auth     *auth.Auth
	sweeper  *sweep.Sweeper
	channel  *channel.Channel
	server   *http.Server
	listener net.Listener
	log      zerolog.Logger
}

// New opens the store and the port. The app serves when Run does.
func New(ctx context.Context, o Options) (*App, error) {
	if o.Drain <= 0 {
		o.Drain = 25 * time.Second
	}
	a := &App{opt: o, id: ulid.Make().String(), log: o.Log, dispatch: dispatch.New(dispatch.Options{Log: o.Log})}
	s, err := o.Open(ctx, a.id, a.dispatch)
	if err != nil {
		return nil, err
	}
	a.store = s
	if a.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", o.Addr); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", o.Addr, err), s.Close())
	}
	a.join()
	return a, nil
}

// join makes the parts and ties them together.
func (a *App) join() {
	o := a.opt
	registry := prometheus.NewRegistry()
	var metrics *broker.Metrics
	if o.Metrics {
		registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		metrics = broker.NewMetrics(registry)
		a.measure(registry)
	}
	a.broker = broker.New(a.store, a.dispatch, broker.Options{
		Release: o.Release, StrictRelease: o.Strict, App: a.id, Shared: o.Shared, AttemptLease: o.AttemptLease,
		Retention: keepSessions, Log: o.Log, Metrics: metrics,
	})
	a.sweeper = sweep.New(a.store, a.broker.Due, sweep.Options{
		Shared: o.Shared, Cleanup: o.Cleanup, Remove: a.broker.CleanUp, Keep: keepSessions, Log: o.Log,
	})
	a.dispatch.Bind(a.broker, func(tasks []store.Leased) {
		for _, t := range tasks {
			a.broker.Return(t)
		}
	}, a.sweeper.Pulse)
	a.auth = auth.New(auth.Options{Store: a.store, Bootstrap: o.Token, None: o.NoAuth})
	a.channel = channel.New(a.broker, channel.Options{
		Worker: a.worker, Dashboard: a.browser, Allow: allow, Sees: sees, Settings: o.Settings, Hub: &a.dispatch.Hub,
		Transports: o.Transports, PrincipalKey: principalKey, Log: o.Log,
	})
	requests := httpapi.NewMetrics(registry)
	workers := workerapi.New(workerapi.Options{
		Broker: a.broker, Auth: a.auth, Log: o.Log, Observe: requests.Observe, Settings: a.channel.WorkerSettings, HasNamespace: a.broker.HasNamespace,
	})
	var handler http.Handler = httpapi.New(httpapi.Options{
		Broker: a.broker, Auth: a.auth, WorkerAPI: workers, Socket: a.channel, Dashboard: web.Handler(), Registry: registry,
		Metrics: requests, App: a.id, Log: o.Log,
	})
	if o.Around != nil {
		handler = o.Around(handler)
	}
	a.server = &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
}

// Broker serves the verbs, for callers in this process.
func (a *App) Broker() *broker.Broker { return a.broker }

// Dispatch is where polls wait and hints come from.
func (a *App) Dispatch() *dispatch.Dispatch { return a.dispatch }

// Channel is where workers of this process join.
func (a *App) Channel() *channel.Channel { return a.channel }

// Auth knows callers.
func (a *App) Auth() *auth.Auth { return a.auth }

// Store is the app's storage.
func (a *App) Store() store.Store { return a.store }

// URL is where the app listens.
func (a *App) URL() string { return "http://" + a.listener.Addr().String() }

// Run serves until ctx ends, then drains: polls end, what is under way is answered, and everything is closed within the drain deadline. The error says
// what broke; a stop that was asked for is none.
func (a *App) Run(ctx context.Context) error {
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	failed := make(chan error, 3)
	var group sync.WaitGroup
	run := func(name string, fn func() error) {
		group.Go(func() {
			if err := fn(); err != nil && work.Err() == nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	run("sweeper", func() error { a.sweeper.Run(work); return nil })
	run("sessions", func() error { a.tellSessions(work); return nil })
	run("retention", func() error { sweep.Prune(work, a.broker.Prune, a.log); return nil })
	run("watch", func() error { return a.broker.Watch(work) })
	run("server", func() error {
		if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		a.log.Error().Err(err).Msg("the app cannot go on")
	}
	err = errors.Join(err, a.drain(context.WithoutCancel(ctx), stop))
	group.Wait()
	return err
}

// tellSessions tells the sweeper that sessions moved, so that it looks for what to clean up; while none move it does not look.
func (a *App) tellSessions(ctx context.Context) {
	a.dispatch.Each(ctx, dispatch.TopicSessions, func(store.Changed, bool) { a.sweeper.SessionsMoved() })
}

// Close ends an app that was never run.
func (a *App) Close() error {
	err := a.listener.Close()
	return errors.Join(err, a.drain(context.Background(), func(error) {}))
}

// drain ends what runs, in the order in which nobody waits for somebody who is gone already.
func (a *App) drain(ctx context.Context, stop context.CancelCauseFunc) error {
	ctx, cancel := context.WithTimeout(ctx, a.opt.Drain)
	defer cancel()
	a.log.Info().Msg("draining")
	a.broker.Drain()
	err := a.channel.Close(ctx)
	if e := a.server.Shutdown(ctx); e != nil {
		err = errors.Join(err, a.server.Close())
	}
	err = errors.Join(err, a.dispatch.Close(ctx))
	stop(errors.New("app stopped"))
	a.broker.Close()
	return errors.Join(err, a.store.Close())
}

// measure exports what the parts count.
func (a *App) measure(r prometheus.Registerer) {
	counter := func(name, help string, of func() int64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(of()) }))
	}
	counter("sojourn_store_statements_total", "Statements sent to the database beside BEGIN and COMMIT.", func() int64 { return a.store.Stats().Statements })
	counter("sojourn_store_commits_total", "Batches committed.", func() int64 { return a.store.Stats().Commits })
	counter("sojourn_store_changes_total", "Changes committed, many to a batch.", func() int64 { return a.store.Stats().Changes })
	counter("sojourn_store_rows_total", "Rows written.", func() int64 { return a.store.Stats().Rows })
	counter("sojourn_store_reads_total", "Reads beside the batches.", func() int64 { return a.store.Stats().Reads })
	counter("sojourn_task_handovers_total", "Tasks that reached a worker as they were made.", func() int64 { return a.dispatch.Counts().Handovers })
	counter("sojourn_task_claims_total", "Tasks that were claimed out of the backlog.", func() int64 { return a.dispatch.Counts().Claimed })
	counter("sojourn_throttled_claims_total", "Claims from which a budget withheld tasks.", func() int64 { return a.dispatch.Counts().Throttled })
	counter("sojourn_tasks_returned_total", "Tasks given back because who polled for them was gone.", func() int64 { return a.dispatch.Counts().Returned })
	r.MustRegister(broker.SessionGauge(a.store))
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sojourn_poll_waiters", Help: "Polls that wait for work.",
	}, func() float64 { return float64(a.dispatch.Counts().Waiting) }))
}

// worker lets a worker into the channel.
func (a *App) worker(ctx context.Context, token string, _ *http.Request) (any, error) {
	p, err := a.auth.Authenticate(ctx, token)
	if err != nil {
		return nil, err
	}
	if !p.Has(auth.Worker) {
		return nil, protocol.Refuse(protocol.ReasonForbidden, "the token is not a worker's")
	}
	return p, nil
}

// browser lets a dashboard hear hints: by its cookie, or by a token.
func (a *App) browser(ctx context.Context, token string, r *http.Request) (any, error) {
	if token != "" || r == nil {
		return a.auth.Authenticate(ctx, token)
	}
	return a.auth.Request(r)
}

func allow(principal any, namespace string, queues []string) error {
	p := principal.(*auth.Principal)
	if !p.In(namespace) {
		return protocol.Refuse(protocol.ReasonForbidden, "the token is not for namespace %s", namespace)
	}
	if len(queues) == 0 { // a worker that connects has not named any yet; registering and polling do
		return nil
	}
	return p.CheckQueues(queues...)
}

func sees(principal any, namespace string) bool { return principal.(*auth.Principal).In(namespace) }

func principalKey(principal any) string { return principal.(*auth.Principal).TokenID }
