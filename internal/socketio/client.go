package socketio

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorilla/websocket"

	"github.com/sojourn-run/sojourn/internal/budget"
	"github.com/sojourn-run/sojourn/internal/mask"
)

// DefaultPath is the default path of a server below its base URL.
const DefaultPath = "/api/socket.io/"

// DialOptions configure a client. The zero value of each field means its default.
type DialOptions struct {
	Path   string      // path below that of the URL; default DefaultPath
	Header http.Header // headers of the handshake request
	TLS    *tls.Config
	// NetDial opens the TCP connection, for tests and proxies; nil: the default dialer.
	NetDial func(ctx context.Context, network, address string) (net.Conn, error)

	ConnectTimeout time.Duration // maximum duration of Dial
	WriteTimeout   time.Duration
	MaxPayload     int // maximum size of a received frame in bytes
	MaxQueue       int
	MaxQueueBytes  int
	MaxHandlers    int
	MaxAttachments int

	// OnSocket registers handlers before the first event is accepted. A handler registered after Dial has returned may
	// miss events.
	OnSocket func(s *Socket)
	// Failed is called for panics of handlers.
	Failed func(s *Socket, err error)
}

// Client is a Socket together with its own connection. It does not reconnect: call Dial again after Done is closed.
type Client struct {
	*Socket
	conn *clientConn
}

// Wait returns when the connection and all its goroutines, including handlers, have ended.
func (c *Client) Wait(ctx context.Context) error {
	select {
	case <-c.conn.ctx.Done():
		return c.conn.group.wait(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Dial connects to namespace at base, an http, https, ws or wss URL such as "http://127.0.0.1:7700", over a websocket.
// auth is marshalled as the auth object; nil sends none. If the namespace rejects the CONNECT, the error is a
// [*ConnectError]. ctx applies only to Dial, not to the connection.
func Dial(ctx context.Context, base, namespace string, auth any, options DialOptions) (*Client, error) {
	target, err := endpoint(base, options.Path)
	if err != nil {
		return nil, err
	}
	limits := Options{
		ConnectTimeout: options.ConnectTimeout, WriteTimeout: options.WriteTimeout, MaxPayload: options.MaxPayload,
		MaxQueue: options.MaxQueue, MaxQueueBytes: options.MaxQueueBytes, MaxHandlers: options.MaxHandlers,
		MaxAttachments: options.MaxAttachments,
	}.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, limits.ConnectTimeout)
	defer cancel()
	dialer := websocket.Dialer{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: options.TLS, NetDialContext: options.NetDial,
		WriteBufferPool: &clientBuffers, WriteBufferSize: 4096,
	}
	ws, response, err := dialer.DialContext(ctx, target, options.Header) //nolint:bodyclose // the dialer has closed it
	if err != nil {
		var plain tls.RecordHeaderError
		switch {
		case response != nil && (response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusOK):
			return nil, fmt.Errorf("the server at %s is not a Sojourn app: %w (HTTP %d)", mask.URL(base), err,
				response.StatusCode)
		case response != nil:
			return nil, fmt.Errorf("dial %s: %w (HTTP %d)", mask.URL(base), err, response.StatusCode)
		case errors.As(err, &plain):
			return nil, fmt.Errorf("the app at %s speaks plain HTTP; use http://", mask.URL(base))
		}
		return nil, fmt.Errorf("dial %s: %w", mask.URL(base), err)
	}
	ws.SetReadLimit(int64(limits.MaxPayload))
	c := newClientConn(ws, limits, options.Failed)
	// Cancelling ctx ends the reads and writes of the handshake.
	stop := context.AfterFunc(ctx, func() { _ = ws.Close() })
	socket, err := c.join(namespace, auth, limits)
	if !stop() || err != nil {
		c.closeWith(ErrClosed)
		if err == nil || ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("join %s at %s: %w", namespace, mask.URL(base), err)
	}
	c.group.run(c.read)
	// Call the hook after the reader has started, so that the hook can wait for acknowledgements.
	socket.acceptEvents(options.OnSocket)
	return &Client{Socket: socket, conn: c}, nil
}

// endpoint returns the websocket URL for a base URL with the scheme http, https, ws or wss and an optional path.
func endpoint(base, path string) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", fmt.Errorf("invalid server URL: %s", mask.URL(err.Error())) // the error contains the URL
	}
	switch u.Scheme {
	case "http", "ws":
		u.Scheme = "ws"
	case "https", "wss":
		u.Scheme = "wss"
	default:
		return "", fmt.Errorf("invalid server URL %q: the scheme must be http, https, ws or wss", mask.URL(base))
	}
	if path == "" {
		path = DefaultPath
	}
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + strings.TrimPrefix(path, "/")
	u.RawQuery = "EIO=4&transport=websocket"
	return u.String(), nil
}

// clientBuffers is a pool of write buffers, so that idle clients have none.
var clientBuffers sync.Pool

// clientConn is the connection of a client, with one socket. It implements wire, as conn does for the server.
type clientConn struct {
	ws      *websocket.Conn
	out     outbox
	group   group
	onFail  func(*Socket, error)
	parts   assembler // used only by the reader
	silence time.Duration
	socket  *Socket
	ctx     context.Context
	cancel  context.CancelCauseFunc
	ended   atomic.Bool
}

func newClientConn(ws *websocket.Conn, limits Options, onFail func(*Socket, error)) *clientConn {
	c := &clientConn{
		ws: ws, onFail: onFail, parts: assembler{
			maxAttachments: limits.MaxAttachments, maxBytes: func() int { return limits.MaxPayload },
		},
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.out = outbox{
		maxPackets: limits.MaxQueue, maxBytes: limits.MaxQueueBytes, writeTimeout: limits.WriteTimeout,
		run: c.group.run, failed: c.closeWith, wake: make(chan struct{}, 1), ws: ws,
	}
	return c
}

// join performs both handshakes and returns the socket, which does not handle events yet.
func (c *clientConn) join(namespace string, auth any, limits Options) (*Socket, error) {
	var terms struct {
		PingInterval int `json:"pingInterval"`
		PingTimeout  int `json:"pingTimeout"`
		MaxPayload   int `json:"maxPayload"`
	}
	_, text, _, err := readMessage(c.ws, c.parts.maxBytes, nil)
	if err != nil {
		return nil, err
	}
	if len(text) == 0 || text[0] != engineOpen || json.Unmarshal(text[1:], &terms) != nil {
		return nil, fmt.Errorf("%w: no open packet", ErrProtocol)
	}
	if terms.MaxPayload <= 0 {
		terms.MaxPayload = limits.MaxPayload
	}
	c.silence = time.Duration(terms.PingInterval+terms.PingTimeout) * time.Millisecond
	if c.silence <= 0 {
		c.silence = DefaultPingInterval + DefaultPingTimeout
	}
	hello, err := encodeObject(packetConnect, namespace, auth)
	if err != nil {
		return nil, fmt.Errorf("auth object: %w", err)
	}
	if err := c.out.enqueue(hello, enqueueDeadline()); err != nil {
		return nil, err
	}
	for {
		p, err := c.next()
		switch {
		case err != nil:
			return nil, err
		case p == nil || p.namespace != namespace:
		case p.kind == packetConnectError:
			return nil, connectError(p.data)
		case p.kind == packetConnect:
			var joined struct {
				SID string `json:"sid"`
			}
			if json.Unmarshal(p.data, &joined) != nil || joined.SID == "" {
				return nil, fmt.Errorf("%w: CONNECT without a sid", ErrProtocol)
			}
			c.socket = newSocket(joined.SID, namespace, c, limits.MaxHandlers, terms.MaxPayload)
			return c.socket, nil
		default:
			return nil, fmt.Errorf("%w: packet of type %c before CONNECT", ErrProtocol, p.kind)
		}
	}
}

// connectError reads a CONNECT_ERROR.
func connectError(data []byte) *ConnectError {
	var body struct {
		Message string         `json:"message"`
		Data    map[string]any `json:"data"`
	}
	if json.Unmarshal(data, &body) != nil {
		return &ConnectError{Message: "refused"}
	}
	e := &ConnectError{Message: body.Message}
	e.Reason, _ = body.Data["reason"].(string)
	delete(body.Data, "reason")
	if len(body.Data) > 0 {
		e.Data = body.Data
	}
	return e
}

// next reads one frame. The packet is nil for an Engine.IO packet, and while attachments are missing.
func (c *clientConn) next() (*packet, error) {
	kind, data, _, err := readMessage(c.ws, c.parts.maxBytes, nil)
	if err != nil {
		return nil, err
	}
	if kind == websocket.BinaryMessage {
		return c.parts.binary(data)
	}
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: empty frame", ErrProtocol)
	}
	switch data[0] {
	case engineMessage:
		return c.parts.text(data[1:])
	case enginePing:
		return nil, c.out.enqueue([]frame{{data: []byte{enginePong}}}, enqueueDeadline())
	case engineClose:
		return nil, ErrPeerClosed
	case engineNoop, enginePong:
		return nil, nil
	}
	return nil, fmt.Errorf("%w: unknown Engine.IO packet", ErrProtocol)
}

// read reads frames until the connection ends. Since servers send pings, it ends the connection if no frame arrives
// within ping interval plus ping timeout.
func (c *clientConn) read() {
	for {
		if err := c.ws.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
			c.closeWith(readCause(err))
			return
		}
		p, err := c.next()
		if err != nil {
			c.closeWith(clientCause(err))
			return
		}
		if p == nil || p.namespace != c.socket.namespace {
			continue
		}
		if err := c.socket.handle(p); err != nil {
			c.closeWith(err)
			return
		}
	}
}

func clientCause(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return ErrPingTimeout
	}
	for _, known := range []error{ErrProtocol, ErrPayloadTooLarge, ErrPeerClosed, ErrSlowPeer, ErrClosed} {
		if errors.Is(err, known) {
			return err
		}
	}
	return readCause(err)
}

// closeWith ends the connection. Further calls have no effect.
func (c *clientConn) closeWith(cause error) {
	if !c.ended.CompareAndSwap(false, true) {
		return
	}
	c.out.close()
	if c.socket != nil {
		c.socket.closeWith(cause, false)
	}
	closeWebsocket(c.ws, cause)
	c.cancel(cause)
}

// These are the methods of its connection that a Socket calls.

func (c *clientConn) enqueue(frames []frame, until time.Time) error {
	return c.out.enqueue(frames, until)
}

func (c *clientConn) offer(frames []frame, until time.Time) (bool, error) {
	return c.out.offer(frames, until)
}

func (c *clientConn) write() { c.out.write() }

func (c *clientConn) transferGrant() *budget.Grant { return nil }

func (c *clientConn) run(fn func()) { c.group.run(fn) }

// socketEnded closes the connection of its only socket after the queued packets are written.
func (c *clientConn) socketEnded(_ *Socket, cause error) { c.out.finish(cause) }

func (c *clientConn) failed(s *Socket, err error) {
	if c.onFail != nil {
		c.onFail(s, err)
	}
}

func (c *clientConn) busy() {}
