package socketio

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/internal/budget"
)

// wire is the connection under a Socket, of the server or of the client.
type wire interface {
	enqueue(frames []frame, until time.Time) error
	offer(frames []frame, until time.Time) (start bool, err error) // enqueue for a caller that can write the packet itself
	write()
	transferGrant() *budget.Grant       // memory grant of the packet that is being processed
	run(fn func())                      // starts a counted goroutine
	socketEnded(s *Socket, cause error) // called once when s has ended
	failed(s *Socket, err error)        // a handler panicked
	busy()                              // an event was rejected because of MaxHandlers
}

// Socket is one client in one namespace, seen from the server or from the client. All methods are safe for concurrent
// use, also after the socket has ended.
type Socket struct {
	id, namespace string
	wire          wire
	principal     any
	request       *http.Request
	space         *Namespace // nil on the client
	release       func()     // ends the count for MaxSocketsPerKey; nil on the client
	ctx           context.Context
	cancel        context.CancelCauseFunc
	closed        atomic.Bool
	running       atomic.Int64 // handlers
	maxHandlers   int64
	maxPayload    int                 // maximum size of a packet that the peer accepts, in bytes
	rooms         map[string]struct{} // guarded by space.mu

	mu       sync.Mutex // guards the fields below
	handlers map[string]entry
	fallback func(ctx context.Context, event string, args []json.RawMessage) ([]any, error)
	acks     map[uint64]chan []json.RawMessage
	lastAck  uint64

	startMu sync.Mutex // held while handlers are started, to preserve the order of events
	ready   bool
	waiting []incoming // events received before ready
}

// entry is a registered handler.
type entry struct {
	handler Handler
	inline  bool // runs on the reading goroutine
}

// incoming is a received event.
type incoming struct {
	event  string
	args   []json.RawMessage
	values []any // decoded args of an event with attachments
	id     uint64
	hasID  bool
	grant  *budget.Grant // memory grant of the event, released after its ack
}

func newSocket(id, namespace string, w wire, maxHandlers, maxPayload int) *Socket {
	s := &Socket{
		id: id, namespace: namespace, wire: w, maxHandlers: int64(maxHandlers), maxPayload: maxPayload,
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// ID returns the random ID of the socket, which is the same on both sides. A reconnected client has another ID.
func (s *Socket) ID() string { return s.id }

// Namespace returns the name of the socket's namespace.
func (s *Socket) Namespace() string { return s.namespace }

// Principal returns the result of OnConnect; nil on the client.
func (s *Socket) Principal() any { return s.principal }

// Request returns the HTTP request that opened the connection, without its body; nil on the client.
func (s *Socket) Request() *http.Request { return s.request }

// Context returns a context that is cancelled when the socket ends; its cause is the reason. Use context.AfterFunc for
// clean-up that must run once.
func (s *Socket) Context() context.Context { return s.ctx }

// Done is closed when the socket has ended.
func (s *Socket) Done() <-chan struct{} { return s.ctx.Done() }

// Err returns the reason for the socket's end, nil while it is open.
func (s *Socket) Err() error { return context.Cause(s.ctx) }

// On sets the handler of an event and replaces any previous one. Each call runs on its own goroutine, so a handler may
// block. The goroutines are started in the order in which the events arrive.
func (s *Socket) On(event string, handler func(ctx context.Context, args []json.RawMessage) (ack []any, err error)) {
	s.register(event, entry{handler: handler})
}

// OnInOrder is like On, but the handler runs on the goroutine that reads the connection: it returns before the next
// packet is read. It must not block, in particular not to wait for an ack.
func (s *Socket) OnInOrder(
	event string, handler func(ctx context.Context, args []json.RawMessage) (ack []any, err error),
) {
	s.register(event, entry{handler: handler, inline: true})
}

// OnOther sets the handler of all events that have no handler. Without it, such events are acknowledged with the error
// code "unknown_event".
func (s *Socket) OnOther(
	handler func(ctx context.Context, event string, args []json.RawMessage) (ack []any, err error),
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fallback = handler
}

func (s *Socket) register(event string, e entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handlers == nil {
		s.handlers = map[string]entry{}
	}
	s.handlers[event] = e
}

func (s *Socket) lookup(event string) entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e, ok := s.handlers[event]; ok {
		return e
	}
	if fallback := s.fallback; fallback != nil {
		return entry{handler: func(ctx context.Context, args []json.RawMessage) ([]any, error) {
			return fallback(ctx, event, args)
		}}
	}
	return entry{handler: func(context.Context, []json.RawMessage) ([]any, error) {
		return nil, errNoHandler
	}, inline: true}
}

// Emit queues an event. A nil error does not mean that the peer received it. If the queue is full, Emit waits for up to
// a second and then disconnects the peer, which does not read.
func (s *Socket) Emit(event string, args ...any) error {
	frames, err := encodeArgs(packetEvent, s.namespace, 0, false, &event, args)
	if err != nil {
		return fmt.Errorf("event %s: %w", event, err)
	}
	return s.send(event, frames)
}

// EmitWithAck queues an event and waits until the peer acks it, ctx ends, or the socket ends.
func (s *Socket) EmitWithAck(ctx context.Context, event string, args ...any) ([]json.RawMessage, error) {
	ack := make(chan []json.RawMessage, 1)
	s.mu.Lock()
	s.lastAck++
	id := s.lastAck
	if s.acks == nil {
		s.acks = map[uint64]chan []json.RawMessage{}
	}
	s.acks[id] = ack
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.acks, id)
		s.mu.Unlock()
	}()
	frames, err := encodeArgs(packetEvent, s.namespace, id, true, &event, args)
	if err != nil {
		return nil, fmt.Errorf("event %s: %w", event, err)
	}
	if err := s.send(event, frames); err != nil {
		return nil, err
	}
	select {
	case args := <-ack:
		return args, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("ack of %s: %w", event, ctx.Err())
	case <-s.ctx.Done():
		select {
		case args := <-ack:
			return args, nil
		default:
			return nil, fmt.Errorf("ack of %s: %w", event, context.Cause(s.ctx)) //nolint:contextcheck // the socket's end, not the caller's
		}
	}
}

func (s *Socket) send(event string, frames []frame) error {
	if n := size(frames); n > s.maxPayload {
		return fmt.Errorf("event %s of %d bytes: %w", event, n, ErrPayloadTooLarge)
	}
	if err := s.enqueue(frames, enqueueDeadline()); err != nil {
		return fmt.Errorf("event %s: %w", event, err)
	}
	return nil
}

func (s *Socket) enqueue(frames []frame, until time.Time) error {
	if s.closed.Load() {
		return s.ended()
	}
	return s.endReason(s.wire.enqueue(frames, until))
}

// endReason returns the reason for the socket's end, if it has ended, and else err.
func (s *Socket) endReason(err error) error {
	if err != nil && s.closed.Load() {
		return s.ended()
	}
	return err
}

// ended returns the reason for the end of a socket that is ending; it waits until the reason is set.
func (s *Socket) ended() error {
	<-s.ctx.Done()
	return context.Cause(s.ctx)
}

// Join adds the socket to rooms of its namespace. On the client it has no effect.
func (s *Socket) Join(rooms ...string) {
	if s.space != nil {
		s.space.join(s, rooms)
	}
}

// Leave removes the socket from rooms.
func (s *Socket) Leave(rooms ...string) {
	if s.space == nil {
		return
	}
	s.space.mu.Lock()
	defer s.space.mu.Unlock()
	for _, room := range rooms {
		s.space.leave(s, room)
	}
}

// Close leaves the namespace and notifies the peer. cause becomes the cause of the context; nil means [ErrClosed].
// It does not block. If the socket has ended before, Close has no effect.
func (s *Socket) Close(cause error) {
	if cause == nil {
		cause = ErrClosed
	}
	s.closeWith(cause, true)
}

// closeWith ends the socket. Further calls have no effect.
func (s *Socket) closeWith(cause error, notifyPeer bool) {
	if !s.closed.CompareAndSwap(false, true) {
		return
	}
	if notifyPeer {
		if frames, err := encodeObject(packetDisconnect, s.namespace, nil); err == nil {
			_ = s.wire.enqueue(frames, enqueueDeadline()) // fails only if the connection is ending
		}
	}
	s.cancel(cause)
	if s.space != nil {
		s.space.remove(s)
	}
	if s.release != nil {
		s.release()
	}
	s.wire.socketEnded(s, cause)
}

// handle processes a packet of this socket's namespace; its error ends the connection.
func (s *Socket) handle(p *packet) error {
	switch p.kind {
	case packetDisconnect:
		s.closeWith(ErrPeerClosed, false)
		return nil
	case packetConnectError:
		return fmt.Errorf("%w: CONNECT_ERROR after CONNECT", ErrProtocol)
	}
	items, err := splitArray(p.data)
	if err != nil {
		return err
	}
	if p.kind == packetAck {
		s.mu.Lock()
		ack := s.acks[p.id]
		delete(s.acks, p.id)
		s.mu.Unlock()
		if ack != nil {
			ack <- items
		}
		return nil
	}
	in := incoming{id: p.id, hasID: p.hasID}
	if len(items) == 0 || items[0][0] != '"' || json.Unmarshal(items[0], &in.event) != nil {
		return fmt.Errorf("%w: event without a name", ErrProtocol)
	}
	in.args, in.grant = items[1:], s.wire.transferGrant()
	if p.values != nil {
		in.values = p.values[1:]
	}
	s.startMu.Lock()
	defer s.startMu.Unlock()
	switch {
	case s.ready:
		s.start(in)
	case int64(len(s.waiting)) >= s.maxHandlers:
		s.refuse(in)
	default:
		s.waiting = append(s.waiting, in)
	}
	return nil
}

// acceptEvents runs the hook that registers handlers, and then starts the handlers of the received events.
func (s *Socket) acceptEvents(hook func(*Socket)) {
	if hook != nil {
		s.guard(func() { hook(s) })
	}
	s.startMu.Lock()
	defer s.startMu.Unlock()
	for _, in := range s.waiting {
		s.start(in)
	}
	s.ready, s.waiting = true, nil
}

// start runs the handler of an event, on its own goroutine unless the handler is inline. It returns when that goroutine
// runs. startMu is held.
func (s *Socket) start(in incoming) {
	e := s.lookup(in.event)
	if e.inline {
		s.serve(in, e.handler, nil)
		return
	}
	if s.running.Add(1) > s.maxHandlers {
		s.running.Add(-1)
		s.refuse(in)
		return
	}
	var runs atomic.Bool
	s.wire.run(func() { s.serve(in, e.handler, &runs) })
	// With a channel the reader could continue before the handler, while the handler's thread wakes the reader's thread.
	for !runs.Load() {
		runtime.Gosched()
	}
}

func (s *Socket) refuse(in incoming) {
	in.grant.Release()
	s.wire.busy()
	if in.hasID {
		s.ack(in.id, []any{errorAck(errBusy)}, false)
	}
}

// serve runs one handler and acks its result. runs is nil if no caller waits for the start of the handler.
func (s *Socket) serve(in incoming, handler Handler, runs *atomic.Bool) {
	defer in.grant.Release()
	var values []any
	var err error = errPanic
	s.guard(func() {
		if runs != nil {
			defer s.running.Add(-1)
			runs.Store(true)
		}
		ctx := s.ctx
		if in.values != nil {
			ctx = context.WithValue(ctx, valuesKey{}, in.values)
		}
		values, err = handler(ctx, in.args)
	})
	if err != nil {
		releaseValues(values, false)
		values = []any{errorAck(err)}
	}
	if !in.hasID {
		releaseValues(values, false)
		return
	}
	s.ack(in.id, values, runs != nil)
}

// guard runs fn, recovers a panic and reports it.
func (s *Socket) guard(fn func()) {
	defer func() {
		if p := recover(); p != nil {
			s.wire.failed(s, fmt.Errorf("panic in a handler: %v\n%s", p, debug.Stack()))
		}
	}()
	fn()
}

// ack queues an ack and reports to Tracked values whether it was queued. An ack that cannot be encoded or is too large
// for the peer is replaced by an error, so that the peer receives a response. If idle is set, this goroutine may write
// the ack itself.
func (s *Socket) ack(id uint64, values []any, idle bool) {
	plain := make([]any, len(values))
	for i, v := range values {
		plain[i] = v
		if t, ok := v.(Tracked); ok {
			plain[i] = t.Value()
		}
	}
	frames, err := encodeArgs(packetAck, s.namespace, id, true, nil, plain)
	var refusal error
	switch {
	case err != nil:
		s.wire.failed(s, fmt.Errorf("ack: %w", err))
		refusal = errEncoding
	case size(frames) > s.maxPayload:
		refusal = errTooLarge
	}
	if refusal != nil {
		releaseValues(values, false)
		if frames, err = encodeArgs(packetAck, s.namespace, id, true, nil, []any{errorAck(refusal)}); err == nil {
			_ = s.enqueue(frames, enqueueDeadline()) // fails only if the socket has ended
		}
		return
	}
	if !idle {
		releaseValues(values, s.enqueue(frames, enqueueDeadline()) == nil)
		return
	}
	if s.closed.Load() {
		releaseValues(values, false)
		return
	}
	start, err := s.wire.offer(frames, enqueueDeadline())
	releaseValues(values, err == nil)
	if start {
		s.wire.write()
	}
}

func releaseValues(values []any, ok bool) {
	for _, v := range values {
		if t, tracked := v.(Tracked); tracked {
			t.Sent(ok)
		}
	}
}
