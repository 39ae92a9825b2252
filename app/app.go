// Package app runs the control plane process: it listens on a port, serves the control plane and drains it at shutdown.
package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sojourn-run/sojourn/app/server"
	"github.com/sojourn-run/sojourn/internal/connlimit"
	"github.com/sojourn-run/sojourn/internal/httpjson"
	"github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/web"
)

// Options of an app: the options of its control plane, and the options of its listener. Authentication may be off only
// on a loopback address.
type Options struct {
	server.Options

	Addr  string        // host:port; port 0 takes a free one
	Drain time.Duration // maximum duration of a shutdown: 25 s
	// Base is a path, such as /sojourn, below which the app is also served; its pages then use this path. Empty: none.
	Base string
	TLS  *tls.Config // nil: none. With ClientCAs, callers need a client certificate, except for health probes.

	Around func(http.Handler) http.Handler // wraps the handler of all requests, for tests; nil: none
}

// App is a control plane with a listener. New creates it, Run serves.
type App struct {
	*server.Server
	opt        Options
	httpServer *http.Server
	listener   net.Listener

	connections connlimit.Limit
}

// New opens the store and the port. Requests are served while Run runs.
func New(ctx context.Context, o Options) (*App, error) {
	if o.Drain <= 0 {
		o.Drain = 25 * time.Second
	}
	var endpoints codecEndpoints
	if o.Dashboard == nil {
		o.Dashboard = web.Handler(endpoints.urls)
	}
	p, err := server.Open(ctx, o.Options)
	if err != nil {
		return nil, err
	}
	endpoints.namespaces = p.Broker()
	a := &App{Server: p, opt: o}
	if a.listener, err = new(net.ListenConfig).Listen(ctx, "tcp", o.Addr); err != nil {
		return nil, errors.Join(process.ListenError("addr", o.Addr, err), p.Close(ctx))
	}
	a.connections.Scarce = func(limit int) {
		o.Log.Warn().Int("limit", limit).Int("reserve", connlimit.Reserve).Msg(
			"file descriptors exhausted up to the reserve: idle connections closed, new connections serve health probes only")
	}
	a.listener = a.connections.Listen(a.listener)
	handler := mountUnder(o.Base, p.Handler())
	if o.TLS != nil {
		a.listener = tls.NewListener(a.listener, o.TLS)
		handler = certified(handler, o.TLS.ClientAuth != tls.NoClientCert)
	}
	if o.Around != nil {
		handler = o.Around(handler)
	}
	handler = connlimit.Requests(httpjson.BodyDeadline(handler), p.Auth().Address)
	a.httpServer = &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10, ErrorLog: log.New(o.Log, "", 0), // logs rejected TLS handshakes
		ConnContext: connlimit.Context, ConnState: a.connections.State,
	}
	p.Register(a.measured()...)
	return a, nil
}

// URL returns the address on which the app listens.
func (a *App) URL() string {
	scheme := "http"
	if a.opt.TLS != nil {
		scheme = "https"
	}
	return scheme + "://" + a.listener.Addr().String()
}

// mountUnder serves requests below a base path like requests at the root. Probes and workers that connect to the app
// directly need no path.
func mountUnder(base string, next http.Handler) http.Handler {
	if base == "" {
		return next
	}
	stripped := http.StripPrefix(base, next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(web.PrefixHeader) == "" {
			r.Header.Set(web.PrefixHeader, base)
		}
		switch {
		case r.URL.Path == base:
			http.Redirect(w, r, base+"/", http.StatusPermanentRedirect)
		case strings.HasPrefix(r.URL.Path, base+"/"):
			stripped.ServeHTTP(w, r)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// certified rejects callers without a client certificate; the TLS handshake has already rejected invalid ones. Health
// probes are exempt and reveal nothing.
func certified(next http.Handler, required bool) http.Handler {
	if !required {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/up", r.URL.Path == "/healthz", r.URL.Path == "/readyz":
		case r.TLS == nil || len(r.TLS.VerifiedChains) == 0:
			http.Error(w, "this app requires a client certificate (client-cert, client-key)", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Run serves until ctx ends, then drains: polls end, running requests finish, and everything is closed within the drain
// deadline. It returns the error that stopped the app; a requested stop is no error.
func (a *App) Run(ctx context.Context) error {
	parts, broken := errgroup.WithContext(ctx)
	run := func(part func() error) {
		parts.Go(func() error {
			err := part()
			if err != nil {
				a.opt.Log.Error().Err(err).Msg("app failed; shutting down")
			}
			return err
		})
	}
	run(func() error { return a.Server.Run(broken) })
	run(func() error {
		if err := a.httpServer.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("server: %w", err)
		}
		return nil
	})
	<-broken.Done()
	drained := a.drain(context.WithoutCancel(ctx))
	return errors.Join(parts.Wait(), drained)
}

// Close ends an app that was never run.
func (a *App) Close() error {
	return errors.Join(a.listener.Close(), a.drain(context.Background()))
}

// drain stops the parts of the app in dependency order, so that no part waits for a part that has already stopped.
func (a *App) drain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, a.opt.Drain)
	defer cancel()
	a.opt.Log.Info().Msg("draining")
	err := a.Drain(ctx)
	if e := a.httpServer.Shutdown(ctx); e != nil {
		err = errors.Join(err, a.httpServer.Close())
	}
	return errors.Join(err, a.Server.Close(ctx))
}
