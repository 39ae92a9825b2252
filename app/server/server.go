// Package server assembles a control plane without a listener: store, dispatch, broker, sweeper, channel and HTTP
// handlers.
//
// The app, the tests of users (in virtual time) and our own tests all use it, so tests run the same assembly and the
// same order of shutdown as production.
package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/broker"
	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/admission"
	"github.com/sojourn-run/sojourn/app/internal/channel"
	"github.com/sojourn-run/sojourn/app/internal/httpapi"
	"github.com/sojourn-run/sojourn/app/internal/sweep"
	"github.com/sojourn-run/sojourn/app/internal/workerapi"
	"github.com/sojourn-run/sojourn/app/internal/workerconn"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/view"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Options of a control plane. Open and Release are required.
type Options struct {
	// Open opens the store with this dispatcher, under this app's ID. It may also return a store that is already open,
	// or a wrapper of one. The server closes it.
	Open   func(ctx context.Context, app string, d store.Dispatcher) (store.Store, error)
	Shared bool // other apps use the same database

	Release        string
	Strict         bool
	Token          string // the bootstrap token
	NoAuth         bool   // every caller is trusted
	Transports     []string
	Settings       func() protocol.WorkerSettings
	Cleanup        time.Duration // between two cleanups of ended sessions: 5 min; negative: no cleanup
	LogAge         time.Duration // how long log lines of activities are kept: 7 days
	AuditAge       time.Duration // how long audit entries are kept: 365 days
	AttemptLease   time.Duration
	Metrics        bool
	MaxBlamed      int                 // blamed losses after which a task fails; 0: 3
	Quotas         *engine.QuotaLimits // quotas of namespaces without their own; nil: engine.DefaultQuotas
	MaxPolls       int                 // long polls of HTTP workers held at once; 0: 10,000
	MaxSockets     int                 // sockets of one token; 0: no cap
	Bytes          int64               // limit of request and response bytes in flight; 0: 256 MiB
	TrustedProxies auth.Proxies        // proxies whose X-Forwarded-For is trusted
	Dashboard      http.Handler        // handler of paths outside of /api; nil: none
	Log            zerolog.Logger

	ManualTime bool // only the caller advances time, and runs due work with Broker.Due
}

// keepSessions is the retention of ended sessions, equal to the retention of a namespace.
const keepSessions = 30 * 24 * time.Hour

// defaultBytes is the limit of bytes in flight if Options.Bytes is not set.
const defaultBytes = 256 << 20

// Server is a control plane, created by Open. It serves requests at once, and processes timers while Run runs.
type Server struct {
	opt         Options
	id          string
	store       store.Store
	dispatch    *dispatch.Dispatch
	broker      *broker.Broker
	view        *view.View
	auth        *auth.Auth
	sweeper     *sweep.Sweeper
	connections *workerconn.Registry
	channel     *channel.Channel
	handler     *httpapi.API
	registry    *prometheus.Registry
	budget      *budget.Budget
	admission   *admission.Limiter
	jumps       *prometheus.CounterVec // jumps of the store's clock
	log         zerolog.Logger

	drain func(context.Context) error // drains at the first call only
	close func(context.Context) error // closes at the first call only

	mu     sync.Mutex // guards the fields below
	closed bool
	stops  []context.CancelCauseFunc // functions that stop Run
	runs   sync.WaitGroup            // goroutines that Run started
}

// Open opens the store and connects the parts of a control plane.
func Open(ctx context.Context, o Options) (*Server, error) {
	p := &Server{opt: o, id: ulid.Make().String(), log: o.Log, dispatch: dispatch.New(dispatch.Options{Log: o.Log})}
	var err error
	if p.store, err = o.Open(ctx, p.id, p.dispatch); err != nil {
		return nil, err
	}
	p.assemble()
	p.drain, p.close = runOnce(p.drainNow), runOnce(p.closeNow)
	return p, nil
}

// assemble creates and connects the components.
func (p *Server) assemble() {
	o := p.opt
	registry := prometheus.NewRegistry()
	p.registry, p.jumps = registry, newClockJumps()
	var metrics *broker.Metrics
	if o.Metrics {
		metrics = broker.NewMetrics(registry)
		p.measure(registry)
		registry.MustRegister(p.jumps)
	}
	p.broker = broker.New(p.store, p.dispatch, broker.Options{
		Release: o.Release, StrictRelease: o.Strict, App: p.id, Shared: o.Shared, AttemptLease: o.AttemptLease,
		Retention: keepSessions, LogAge: o.LogAge, AuditAge: o.AuditAge,
		MaxBlamed: o.MaxBlamed, Quotas: o.Quotas, Log: o.Log, Metrics: metrics,
	})
	p.view = p.broker.View()
	if o.Metrics {
		registry.MustRegister(
			p.view.SessionGauge(), p.view.QueueGauges(), p.view.SuspectGauge(), p.view.StuckGauge(), p.broker.QuotaGauges(),
		)
	}
	sweeps := sweep.Options{Shared: o.Shared, Cleanup: o.Cleanup, Retention: keepSessions, Log: o.Log}
	if o.Cleanup >= 0 {
		sweeps.Remove = p.broker.CleanUp
	}
	p.sweeper = sweep.New(p.store, p.broker.Due, sweeps)
	p.dispatch.Bind(p.broker, func(tasks []store.Leased) {
		for _, t := range tasks {
			p.broker.Return(t)
		}
	}, p.sweeper.Pulse)
	p.auth = auth.New(auth.Options{
		Store: p.store, Bootstrap: o.Token, None: o.NoAuth, ReceivesNotices: p.store.ReceivesNotices,
		TrustedProxies: o.TrustedProxies,
	})
	if o.Bytes <= 0 {
		o.Bytes = defaultBytes
	}
	p.budget = budget.New(o.Bytes)
	p.admission = admission.New(admission.Options{OthersActive: p.store.Quotas().OthersActive})
	p.connections = workerconn.New(p.broker, workerconn.Options{
		Release: o.Release, Workers: p.broker.Membership(), Revalidate: p.revalidate, Allow: p.allow, Settings: p.settings,
		Fleet: p.broker.Fleet().FleetWide, Hub: &p.dispatch.Hub, Log: o.Log,
	})
	requests := httpapi.NewMetrics(registry)
	p.channel = channel.New(p.connections, channel.Options{
		Worker: p.worker, Dashboard: p.browser, CheckOrigin: p.auth.CheckOrigin, Revalidate: p.revalidate,
		InNamespace: inNamespace, Hub: &p.dispatch.Hub,
		Transports: o.Transports, PrincipalKey: principalKey, MaxPerToken: o.MaxSockets,
		Address: p.auth.Address, Budget: p.budget, Owner: owner, Unknown: requests.Unknown, Log: o.Log,
	})
	p.broker.SetNotices(p.connections)
	workers := workerapi.New(workerapi.Options{
		Verbs: p.broker, Claims: p.broker, Workers: p.broker.Membership(), Auth: p.auth, Log: o.Log,
		Observe: requests.Observe, Settings: p.connections.WorkerSettings, HasNamespace: p.broker.HasNamespace,
		MaxPolls: o.MaxPolls, Budget: p.budget, Admission: p.admission, Unknown: requests.Unknown,
	})
	p.handler = httpapi.New(httpapi.Options{
		Starts: p.broker, Runs: p.broker, Continuations: p.broker, Outcomes: p.broker,
		Pools: p.broker, PoolViews: p.view,
		Schedules: p.broker, BatchJobs: p.broker, Namespaces: p.broker, Attributes: p.broker, Retention: p.broker,
		Operations: p.broker, WorkerOperations: p.broker.Fleet(), Process: p.broker,
		RunViews: p.view, Fleet: p.view, Queues: p.view, ScheduleViews: p.view, System: p.view,
		BatchJobViews: p.view,
		Auth:          p.auth, WorkerAPI: workers, Socket: p.channel, Dashboard: o.Dashboard, Registry: registry,
		Metrics: requests, App: p.id, Budget: p.budget, Admission: p.admission, Log: o.Log,
	})
}

// settings returns the settings of workers. App and workers use the same setting for unreadable releases.
func (p *Server) settings() (s protocol.WorkerSettings) {
	if p.opt.Settings != nil {
		s = p.opt.Settings()
	}
	s.Strict = s.Strict || p.opt.Strict
	return s
}

// RegisterInNamespace adds a collector of another part of this process to /metrics, visible to callers with access to
// the namespace.
func (p *Server) RegisterInNamespace(namespace string, c prometheus.Collector) {
	if p.opt.Metrics {
		prometheus.WrapRegistererWith(prometheus.Labels{"namespace": namespace}, p.registry).MustRegister(c)
	}
}

// Register adds collectors of another part of this process to /metrics, without a namespace.
func (p *Server) Register(c ...prometheus.Collector) {
	if p.opt.Metrics {
		p.registry.MustRegister(c...)
	}
}

// Broker returns the broker, for callers in this process.
func (p *Server) Broker() *broker.Broker { return p.broker }

// View returns the read models of stored data.
func (p *Server) View() *view.View { return p.view }

// Dispatch returns the dispatcher, which holds waiting polls and publishes hints.
func (p *Server) Dispatch() *dispatch.Dispatch { return p.dispatch }

// Connections returns the registry of connected workers; workers in this process join it too.
func (p *Server) Connections() *workerconn.Registry { return p.connections }

// Channel returns the Socket.IO endpoint.
func (p *Server) Channel() *channel.Channel { return p.channel }

// Auth returns the authentication of callers.
func (p *Server) Auth() *auth.Auth { return p.auth }

// Store returns the store of the control plane.
func (p *Server) Store() store.Store { return p.store }

// Handler returns the handler of the HTTP APIs, the Socket.IO channel and the dashboard.
func (p *Server) Handler() http.Handler { return p.handler }

// Run runs the background loops: timers, and notices of the commits of other apps. It returns when ctx ends, at Close,
// or with the error of a failed loop. The work that it started continues until Close, since requests are still answered
// until then.
func (p *Server) Run(ctx context.Context) error {
	work, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	loops := map[string]func() error{
		"tokens":  func() error { p.watchTokenChanges(work); return nil },
		"uses":    func() error { p.auth.StoreLastUses(work); return nil },
		"signIns": func() error { p.handler.ReportSignIns(work); return nil },
		"watch":   func() error { return p.broker.Watch(work) },
		"clock":   func() error { p.watchClock(work); return nil },
		"database": func() error {
			select {
			case err := <-p.store.Unusable():
				return err
			case <-work.Done():
				return nil
			}
		},
	}
	if !p.opt.ManualTime {
		loops["sweeper"] = func() error { p.sweeper.Run(work); return nil }
		loops["sessions"] = func() error { p.watchUnownedSessions(work); return nil }
		loops["stuck"] = func() error { p.broker.WatchStuck(work); return nil }
		loops["retention"] = func() error { sweep.Prune(work, p.broker.Prune, p.log); return nil }
	}
	failed := make(chan error, len(loops))
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		stop(errStopped)
		return nil
	}
	p.stops = append(p.stops, stop)
	for name, loop := range loops {
		p.runs.Go(func() {
			if err := loop(); err != nil && work.Err() == nil {
				failed <- fmt.Errorf("%s: %w", name, err)
			}
		})
	}
	p.mu.Unlock()
	select {
	case <-ctx.Done():
	case <-work.Done():
	case err := <-failed:
		return err
	}
	return nil
}

var errStopped = errors.New("app stopped")

// Drain ends polls and disconnects workers, in an order in which no part waits for a part that has already stopped.
// Requests are served until Close. Further calls do nothing.
func (p *Server) Drain(ctx context.Context) error { return p.drain(ctx) }

func (p *Server) drainNow(ctx context.Context) error {
	p.broker.Drain()
	p.connections.StopNotices()
	return errors.Join(p.channel.Close(ctx), p.connections.Close(ctx))
}

// Close drains, ends everything that Run started and closes the store; a second call does nothing.
func (p *Server) Close(ctx context.Context) error { return p.close(ctx) }

func (p *Server) closeNow(ctx context.Context) error {
	err := errors.Join(p.drain(ctx), p.dispatch.Close(ctx))
	p.mu.Lock()
	p.closed = true
	for _, stop := range p.stops {
		stop(errStopped)
	}
	p.mu.Unlock()
	p.broker.Close()
	p.runs.Wait()
	return errors.Join(err, p.store.Close())
}

// runOnce calls fn for its first caller and returns the error to it; later callers wait for the end of that call.
func runOnce(fn func(context.Context) error) func(context.Context) error {
	var first sync.Once
	return func(ctx context.Context) (err error) {
		first.Do(func() { err = fn(ctx) })
		return err
	}
}
