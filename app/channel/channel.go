// Package channel is the app's Socket.IO endpoint: workers fetch settings and call the app's verbs over it, browsers
// hear hints.
//
// One table of methods serves sockets and the worker of the same process alike; see [Channel.Handlers] and
// [Channel.Join].
package channel

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/shared/rpc"
	"github.com/sojourn-run/sojourn/shared/socketio"
)

// Verbs are what the app does for workers. Refusals are *protocol.Error.
type Verbs interface {
	Register(context.Context, protocol.RegisterRequest) (protocol.RegisterAnswer, error)
	Deregister(context.Context, protocol.DeregisterRequest) (protocol.DeregisterAnswer, error)
	WorkerHeartbeat(context.Context, protocol.WorkerHeartbeat) (protocol.WorkerHeartbeatAnswer, error)
	Poll(context.Context, protocol.PollRequest) (protocol.PollAnswer, error)
	Complete(context.Context, protocol.CompleteRequest) (protocol.CompleteBatchAnswer, error)
	HeartbeatTask(context.Context, protocol.HeartbeatRequest) (protocol.HeartbeatAnswer, error)
	RecordLogs(context.Context, protocol.LogsRequest) (protocol.LogsAnswer, error)
	HistoryPage(context.Context, protocol.HistoryRequest) (protocol.HistoryPage, error)
	CreateSession(context.Context, protocol.SessionCreate) (protocol.SessionAnswer, error)
	HeartbeatSession(context.Context, protocol.SessionVerb) (protocol.SessionAnswer, error)
	ReleaseSession(context.Context, protocol.SessionVerb) (protocol.SessionAnswer, error)
	CloseSession(context.Context, protocol.SessionVerb) (protocol.SessionAnswer, error)
	// Reaches refuses the caller whom the context carries, when its token may not speak for the worker of that id.
	Reaches(ctx context.Context, namespace, worker string) error
	Release() string
}

// Authenticate says who presents a token, or, for a browser with an empty token, whose cookie r carries. An error keeps
// the caller out; it is told no more of it than its protocol.Reason, forbidden or else unauthorized. It is called again
// every minute for each connection, and when Recheck is: an error then ends it.
type Authenticate func(ctx context.Context, token string, r *http.Request) (principal any, err error)

// Options of a channel. Zero values mean the defaults named beside them.
type Options struct {
	Worker    Authenticate // of workers; must let nobody in who is not one. nil: everybody is let in
	Dashboard Authenticate // of browsers; nil: everybody is let in
	// Door refuses requests before anything of them is read, whatever they are for; nil: none.
	Door func(*http.Request) error
	// Still refuses a principal that may no longer do what it could when it was let in; nil: Worker and Dashboard are
	// asked again. It is asked at every call, so it has to be quick.
	Still func(ctx context.Context, principal any) error
	// Allow says whether a worker's principal may serve these queues of a namespace; nil: any.
	Allow func(principal any, namespace string, queues []string) error
	// Sees says whether a browser's principal may hear of a namespace; nil: of all.
	Sees func(principal any, namespace string) bool
	// Settings is asked for what workers are handed; the release is filled in. nil: the defaults.
	Settings func() protocol.WorkerSettings
	// Fleet is asked for what operators set for the workers of a namespace, and its revision; nil: nothing is set.
	Fleet func(namespace string) (protocol.FleetSettings, int64)
	// Hub is where hints and cancellations come from; nil: nowhere.
	Hub *dispatch.Hub

	Transports   []string      // of "websocket" and "polling"; nil: both
	Origins      []string      // of browsers, beside the own host
	PingInterval time.Duration // 10 s
	PingTimeout  time.Duration // 5 s
	Recheck      time.Duration // how often principals are looked at again: 1 min
	MaxPerToken  int           // sockets of one principal key; 0: no cap
	PrincipalKey func(principal any) string
	Log          zerolog.Logger
}

// Channel is the endpoint. Make it with New, end it with Close.
type Channel struct {
	verbs    Verbs
	opt      Options
	log      zerolog.Logger
	server   *socketio.Server
	workers  *socketio.Namespace
	browsers *socketio.Namespace
	handlers rpc.Handlers
	serving  rpc.Serving
	counts   counters
	recent   recentRounds

	life  context.Context // of what the channel does by itself
	end   context.CancelFunc
	tasks sync.WaitGroup

	mu      sync.Mutex // guards what follows
	local   map[*Peer]rpc.Handlers
	closing bool
}

type counters struct {
	malformedMachines, undone, staleCompletions, unacked, early atomic.Int64
}

// Stats are counts since the start.
type Stats struct {
	Socket            socketio.Stats
	MalformedMachines int64 // settings fetched with telemetry that is none
	Undone            int64 // polls whose answer was lost, so that their tasks went back
	StaleCompletions  int64 // outcomes that came too late and changed nothing
	UnackedNotices    int64 // notices a worker did not confirm in time
	EarlyCalls        int64 // calls before the settings were fetched
}

// New makes a channel in front of verbs and starts what listens to the hub.
func New(verbs Verbs, o Options) *Channel {
	c := &Channel{verbs: verbs, opt: o, log: o.Log, local: map[*Peer]rpc.Handlers{}}
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
	})
	c.handlers = c.table()
	c.serving = rpc.Serving{Failed: c.refused}
	c.workers = c.server.Of(protocol.NamespaceWorkers)
	c.workers.OnConnect(c.admitWorker)
	c.workers.OnSocket(c.openWorker)
	c.browsers = c.server.Of(protocol.NamespaceDashboard)
	c.browsers.OnConnect(c.admitBrowser)
	c.browsers.OnSocket(c.openBrowser)
	if o.Hub != nil {
		c.tasks.Go(c.spreadHints)
		c.tasks.Go(c.spreadCancels)
	}
	if o.Worker != nil || o.Dashboard != nil {
		c.tasks.Go(c.recheck)
	}
	return c
}

// ServeHTTP is the Socket.IO endpoint; mount it at protocol.ChannelPath, with and without a slash behind.
func (c *Channel) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.server.ServeHTTP(w, r) }

// admit asks the door.
func (c *Channel) admit(r *http.Request) bool {
	if c.opt.Door == nil {
		return true
	}
	err := c.opt.Door(r)
	if err != nil {
		c.log.Warn().Err(err).Str("remote", r.RemoteAddr).Msg("connection refused")
	}
	return err == nil
}

// Handlers is the table of methods. A call's principal must be a *Peer.
func (c *Channel) Handlers() rpc.Handlers { return c.handlers }

// Close ends every connection in a way that makes workers come back elsewhere, and waits for all that runs.
func (c *Channel) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closing = true
	c.mu.Unlock()
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

// Stats counts.
func (c *Channel) Stats() Stats {
	return Stats{
		Socket: c.server.Stats(), MalformedMachines: c.counts.malformedMachines.Load(), Undone: c.counts.undone.Load(),
		StaleCompletions: c.counts.staleCompletions.Load(), UnackedNotices: c.counts.unacked.Load(),
		EarlyCalls: c.counts.early.Load(),
	}
}

// key is what sockets of one token are capped by.
func (c *Channel) key(principal any) string {
	if c.opt.PrincipalKey == nil {
		return ""
	}
	switch p := principal.(type) {
	case *Peer:
		principal = p.Principal
	case *browser:
		principal = p.principal
	}
	return c.opt.PrincipalKey(principal)
}

// failed hears what a peer is not told.
func (c *Channel) failed(s *socketio.Socket, err error) {
	e := c.log.Error().Err(err)
	if s != nil {
		if p, ok := s.Principal().(*Peer); ok {
			e = e.Str("worker_id", p.WorkerID)
		}
	}
	e.Msg("socket handler")
}

// refused hears of every call that was answered with an error.
func (c *Channel) refused(ctx context.Context, method string, err *rpc.Error) {
	e := c.log.Debug()
	if err.Code == rpc.CodeInternal {
		e = c.log.Error().AnErr("cause", errors.Unwrap(err))
	}
	if p, ok := rpc.PrincipalFrom(ctx).(*Peer); ok {
		e = e.Str("worker_id", p.WorkerID)
	}
	e.Str("method", method).Str("code", err.Code).Msg(err.Message)
}

// Join makes the worker of this process a peer: what it calls goes to the same table without JSON, and notices go to
// its handlers. leave takes it out again. The principal of such a worker is the process itself.
func (c *Channel) Join(hello protocol.ChannelAuth, notices rpc.Handlers) (caller rpc.Caller, leave func(), err error) {
	p, err := newPeer(hello, nil)
	if err != nil {
		return nil, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return nil, nil, errors.New("the app is closing")
	}
	c.local[p] = notices
	return rpc.Local{Handlers: c.handlers, Principal: p}, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.local, p)
	}, nil
}

// openWorker sets up a new worker socket. Calls are answered with an error until the settings are fetched.
func (c *Channel) openWorker(s *socketio.Socket) {
	p, _ := s.Principal().(*Peer)
	s.Join(p.WorkerID, protocol.RoomWorkers)
	early := func(context.Context, []json.RawMessage) ([]any, error) {
		c.counts.early.Add(1)
		return []any{
			rpc.Failure(rpc.Errorf("settings_required", http.StatusConflict, "fetch the worker settings before the first call")),
		}, nil
	}
	s.On(rpc.EventCall, early)
	s.On(rpc.EventNotify, early)
	var once sync.Once
	s.On(protocol.EventFetchSettings, func(ctx context.Context, args []json.RawMessage) ([]any, error) {
		c.observe(ctx, p, args)
		once.Do(func() { rpc.Serve(s, c.handlers, c.serving) })
		return []any{c.WorkerSettings(p.Namespace)}, nil
	})
	c.log.Info().Str("worker_id", p.WorkerID).Msg("worker connected")
	context.AfterFunc(s.Context(), func() {
		c.log.Info().Str("worker_id", p.WorkerID).AnErr("cause", s.Err()).Msg("worker disconnected")
	})
}
