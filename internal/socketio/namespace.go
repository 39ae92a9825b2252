package socketio

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
)

// ConnectRequest is a client's request to join a namespace.
type ConnectRequest struct {
	Namespace string
	Auth      json.RawMessage // the auth object as sent, or empty; a secret: never log it
	HTTP      *http.Request   // the request that opened the connection, without a body
}

// String contains the namespace without the auth object, which is a secret.
func (r *ConnectRequest) String() string { return "CONNECT " + r.Namespace }

// GoString is String, so that no formatting verb shows the secret.
func (r *ConnectRequest) GoString() string { return r.String() }

// Namespace is a Socket.IO namespace of a Server. A client whose CONNECT OnConnect accepts becomes a Socket.
type Namespace struct {
	server  *Server
	name    string
	connect func(context.Context, *ConnectRequest) (any, error)
	open    func(*Socket)

	mu      sync.Mutex // guards the fields below, and the rooms of every socket of the namespace
	sockets map[string]*Socket
	rooms   map[string]map[*Socket]struct{}
}

// OnConnect sets the function that accepts sockets. It returns the principal of the new socket, or an error: a
// [*ConnectError] is sent to the client; for any other error the client receives the reason "internal", and
// Options.Failed the error. ctx ends with the connection and with its connect deadline. Without OnConnect all sockets
// are accepted.
func (n *Namespace) OnConnect(decide func(ctx context.Context, r *ConnectRequest) (principal any, err error)) {
	n.connect = decide
}

// OnSocket sets a function that is called for every new socket, on its own goroutine, to register handlers and join
// rooms. Events that arrive before it returns are delivered afterwards.
func (n *Namespace) OnSocket(open func(s *Socket)) { n.open = open }

// Name returns the name, beginning with a slash.
func (n *Namespace) Name() string { return n.name }

// Sockets returns the current sockets that are in one of the rooms; without rooms, all.
func (n *Namespace) Sockets(rooms ...string) []*Socket {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(rooms) == 1 {
		found := make([]*Socket, 0, len(n.rooms[rooms[0]]))
		for s := range n.rooms[rooms[0]] {
			found = append(found, s)
		}
		return found
	}
	found := make([]*Socket, 0, len(n.sockets))
	for _, s := range n.sockets {
		if len(rooms) == 0 || inAny(s, rooms) {
			found = append(found, s)
		}
	}
	return found
}

func inAny(s *Socket, rooms []string) bool {
	for _, room := range rooms {
		if _, in := s.rooms[room]; in {
			return true
		}
	}
	return false
}

// Room selects the receivers of a broadcast.
type Room struct {
	namespace *Namespace
	names     []string
}

// To selects rooms for a broadcast. A socket in several of them receives the event once.
func (n *Namespace) To(rooms ...string) Room { return Room{namespace: n, names: rooms} }

// Emit sends an event to every socket of the rooms. It encodes the event once. Peers with full queues delay it for at
// most one second in all and are disconnected. An error means only that args cannot be encoded.
func (r Room) Emit(event string, args ...any) error {
	if len(r.names) == 0 {
		return nil
	}
	return r.namespace.broadcast(r.namespace.Sockets(r.names...), event, args)
}

// Emit sends an event to every socket of the namespace.
func (n *Namespace) Emit(event string, args ...any) error {
	return n.broadcast(n.Sockets(), event, args)
}

func (n *Namespace) broadcast(to []*Socket, event string, args []any) error {
	if len(to) == 0 {
		return nil
	}
	frames, err := encodeArgs(packetEvent, n.name, 0, false, &event, args)
	if err != nil {
		return err
	}
	if size(frames) > n.server.options.MaxPayload {
		return ErrPayloadTooLarge
	}
	until := enqueueDeadline() // one deadline for all peers: many slow peers delay a broadcast no longer than one
	for _, s := range to {
		// A socket that has ended in the meantime does not receive the event.
		_ = s.enqueue(frames, until)
	}
	return nil
}

func (n *Namespace) add(s *Socket) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed.Load() {
		return
	}
	n.sockets[s.id] = s
}

func (n *Namespace) remove(s *Socket) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sockets, s.id)
	for room := range s.rooms {
		n.leave(s, room)
	}
}

// join adds s to rooms, unless it has ended.
func (n *Namespace) join(s *Socket, rooms []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s.closed.Load() {
		return
	}
	if s.rooms == nil {
		s.rooms = map[string]struct{}{}
	}
	for _, room := range rooms {
		s.rooms[room] = struct{}{}
		if n.rooms[room] == nil {
			n.rooms[room] = map[*Socket]struct{}{}
		}
		n.rooms[room][s] = struct{}{}
	}
}

// leave removes s from room; the caller holds mu.
func (n *Namespace) leave(s *Socket, room string) {
	delete(s.rooms, room)
	delete(n.rooms[room], s)
	if len(n.rooms[room]) == 0 {
		delete(n.rooms, room)
	}
}
