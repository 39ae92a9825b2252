package socketio

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/internal/connlimit"
)

// Options configure a [Server]. The zero value of each field means its default.
type Options struct {
	Transports []string // "websocket", "polling"; empty: both
	Origins    []string // allowed browser origins besides the server's own host, such as "https://host"; "*" allows all
	// Admit is called first for every request: handshakes, polls, posts and upgrades. If it returns false the response
	// is 403. nil: all requests are admitted.
	Admit func(*http.Request) bool

	PingInterval   time.Duration // time from a pong to the next ping
	PingTimeout    time.Duration // maximum time from a ping to its pong
	ConnectTimeout time.Duration // maximum time from accepting a connection to its first namespace, and for each upgrade
	WriteTimeout   time.Duration // maximum time for writing one packet

	MaxPayload int // bytes of one frame, one polling body, and one packet with its attachments
	// MaxUnjoinedPayload replaces MaxPayload while a connection is in no namespace: before its first CONNECT is
	// accepted, and after it left its last namespace.
	MaxUnjoinedPayload int
	// MaxUnjoined is the maximum of connections in no namespace. Above it, the server closes the oldest such connection
	// of the address with the most of them.
	MaxUnjoined int
	Address     func(*http.Request) string // address of the client; nil: that of the TCP peer

	MaxQueue       int     // packets queued for one peer; above it the peer is disconnected
	MaxQueueBytes  int     // bytes queued for one peer
	MaxHandlers    int     // concurrent handlers of one socket; above it events are rejected with the code "busy"
	MaxAttachments int     // binary attachments of one packet
	MaxConnections int     // above it the response to a handshake is 503
	Rate           float64 // packets per second that are read from one connection
	Burst          int     // packets above that rate; 0: the packets of one second

	MaxSocketsPerKey int                        // sockets of principals with the same key; 0: no limit
	PrincipalKey     func(principal any) string // key for MaxSocketsPerKey, such as the ID of a token; "": not counted

	// Budget limits the bytes in flight: frames above 16 KiB until their handler has acked them, and packets queued for
	// peers. nil: no limit.
	Budget *budget.Budget
	Owner  func(principal any) budget.Owner // owner of the bytes

	// Failed is called for errors that are not sent to a peer: panics of handlers, and errors of OnConnect that are not
	// a ConnectError. The socket is nil for the latter. Auth objects are never part of the error.
	Failed func(s *Socket, err error)
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.PingInterval, DefaultPingInterval)
	def(&o.PingTimeout, DefaultPingTimeout)
	def(&o.ConnectTimeout, DefaultConnectTimeout)
	def(&o.WriteTimeout, DefaultWriteTimeout)
	num := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	num(&o.MaxPayload, DefaultMaxPayload)
	num(&o.MaxUnjoinedPayload, min(DefaultMaxUnjoinedPayload, o.MaxPayload))
	num(&o.MaxUnjoined, DefaultMaxUnjoined)
	if o.Address == nil {
		o.Address = func(r *http.Request) string {
			if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
				return host
			}
			return r.RemoteAddr
		}
	}
	num(&o.MaxQueue, DefaultMaxQueue)
	num(&o.MaxQueueBytes, DefaultMaxQueueBytes)
	num(&o.MaxHandlers, DefaultMaxHandlers)
	num(&o.MaxAttachments, DefaultMaxAttachments)
	num(&o.MaxConnections, DefaultMaxConnections)
	if o.Rate <= 0 {
		o.Rate = DefaultRate
	}
	num(&o.Burst, max(1, int(o.Rate)))
	return o
}

// Server is the http.Handler of the whole Socket.IO endpoint. It ignores the path and reads the query, so mount it at
// the path that clients use. The http.Server may have any write timeout.
type Server struct {
	options  Options
	upgrader websocket.Upgrader
	group    group
	newSink  func(*session) sink
	counts   counters
	unjoined connlimit.Limit // limits the connections in no namespace

	mu         sync.Mutex // guards the fields below
	closing    bool
	namespaces map[string]*Namespace
	sessions   map[string]*session
	keys       map[string]int // sockets by principal key
}

type counters struct {
	slow, silent, protocol, tooLarge, late, unknownNamespace, refused, busy, failures atomic.Int64
}

// Stats are counts of a Server: current connections, and refusals and disconnections since the start.
type Stats struct {
	Connections       int
	Sockets           map[string]int // by namespace
	CutSlow           int64          // peers that did not read
	CutSilent         int64          // peers that sent no pong within PingTimeout
	CutProtocol       int64          // peers that violated the protocol
	CutTooLarge       int64          // peers that sent more than MaxPayload
	CutLate           int64          // peers that joined no namespace within ConnectTimeout
	CutUnjoined       int64          // peers in no namespace, closed for newer ones
	Unjoined          int            // connections in no namespace
	UnknownNamespaces int64          // CONNECTs to namespaces that do not exist
	RefusedConnects   int64          // CONNECTs rejected by OnConnect or by MaxSocketsPerKey
	RefusedBusy       int64          // events rejected because of MaxHandlers
	Failures          int64          // handlers that panicked or returned an ack that cannot be encoded
}

// NewServer returns a server without namespaces; see [Server.Of].
func NewServer(options Options) *Server {
	s := &Server{
		options: options.withDefaults(), namespaces: map[string]*Namespace{}, sessions: map[string]*session{},
		keys: map[string]int{},
	}
	s.unjoined.Max = s.options.MaxUnjoined
	s.upgrader = websocket.Upgrader{
		HandshakeTimeout: s.options.ConnectTimeout,
		WriteBufferPool:  &sync.Pool{}, // so that idle connections have no write buffer
		WriteBufferSize:  4096,
		CheckOrigin:      func(*http.Request) bool { return true }, // admitOrigin checks it for both transports
	}
	s.newSink = func(session *session) sink { return newConn(s, session) }
	return s
}

// Of returns the namespace with a name and creates it at the first call. Set its callbacks before serving.
func (s *Server) Of(name string) *Namespace {
	s.mu.Lock()
	defer s.mu.Unlock()
	ns := s.namespaces[name]
	if ns == nil {
		ns = &Namespace{server: s, name: name, sockets: map[string]*Socket{}, rooms: map[string]map[*Socket]struct{}{}}
		s.namespaces[name] = ns
	}
	return ns
}

func (s *Server) namespace(name string) *Namespace {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.namespaces[name]
}

// addSession registers a session, unless the server is full or closing.
func (s *Server) addSession(session *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || len(s.sessions) >= s.options.MaxConnections {
		return false
	}
	s.sessions[session.id] = session
	return true
}

func (s *Server) find(id string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id]
}

// forget removes an ended session and counts the reason of its end.
func (s *Server) forget(session *session, cause error) {
	s.mu.Lock()
	delete(s.sessions, session.id)
	s.mu.Unlock()
	for _, c := range []struct {
		cause error
		count *atomic.Int64
	}{
		{ErrSlowPeer, &s.counts.slow},
		{ErrPingTimeout, &s.counts.silent},
		{ErrProtocol, &s.counts.protocol},
		{ErrPayloadTooLarge, &s.counts.tooLarge},
		{ErrConnectTimeout, &s.counts.late},
	} {
		if errors.Is(cause, c.cause) {
			c.count.Add(1)
			return
		}
	}
}

// acquireKey counts a socket for MaxSocketsPerKey and returns a function that ends this; false if the limit is reached.
func (s *Server) acquireKey(principal any) (release func(), ok bool) {
	if s.options.MaxSocketsPerKey <= 0 || s.options.PrincipalKey == nil {
		return func() {}, true
	}
	key := s.options.PrincipalKey(principal)
	if key == "" {
		return func() {}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[key] >= s.options.MaxSocketsPerKey {
		return nil, false
	}
	s.keys[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.keys[key]--; s.keys[key] == 0 {
			delete(s.keys, key)
		}
	}, true
}

func (s *Server) failed(socket *Socket, err error) {
	if s.options.Failed != nil {
		s.options.Failed(socket, err)
	}
}

// Stats returns the current counts.
func (s *Server) Stats() Stats {
	c := &s.counts
	stats := Stats{
		Sockets: map[string]int{}, CutSlow: c.slow.Load(), CutSilent: c.silent.Load(), CutProtocol: c.protocol.Load(),
		CutTooLarge: c.tooLarge.Load(), CutLate: c.late.Load(), UnknownNamespaces: c.unknownNamespace.Load(),
		RefusedConnects: c.refused.Load(), RefusedBusy: c.busy.Load(), Failures: c.failures.Load(),
	}
	stats.Unjoined, stats.CutUnjoined = s.unjoined.Count()
	s.mu.Lock()
	stats.Connections = len(s.sessions)
	namespaces := make([]*Namespace, 0, len(s.namespaces))
	for _, ns := range s.namespaces {
		namespaces = append(namespaces, ns)
	}
	s.mu.Unlock()
	for _, ns := range namespaces {
		stats.Sockets[ns.name] = len(ns.Sockets())
	}
	return stats
}

// Close rejects new connections, writes queued packets, and closes every connection in a way that makes clients
// reconnect (close code 1001, no DISCONNECT). It waits for all handlers and goroutines of the server. If ctx ends first
// it returns the error of ctx; the connections are closed in that case too. Close can be called again.
func (s *Server) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closing = true
	sessions := make([]*session, 0, len(s.sessions))
	for _, session := range s.sessions {
		sessions = append(sessions, session)
	}
	s.mu.Unlock()
	for _, session := range sessions {
		session.out.finish(ErrServerClosed)
	}
	err := s.group.wait(ctx)
	for _, session := range sessions {
		session.closeWith(ErrServerClosed)
	}
	return err
}

// randomID returns 120 random bits as text. The ID is a secret: a request that contains it acts for the session.
func randomID() string {
	var b [15]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}
