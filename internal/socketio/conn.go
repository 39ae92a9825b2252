package socketio

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/budget"
)

// maxStrikes is the maximum number of refused CONNECTs of one connection.
const maxStrikes = 8

// conn is the Socket.IO layer of one connection of the server: it passes packets to the sockets of the namespaces that
// the connection has joined.
type conn struct {
	server  *Server
	session *session
	parts   assembler // guarded by the session's readMu

	mu             sync.Mutex // guards the fields below
	sockets        map[string]*Socket
	joining        map[string]struct{}
	leftNamespaces map[string]struct{} // packets for left namespaces are ignored, since they may have been sent before
	strikes        int
	closed         bool
	deadline       *time.Timer // closes the connection if it is in no namespace
}

func newConn(server *Server, session *session) *conn {
	o := &server.options
	c := &conn{
		server: server, session: session, parts: assembler{maxAttachments: o.MaxAttachments, maxBytes: session.maxPayload},
		sockets: map[string]*Socket{}, joining: map[string]struct{}{}, leftNamespaces: map[string]struct{}{},
	}
	c.mu.Lock()
	c.deadline = time.AfterFunc(time.Until(session.opened.Add(o.ConnectTimeout)), c.connectTimeout)
	c.mu.Unlock()
	return c
}

// connectTimeout closes the connection if it is in no namespace when ConnectTimeout has passed.
func (c *conn) connectTimeout() {
	c.mu.Lock()
	joinedNone := len(c.sockets) == 0 && !c.closed
	c.mu.Unlock()
	if joinedNone {
		c.session.closeWith(ErrConnectTimeout)
	}
}

func (c *conn) text(data []byte) error {
	p, err := c.parts.text(data)
	return c.handle(p, err)
}

func (c *conn) binary(data []byte) error {
	p, err := c.parts.binary(data)
	return c.handle(p, err)
}

func (c *conn) handle(p *packet, err error) error {
	if err != nil || p == nil {
		return err
	}
	if p.kind == packetConnect {
		return c.connect(p)
	}
	c.mu.Lock()
	s := c.sockets[p.namespace]
	_, left := c.leftNamespaces[p.namespace]
	c.mu.Unlock()
	switch {
	case s != nil:
		return s.handle(p)
	case left:
		return nil
	}
	return fmt.Errorf("%w: packet for a namespace that the connection has not joined", ErrProtocol)
}

// connect joins a namespace in its own goroutine, so that a slow OnConnect does not delay other packets of the
// connection.
func (c *conn) connect(p *packet) error {
	ns := c.server.namespace(p.namespace)
	if ns == nil {
		c.server.counts.unknownNamespace.Add(1)
		return c.refuse(p.namespace, &ConnectError{Message: "Invalid namespace"}, ErrUnknownNamespace)
	}
	c.mu.Lock()
	_, joining := c.joining[p.namespace]
	if joining || c.sockets[p.namespace] != nil {
		c.mu.Unlock()
		return fmt.Errorf("%w: second CONNECT to one namespace", ErrProtocol)
	}
	c.joining[p.namespace] = struct{}{}
	c.mu.Unlock()
	request := &ConnectRequest{Namespace: ns.name, Auth: p.data, HTTP: c.session.request}
	c.server.group.run(func() {
		if err := c.join(ns, request); err != nil {
			c.session.closeWith(err)
		}
	})
	return nil
}

// join calls OnConnect and creates the socket. Its error ends the connection.
func (c *conn) join(ns *Namespace, request *ConnectRequest) error {
	principal, err := c.decide(ns, request)
	if err == nil {
		release, ok := c.server.acquireKey(principal)
		if ok {
			return c.joined(ns, principal, release)
		}
		err = &ConnectError{Message: "too many connections", Reason: "too_many_connections"}
	}
	c.server.counts.refused.Add(1)
	var refusal *ConnectError
	if !errors.As(err, &refusal) {
		c.server.failed(nil, fmt.Errorf("connect to %s: %w", ns.name, err))
		refusal = &ConnectError{Message: "internal error", Reason: "internal"}
	}
	c.mu.Lock()
	delete(c.joining, ns.name)
	c.mu.Unlock()
	return c.refuse(ns.name, refusal, ErrProtocol)
}

func (c *conn) decide(ns *Namespace, request *ConnectRequest) (principal any, err error) {
	if ns.connect == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(c.session.ctx, c.server.options.ConnectTimeout)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			c.server.counts.failures.Add(1)
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return ns.connect(ctx, request)
}

func (c *conn) joined(ns *Namespace, principal any, release func()) error {
	o := &c.server.options
	s := newSocket(randomID(), ns.name, c, o.MaxHandlers, o.MaxPayload)
	s.principal, s.request, s.space, s.release = principal, c.session.request, ns, release
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		s.closeWith(context.Cause(c.session.ctx), false)
		return nil
	}
	delete(c.joining, ns.name)
	c.sockets[ns.name] = s
	c.deadline.Stop()
	c.session.setJoined(true)
	if o.Budget != nil && o.Owner != nil {
		c.session.chargeTo(o.Owner(principal))
	}
	c.mu.Unlock()
	reply, err := encodeObject(packetConnect, ns.name, map[string]string{"sid": s.id})
	if err != nil {
		return err
	}
	if err := s.enqueue(reply, enqueueDeadline()); err != nil {
		return err
	}
	ns.add(s)
	s.acceptEvents(ns.open)
	return nil
}

// refuse sends a CONNECT_ERROR. A client that exceeds maxStrikes is disconnected with cause.
func (c *conn) refuse(namespace string, refusal *ConnectError, cause error) error {
	body := map[string]any{"message": refusal.Message}
	if refusal.Reason != "" || len(refusal.Data) > 0 {
		data := map[string]any{}
		for k, v := range refusal.Data {
			data[k] = v
		}
		data["reason"] = refusal.Reason
		body["data"] = data
	}
	frames, err := encodeObject(packetConnectError, namespace, body)
	if err != nil {
		return err
	}
	if err := c.session.out.enqueue(frames, enqueueDeadline()); err != nil {
		return err
	}
	c.mu.Lock()
	c.strikes++
	tooMany := c.strikes > maxStrikes
	c.mu.Unlock()
	if tooMany {
		return fmt.Errorf("%w: %d rejected CONNECTs", cause, maxStrikes+1)
	}
	return nil
}

// ended notifies every socket that the connection has ended.
func (c *conn) ended(cause error) {
	c.mu.Lock()
	c.closed = true
	c.deadline.Stop()
	sockets := make([]*Socket, 0, len(c.sockets))
	for _, s := range c.sockets {
		sockets = append(sockets, s)
	}
	c.mu.Unlock()
	for _, s := range sockets {
		s.closeWith(cause, false)
	}
}

// These are the methods of its connection that a Socket calls.

func (c *conn) enqueue(frames []frame, until time.Time) error {
	return c.session.out.enqueue(frames, until)
}

func (c *conn) offer(frames []frame, until time.Time) (bool, error) {
	return c.session.out.offer(frames, until)
}

func (c *conn) write() { c.session.out.write() }

func (c *conn) transferGrant() *budget.Grant { return c.session.transferGrant() }

func (c *conn) run(fn func()) { c.server.group.run(fn) }

func (c *conn) failed(s *Socket, err error) {
	c.server.counts.failures.Add(1)
	c.server.failed(s, err)
}

func (c *conn) busy() { c.server.counts.busy.Add(1) }

// socketEnded removes a socket that left its namespace. A connection without sockets closes after ConnectTimeout unless
// a new socket joins.
func (c *conn) socketEnded(s *Socket, _ error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.sockets[s.namespace] != s {
		return
	}
	delete(c.sockets, s.namespace)
	c.leftNamespaces[s.namespace] = struct{}{}
	if len(c.sockets) == 0 {
		c.session.setJoined(false)
		c.deadline.Reset(c.server.options.ConnectTimeout)
	}
}
