package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sojourn-run/sojourn/app"
	"github.com/sojourn-run/sojourn/app/auth"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/postgres"
	"github.com/sojourn-run/sojourn/app/store/sqldb"
	"github.com/sojourn-run/sojourn/app/store/sqlite"
	"github.com/sojourn-run/sojourn/internal/certs"
	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// serve runs the configured roles until ctx ends, and then drains.
func (p *program) serve(ctx context.Context, s *settings) error {
	node, err := p.start(ctx, s)
	if err != nil {
		return err
	}
	if node.app != nil {
		s.Log.Info().Str("release", s.Release).Str("url", node.app.URL()).Msg("app started")
	}
	if node.worker != nil && s.Handlers != "" {
		s.Log.Info().Msg("handlers loaded: " + node.worker.Handlers().String())
	}
	return node.wait()
}

// node contains the running parts of one process. If one part ends, the others are stopped.
type node struct {
	app    *app.App
	worker *worker.Worker
	ctx    context.Context
	cancel context.CancelCauseFunc
	parts  int
	done   chan error
}

func (n *node) run(name string, fn func(context.Context) error) {
	n.parts++
	go func() {
		err := fn(n.ctx)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		n.cancel(err)
		n.done <- err
	}()
}

// wait returns when every part has ended.
func (n *node) wait() error {
	var all []error
	for range n.parts {
		all = append(all, <-n.done)
	}
	n.cancel(nil)
	return errors.Join(all...)
}

// start starts the app, the worker or both. The app starts first and stops last, so that a worker in the same process
// can return its tasks.
func (p *program) start(ctx context.Context, s *settings) (*node, error) {
	if err := s.keepPrivate(); err != nil {
		return nil, err
	}
	memory := s.limitMemory()
	n := &node{done: make(chan error, 2)}
	n.ctx, n.cancel = context.WithCancelCause(ctx)
	if !s.Role.RunsApp() {
		w, err := p.worker(s, nil)
		if err != nil {
			return nil, err
		}
		n.worker = w
		n.run("worker", w.Run)
		return n, nil
	}
	a, err := p.app(n.ctx, s, memory)
	if err != nil {
		return nil, err
	}
	n.app = a
	if !s.Role.RunsWorker() {
		n.run("app", a.Run)
		return n, nil
	}
	w, err := p.worker(s, a)
	if err != nil {
		return nil, errors.Join(err, a.Close())
	}
	n.worker = w
	a.RegisterInNamespace(s.Namespace, w.Collector())
	workerLeft := make(chan struct{})
	n.run("app", func(ctx context.Context) error {
		serving, stop := context.WithCancelCause(context.WithoutCancel(ctx))
		go func() {
			<-ctx.Done()
			select {
			case <-workerLeft:
			case <-time.After(s.DrainTimeout):
			}
			stop(context.Cause(ctx))
		}()
		return a.Run(serving)
	})
	n.run("worker", func(ctx context.Context) error {
		defer close(workerLeft)
		return w.Run(ctx)
	})
	return n, nil
}

// keepPrivate removes access for other users to the data directory and its files: its database contains all data, and
// its token grants full access.
func (s *settings) keepPrivate() error {
	if err := process.PrivateDir(s.DataDir); err != nil {
		return err
	}
	files, err := os.ReadDir(s.DataDir)
	for _, f := range files {
		if f.Type().IsRegular() {
			err = errors.Join(err, process.PrivateFile(filepath.Join(s.DataDir, f.Name())))
		}
	}
	return err
}

// app opens the control plane.
func (p *program) app(ctx context.Context, s *settings, memory int64) (*app.App, error) {
	token := ""
	if s.Auth != config.AuthNone {
		t, created, err := auth.Bootstrap(s.DataDir, s.Token)
		if err != nil {
			return nil, err
		}
		if token = t; created {
			fmt.Fprintf(p.err, "generated a bootstrap token and stored it in %s:\n  %s\n", filepath.Join(s.DataDir, process.TokenFile), token)
		}
	}
	var rules *tls.Config
	if s.TLSCert != "" {
		var err error
		rules, err = certs.Server(s.TLSCert, s.TLSKey, s.TLSClientCA, func(err error) {
			s.Log.Error().Err(err).Msg("failed to reload the TLS certificate; the previous certificate stays active")
		})
		if err != nil {
			return nil, err
		}
	}
	proxies, err := config.Networks(s.TrustedProxies)
	if err != nil {
		return nil, err
	}
	probes := &app.Probes{Addr: s.Addr, TLS: rules, Log: s.Log}
	return app.New(ctx, app.Options{
		Options: server.Options{
			Open: func(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
				defer probes.Close()
				return s.awaitStore(ctx, id, d, probes.Serve)
			}, Shared: s.postgres(), Release: s.Release, Strict: s.ReleaseStrict, Token: token,
			NoAuth:     s.Auth == config.AuthNone,
			Transports: s.SocketTransports, Cleanup: s.SessionCleanup, LogAge: s.ActivityLogAge,
			AuditAge:     s.AuditLogAge,
			AttemptLease: s.othersLease(), Metrics: s.Metrics,
			Quotas: &engine.QuotaLimits{
				OpenRuns: int64(s.QuotaOpenRuns), StartsPerSecond: int64(s.QuotaStarts),
				StoredBytes: int64(s.QuotaBytes), Schedules: int64(s.QuotaSchedules),
			},
			MaxBlamed: s.MaxBlamed, MaxPolls: s.MaxPolls, MaxSockets: s.MaxSockets, TrustedProxies: proxies,
			Bytes: inFlight(memory), Log: s.Log,
			Settings: func() protocol.WorkerSettings {
				return protocol.WorkerSettings{DrainSeconds: int64(s.DrainTimeout.Seconds())}
			},
		},
		Addr: s.Addr, Base: s.BasePath, Drain: s.DrainTimeout, TLS: rules,
	})
}

// othersLease returns the attempt lease for workers that renew leases themselves and request no duration; 0: the app's
// default. One process has one setting for this and for its worker, whose default is shorter because it renews more
// often.
func (s *settings) othersLease() time.Duration {
	for _, src := range s.Sources {
		if src.Name == "attempt-lease" && src.From == "default" {
			return 0
		}
	}
	return s.AttemptLease
}

// postgres reports whether the database can be shared by several apps.
func (s *settings) postgres() bool {
	return s.DatabaseURLFile != "" || !strings.HasPrefix(s.DatabaseURL, "sqlite:")
}

// postgresURL returns the URL of the PostgreSQL database. It reads the URL file at each call, since the URL may change.
func (s *settings) postgresURL() (string, error) {
	if s.DatabaseURLFile == "" {
		return s.DatabaseURL, nil
	}
	raw, err := os.ReadFile(s.DatabaseURLFile)
	if err != nil {
		return "", fmt.Errorf("database-url-file: %w", err)
	}
	to := strings.TrimSpace(string(raw))
	if !strings.HasPrefix(to, "postgres://") && !strings.HasPrefix(to, "postgresql://") {
		return "", fmt.Errorf("database-url-file %s: the file must contain a postgres:// URL", s.DatabaseURLFile)
	}
	return to, nil
}

// openStore opens the store that the settings name.
func (s *settings) openStore(ctx context.Context, id string, d store.Dispatcher) (store.Store, error) {
	return s.awaitStore(ctx, id, d, func() {})
}

// refusedFor is the time for which the database may refuse the credentials before the process ends; 0: the default.
// Tests set it.
var refusedFor time.Duration

// awaitStore is like openStore, and calls waiting for each failed attempt to connect to the database.
func (s *settings) awaitStore(
	ctx context.Context, id string, d store.Dispatcher, waiting func(),
) (store.Store, error) {
	memory, _ := s.memory()
	o := sqldb.Options{App: id, Dispatch: d, Pool: s.PostgresPool, Memory: memory, Waiting: func(err error) {
		waiting()
		s.Log.Warn().Err(err).Msg("database not reachable; waiting")
	}, Outage: func(err error) {
		s.Log.Error().Err(err).Msg("database unavailable")
	}, Recovered: func(after time.Duration) {
		s.Log.Info().Float64("outage_seconds", after.Seconds()).Msg("database available again")
	}, RefusedFor: refusedFor, Refused: func(err error) {
		s.Log.Error().Err(err).Msg("database refused the credentials; the app exits unless they are accepted within 5 min")
	}}
	if !s.postgres() {
		o.App = "app" // only one app can open the file: a fixed name makes every start use the same row
		return sqlite.Open(ctx, strings.TrimPrefix(s.DatabaseURL, "sqlite:"), o)
	}
	opened, err := postgres.OpenFrom(ctx, s.postgresURL, o)
	if err != nil {
		return nil, err
	}
	s.logDurability(ctx)
	return opened, nil
}

// logDurability logs the server's settings that decide whether it keeps acknowledged commits in a crash.
func (s *settings) logDurability(ctx context.Context) {
	schema, err := s.inspect(ctx)
	switch d := schema.Durability; {
	case err != nil:
		s.Log.Warn().Err(err).Msg("failed to read the durability settings of the database")
	case d != nil && d.Risk():
		s.Log.Warn().Str("durability", d.String()).Msg("a crash of the database server can lose acknowledged work")
	case d != nil:
		s.Log.Info().Str("durability", d.String()).Msg("database opened")
	}
}

// inspect reads the schema of the database without opening a store.
func (s *settings) inspect(ctx context.Context) (store.Schema, error) {
	if !s.postgres() {
		return sqlite.Inspect(ctx, strings.TrimPrefix(s.DatabaseURL, "sqlite:"))
	}
	to, err := s.postgresURL()
	if err != nil {
		return store.Schema{}, err
	}
	return postgres.Inspect(ctx, to)
}

// worker creates the worker; with an app it connects to the app in this process.
func (p *program) worker(s *settings, a *app.App) (*worker.Worker, error) {
	if a != nil {
		here := *s.Config
		if u, err := url.Parse(a.URL()); err == nil {
			here.Addr = u.Host // includes the actual port, to which executors must not connect
		}
		local := link.Local{Join: a.Connections().Join}
		return workeropt.FromConfig[*worker.Worker](p.registry, &here, local, slogbridge.Slog(s.Log))
	}
	rules, err := certs.Client(s.AppCA, s.ClientCert, s.ClientKey)
	if err != nil {
		return nil, err
	}
	remote := link.Over(s.Link, s.AppURLs, rules)
	return workeropt.FromConfig[*worker.Worker](p.registry, s.Config, remote, slogbridge.Slog(s.Log))
}

// localURL returns the URL at which a browser on this machine reaches an app that listens on addr.
func localURL(url string) string {
	scheme, rest, _ := strings.Cut(url, "://")
	host, port, err := net.SplitHostPort(rest)
	if err == nil && (host == "" || host == "::" || host == "0.0.0.0") {
		return scheme + "://" + net.JoinHostPort("127.0.0.1", port)
	}
	return url
}
