package socketio

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"
	"golang.org/x/time/rate"

	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/internal/connlimit"
)

// sink receives the messages of an Engine.IO session. text and binary are never called concurrently. ended is called
// exactly once, possibly concurrently with them.
type sink interface {
	text(data []byte) error
	binary(data []byte) error
	ended(cause error)
}

// session is one Engine.IO connection of the server, over long polling, a websocket, or first polling and then a
// websocket.
type session struct {
	server  *Server
	id      string
	request *http.Request // of the handshake, without its body
	sink    sink
	ctx     context.Context // its cause is the reason why the session ended
	cancel  context.CancelCauseFunc
	limiter *rate.Limiter
	out     outbox
	ended   atomic.Bool
	joined  atomic.Bool // it is in a namespace; always true for plain Engine.IO
	opened  time.Time   // time at which its connection was accepted

	readMu sync.Mutex    // held while the sink processes a packet
	grant  *budget.Grant // memory grant of that packet; guarded by readMu

	mu sync.Mutex // guards the fields below
	// places of the session and of its TCP connection in the limit, while it is in no namespace
	places      []*connlimit.Place
	owner       budget.Owner
	beat        *time.Timer
	pinged      bool          // a ping was sent and not answered
	pingAt      time.Time     // time of the next ping
	pingedAt    time.Time     // time of the last ping
	packetSeen  bool          // a packet was received since that ping
	polling     bool          // a GET is waiting
	pollArrived chan struct{} // closed when a poll arrives; nil if no goroutine waits for one
	posting     bool          // a POST is being read
	upgrading   bool          // a websocket has connected
	probed      bool          // the websocket has answered the probe, so polls are ended
	onWebsocket bool          // the websocket has replaced polling
}

func newSession(server *Server, request *http.Request) *session {
	o := &server.options
	s := &session{server: server, id: randomID(), limiter: rate.NewLimiter(rate.Limit(o.Rate), o.Burst)}
	s.request = request.Clone(context.Background())
	s.request.Body = nil
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.out = outbox{
		maxPackets: o.MaxQueue, maxBytes: o.MaxQueueBytes, writeTimeout: o.WriteTimeout,
		run: server.group.run, failed: s.closeWith, wake: make(chan struct{}, 1),
	}
	s.opened = time.Now()
	if at := connlimit.Accepted(request.Context()); !at.IsZero() {
		s.opened = at
	}
	s.places = []*connlimit.Place{server.unjoined.Add(o.Address(request), func() { s.closeWith(ErrTooManyUnjoined) })}
	s.sink = server.newSink(s)
	s.mu.Lock()
	s.pingAt = time.Now().Add(o.PingInterval)
	s.beat = time.AfterFunc(o.PingInterval, s.heartbeat)
	s.mu.Unlock()
	return s
}

// useConnection records the TCP connection of a request of the session. It counts as authenticated if the session is.
func (s *session) useConnection(r *http.Request) {
	place := connlimit.From(r.Context())
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.joined.Load():
		place.Leave()
	case !s.ended.Load() && websocket.IsWebSocketUpgrade(r):
		s.places = append(s.places, place)
	}
}

// setJoined records whether the session is in a namespace.
func (s *session) setJoined(joined bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.joined.Swap(joined) == joined {
		return
	}
	if joined {
		s.releasePlaces()
	} else if !s.ended.Load() {
		s.places = append(s.places, s.server.unjoined.Add(
			s.server.options.Address(s.request), func() { s.closeWith(ErrTooManyUnjoined) },
		))
	}
}

// releasePlaces frees the places of connections in no namespace. The caller holds mu.
func (s *session) releasePlaces() {
	for _, p := range s.places {
		p.Leave()
	}
	s.places = nil
}

// The memory charged for a large frame includes that for decoding and handling it.
const frameFactor = 4

// reserve acquires budget for a frame of unknown size after its first 16 KiB were read. It blocks until the budget has
// the bytes, and the peer is not read in the meantime. If the peer sends slowly and others need the bytes, the peer is
// disconnected.
func (s *session) reserve() (*budget.Grant, error) {
	o := &s.server.options
	if o.Budget == nil {
		return nil, nil
	}
	s.mu.Lock()
	owner := s.owner
	s.mu.Unlock()
	g, err := o.Budget.Acquire(s.ctx, owner, 2*int64(o.MaxPayload), budget.Reserved)
	if err != nil {
		return nil, err
	}
	g.MayBeCut(budget.CutFunc(func() { s.closeWith(ErrSlowPeer) }))
	return g, nil
}

// transferGrant transfers the grant of the packet that is being processed to the caller, which must release it.
func (s *session) transferGrant() *budget.Grant {
	g := s.grant
	s.grant = nil
	return g
}

// chargeTo charges the queued bytes of the session to an owner.
func (s *session) chargeTo(owner budget.Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owner == (budget.Owner{}) {
		s.owner = owner
		s.out.charge(s.server.options.Budget.Force(owner, 0))
	}
}

// maxPayload returns the current maximum size of a frame or a polling body.
func (s *session) maxPayload() int {
	if s.joined.Load() {
		return s.server.options.MaxPayload
	}
	return s.server.options.MaxUnjoinedPayload
}

// heartbeat sends a ping, or ends the session if no packet was received since the last ping.
func (s *session) heartbeat() {
	s.mu.Lock()
	if s.pinged && !s.packetSeen {
		s.mu.Unlock()
		s.closeWith(ErrPingTimeout)
		return
	}
	// The timeout begins when the ping was due, as in clients. If this process was paused, the ping is late and the peer
	// must not be disconnected for it.
	timeout := s.server.options.PingTimeout
	s.pinged, s.packetSeen, s.pingedAt = true, false, s.pingAt
	if time.Since(s.pingAt) > timeout/4 {
		s.pingedAt = time.Now()
	}
	s.beat.Reset(time.Until(s.pingedAt.Add(timeout)))
	s.mu.Unlock()
	// enqueue can only fail if the session has ended.
	_ = s.out.enqueue([]frame{{data: []byte{enginePing}}}, enqueueDeadline())
}

// alive records that a packet was received. Only a pong starts the next interval, since clients expect regular pings.
func (s *session) alive(pong bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packetSeen = true
	if pong && s.pinged && !s.ended.Load() {
		s.pinged = false
		s.pingAt = time.Now().Add(s.server.options.PingInterval)
		s.beat.Reset(s.server.options.PingInterval)
	}
}

// receive processes one Engine.IO packet; its error ends the session. If the peer exceeds its rate, receive blocks and
// so stops reading.
func (s *session) receive(f frame) error {
	if err := s.limiter.Wait(s.ctx); err != nil {
		f.grant.Release()
		return context.Cause(s.ctx)
	}
	s.readMu.Lock()
	defer s.readMu.Unlock()
	if s.ended.Load() {
		f.grant.Release()
		return context.Cause(s.ctx)
	}
	s.grant = f.grant
	defer func() { // unless a handler has acquired it
		s.grant.Release()
		s.grant = nil
	}()
	if f.binary {
		s.alive(false)
		return s.sink.binary(f.data)
	}
	if len(f.data) == 0 {
		return fmt.Errorf("%w: empty frame", ErrProtocol)
	}
	s.alive(f.data[0] == enginePong)
	switch f.data[0] {
	case engineMessage:
		return s.sink.text(f.data[1:])
	case enginePong, enginePing, engineNoop, engineUpgrade:
		return nil
	case engineClose:
		return ErrPeerClosed
	}
	return fmt.Errorf("%w: unknown Engine.IO packet", ErrProtocol)
}

// serve attaches ws as the session's transport and starts reading it.
func (s *session) serve(ws *websocket.Conn) {
	if !s.out.attach(ws) {
		closeWebsocket(ws, context.Cause(s.ctx))
		return
	}
	s.server.group.run(func() { s.read(ws) })
}

func (s *session) read(ws *websocket.Conn) {
	for {
		kind, data, grant, err := readMessage(ws, s.maxPayload, s.reserve)
		if err != nil {
			if errors.Is(err, errUnjoinedPayload) {
				// Send the close code that gorilla/websocket sends above its own limit, so that the peer receives the reason.
				message := websocket.FormatCloseMessage(websocket.CloseMessageTooBig, "")
				_ = ws.WriteControl(websocket.CloseMessage, message, time.Now().Add(time.Second))
			}
			if errors.Is(err, websocket.ErrReadLimit) || errors.Is(err, errUnjoinedPayload) {
				linger(ws, s.server.options.MaxPayload)
			}
			s.closeWith(readCause(err))
			return
		}
		if err := s.receive(frame{binary: kind == websocket.BinaryMessage, data: data, grant: grant}); err != nil {
			s.closeWith(err)
			return
		}
	}
}

// closeWith ends the session. Further calls have no effect. It waits at most a second to close the connection
// cleanly, and not at all for a peer that violated a limit.
func (s *session) closeWith(cause error) {
	if !s.ended.CompareAndSwap(false, true) {
		return
	}
	s.server.forget(s, cause) // before ctx ends, so that the counters include the end when others observe it
	s.cancel(cause)
	s.mu.Lock()
	s.beat.Stop()
	s.releasePlaces()
	s.mu.Unlock()
	ws := s.out.close()
	s.sink.ended(cause)
	if ws != nil {
		closeWebsocket(ws, cause)
	}
}
