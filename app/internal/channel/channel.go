// Package channel is the Socket.IO endpoint of an app: workers send requests over it, and browsers receive hints about
// changes.
//
// It converts the protocol's jobs, tokens and locks to the app's tasks and leases. Package workerconn holds the state
// of a worker's connection.
package channel

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/internal/workerconn"
	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/internal/rpc"
	"github.com/sojourn-run/sojourn/internal/socketio"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Authenticate returns the principal of a token or, for a browser with an empty token, of the cookie in r. An error
// rejects the caller; the response contains only its protocol.Reason: forbidden, or else unauthorized. The channel
// calls it again for each connection every minute and in Recheck; an error then closes the connection.
type Authenticate func(ctx context.Context, token string, r *http.Request) (principal any, err error)

// Options of a channel. Zero values mean the defaults in the comments of the fields.
type Options struct {
	Worker    Authenticate // authenticates workers; must reject all other callers. nil: every caller is admitted
	Dashboard Authenticate // authenticates browsers; nil: every browser is admitted
	// CheckOrigin rejects requests before they are read; nil: no check.
	CheckOrigin func(*http.Request) error
	// Revalidate returns an error for a principal that has lost rights since its admission; nil: Worker and Dashboard
	// are called again.
	Revalidate func(ctx context.Context, principal any) error
	// InNamespace reports whether a browser's principal may receive hints of a namespace; nil: of all namespaces.
	InNamespace func(principal any, namespace string) bool
	// Hub publishes the hints for browsers; nil: no hints.
	Hub *dispatch.Hub

	Transports   []string      // "websocket" and "polling"; nil: both
	Origins      []string      // allowed origins of browsers besides the app's host
	PingInterval time.Duration // 10 s
	PingTimeout  time.Duration // 5 s
	Recheck      time.Duration // interval at which principals are checked again: 1 min
	MaxPerToken  int           // sockets of one principal key; 0: no cap
	PrincipalKey func(principal any) string
	Address      func(*http.Request) string // address of a client; nil: the peer's address
	Budget       *budget.Budget             // bytes in flight; nil: no limit
	Owner        func(principal any) budget.Owner
	Unknown      func(method string, members int) // counts unknown members of calls; nil: they are not counted
	Log          zerolog.Logger
}

// Channel is the endpoint. New creates it, Close ends it.
type Channel struct {
	peers    *workerconn.Registry
	opt      Options
	log      zerolog.Logger
	server   *socketio.Server
	workers  *socketio.Namespace
	browsers *socketio.Namespace
	handlers rpc.Handlers
	early    rpc.Handlers // methods that are served before a worker has fetched its settings
	serving  rpc.Serving
	counts   counters
	recent   recentBatches

	life  context.Context // context of the channel's background work
	end   context.CancelFunc
	tasks sync.WaitGroup
}

type counters struct {
	malformedMachines, undone, early atomic.Int64
}

// Stats are counts since the start.
type Stats struct {
	Socket            socketio.Stats
	MalformedMachines int64 // settings calls with malformed telemetry
	Undone            int64 // polls whose response was lost, so that their tasks were requeued
	EarlyCalls        int64 // calls that were refused because the settings had not been fetched
}

// New creates a channel that registers connected workers in peers, and starts to broadcast the changes that o.Hub
// publishes to dashboards.
func New(peers *workerconn.Registry, o Options) *Channel {
	c := &Channel{peers: peers, opt: o, log: o.Log}
	c.life, c.end = context.WithCancel(context.Background())
	if o.PingInterval <= 0 {
		o.PingInterval = 10 * time.Second
	}
	if o.PingTimeout <= 0 {
		o.PingTimeout = 5 * time.Second
	}
	if c.opt.Recheck <= 0 {
		c.opt.Recheck = time.Minute
	}
	c.server = socketio.NewServer(socketio.Options{
		Transports: o.Transports, Origins: o.Origins, PingInterval: o.PingInterval, PingTimeout: o.PingTimeout,
		MaxSocketsPerKey: o.MaxPerToken, PrincipalKey: c.key, Failed: c.failed, Admit: c.admit,
		Address: o.Address, Budget: o.Budget, Owner: c.owner,
	})
	c.handlers = c.table()
	c.early = c.tableBeforeSettings()
	c.serving = rpc.Serving{Failed: c.refused, Unknown: o.Unknown}
	c.workers = c.server.Of(protocol.NamespaceWorkers)
	c.workers.OnConnect(c.admitWorker)
	c.workers.OnSocket(c.openWorker)
	c.browsers = c.server.Of(protocol.NamespaceDashboard)
	c.browsers.OnConnect(c.admitBrowser)
	c.browsers.OnSocket(c.openBrowser)
	if o.Hub != nil {
		c.tasks.Go(c.broadcastHints)
	}
	if o.Worker != nil || o.Dashboard != nil {
		c.tasks.Go(c.recheckConnections)
	}
	return c
}

// ServeHTTP is the Socket.IO endpoint; mount it at protocol.ChannelPath, with and without a trailing slash.
func (c *Channel) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.server.ServeHTTP(w, r) }

// admit checks the origin and the authentication of a request.
func (c *Channel) admit(r *http.Request) bool {
	if c.opt.CheckOrigin == nil {
		return true
	}
	err := c.opt.CheckOrigin(r)
	if err != nil {
		c.log.Warn().Err(err).Str("remote", r.RemoteAddr).Msg("connection refused")
	}
	return err == nil
}

// Handlers returns the table of methods. A call's principal must be the principal of a worker's socket.
func (c *Channel) Handlers() rpc.Handlers { return c.handlers }

// Close closes every connection so that workers reconnect elsewhere, and waits for all background work.
func (c *Channel) Close(ctx context.Context) error {
	c.end()
	err := c.server.Close(ctx)
	done := make(chan struct{})
	go func() { c.tasks.Wait(); close(done) }()
	select {
	case <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Stats returns the counts.
func (c *Channel) Stats() Stats {
	return Stats{
		Socket: c.server.Stats(), MalformedMachines: c.counts.malformedMachines.Load(), Undone: c.counts.undone.Load(),
		EarlyCalls: c.counts.early.Load(),
	}
}

// key returns the key by which the connections of one token are limited.
func (c *Channel) key(principal any) string {
	if c.opt.PrincipalKey == nil {
		return ""
	}
	switch p := principal.(type) {
	case *worker:
		principal = p.Principal
	case *browser:
		principal = p.principal
	}
	return c.opt.PrincipalKey(principal)
}

// owner returns the owner to whom the bytes of a connection are counted: for a worker, its namespace.
func (c *Channel) owner(principal any) (o budget.Owner) {
	switch p := principal.(type) {
	case *worker:
		o = c.ownerOf(p.Principal)
		o.Namespace = p.Namespace
	case *browser:
		o = c.ownerOf(p.principal)
	}
	return o
}

func (c *Channel) ownerOf(principal any) budget.Owner {
	if c.opt.Owner == nil {
		return budget.Owner{Token: "somebody"}
	}
	return c.opt.Owner(principal)
}

// counted returns a context that counts the memory of a worker's response until release.
func (c *Channel) counted(ctx context.Context, p *worker) (counted context.Context, release func()) {
	load := budget.NewContext(ctx, c.opt.Budget, c.owner(p))
	return load, load.Grant.Release
}

// failed logs errors of socket handlers that are not sent to the peer.
func (c *Channel) failed(s *socketio.Socket, err error) {
	e := c.log.Error().Err(err)
	if s != nil {
		if p, ok := s.Principal().(*worker); ok {
			e = e.Str("worker_id", p.WorkerID)
		}
	}
	e.Msg("socket handler failed")
}

// refused logs each call that returned an error.
func (c *Channel) refused(ctx context.Context, method string, err *rpc.Error) {
	e := c.log.Debug()
	if err.Code == rpc.CodeInternal {
		e = c.log.Error().AnErr("cause", errors.Unwrap(err))
	}
	if p, ok := rpc.PrincipalFrom(ctx).(*worker); ok {
		e = e.Str("worker_id", p.WorkerID)
	}
	e.Str("method", method).Str("code", err.Code).Msg(err.Message)
}
