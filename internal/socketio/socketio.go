// Package socketio implements Socket.IO 5 over Engine.IO 4, as server and client, for peers that may be slow, broken
// or hostile.
//
// A [Server] is an http.Handler with namespaces; each connection of a client to a namespace is a [Socket]. [Dial] makes
// the same Socket on the client side. Arguments stay [json.RawMessage] until a handler decodes them, every queue is
// bounded, and invalid input of a peer ends only its own connection.
package socketio

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/internal/connlimit"
)

// These are the defaults of [Options] and [DialOptions].
const (
	DefaultPingInterval   = 25 * time.Second
	DefaultPingTimeout    = 20 * time.Second
	DefaultConnectTimeout = 10 * time.Second
	DefaultWriteTimeout   = 30 * time.Second
	DefaultMaxPayload     = 8 << 20 // bytes in one frame or one polling body
	DefaultMaxQueue       = 128     // packets waiting for one peer
	DefaultMaxQueueBytes  = 32 << 20
	DefaultMaxHandlers    = 256 // handlers of one socket running at once
	DefaultMaxAttachments = 16  // binary attachments of one packet
	DefaultRate           = 10_000
	DefaultMaxConnections = 20_000

	// A connection that has not joined a namespace is not authenticated yet, so its limits are lower.
	DefaultMaxUnjoinedPayload = 16 << 10 // bytes in one frame or one polling body
	DefaultMaxUnjoined        = connlimit.Default
	maxHandshakeHeaders       = 16 << 10 // bytes; a session stores them
)

// These are reasons for the end of a socket; the reason is the cause of [Socket.Context].
var (
	ErrClosed           = errors.New("socketio: closed locally")
	ErrServerClosed     = errors.New("socketio: the server is shutting down")
	ErrPeerClosed       = errors.New("socketio: the peer disconnected")
	ErrPingTimeout      = errors.New("socketio: no pong from the peer within the ping timeout")
	ErrConnectTimeout   = errors.New("socketio: the peer did not join a namespace within the connect timeout")
	ErrTooManyUnjoined  = errors.New("socketio: too many connections without a namespace; the oldest one is closed")
	ErrSlowPeer         = errors.New("socketio: the send queue is full, because the peer does not read")
	ErrProtocol         = errors.New("socketio: protocol violation by the peer")
	ErrPayloadTooLarge  = errors.New("socketio: payload too large")
	ErrUnknownNamespace = errors.New("socketio: too many CONNECTs to namespaces that do not exist")
)

// Handler handles one event. If the peer requested an ack, the results are acked: the values as they marshal, or for an
// error an object {"__rpcError": message, "__rpcApError": {"code": …}}. An error with a method ErrorAck() any is acked
// as its result. A value with the methods of [Tracked] is notified whether its ack was queued. ctx ends with the socket
// and has the same cause.
type Handler = func(ctx context.Context, args []json.RawMessage) (ack []any, err error)

// Tracked is an ack value that is notified whether it was sent. Sent is called exactly once: with true after the ack
// was put into the send queue of an open connection, else with false.
type Tracked interface {
	Value() any
	Sent(ok bool)
}

// Binary is sent as a binary attachment if it is an argument or a value in []any or map[string]any at any depth. In
// other types it is encoded like any []byte. A received attachment replaces its placeholder as base64 text, which
// encoding/json decodes into a []byte; [Attached] distinguishes an attachment from text.
type Binary []byte

// ConnectError is the error of a rejected CONNECT packet. [Namespace.OnConnect] returns it as the reason; [Dial]
// returns the received one. On the wire it is {"message": Message, "data": {"reason": Reason, …Data}}.
type ConnectError struct {
	Message string         // text for display
	Reason  string         // machine-readable reason
	Data    map[string]any // further members of data
}

// Error returns reason and message.
func (e *ConnectError) Error() string {
	if e.Reason == "" {
		return "socketio: connect refused: " + e.Message
	}
	return fmt.Sprintf("socketio: connect refused: %s: %s", e.Reason, e.Message)
}

// eventError is an error that this package, not a handler, sends as an acknowledgement.
type eventError struct {
	code, message string
	status        int
}

func (e *eventError) Error() string { return e.message }

var (
	errBusy      = &eventError{"busy", "too many handlers of this socket are running", 429}
	errNoHandler = &eventError{"unknown_event", "no handler for this event", 404}
	errPanic     = &eventError{"internal", "internal error", 500}
	errTooLarge  = &eventError{"payload_too_large", "the response is larger than the maximum payload of the connection", 413}
	errEncoding  = &eventError{"internal", "the response cannot be encoded as JSON", 500}
)

// errorAck returns the ack value for err.
func errorAck(err error) any {
	var own interface{ ErrorAck() any }
	if errors.As(err, &own) {
		return own.ErrorAck()
	}
	message, detail := err.Error(), map[string]any{"code": "internal"}
	var known *eventError
	if errors.As(err, &known) {
		detail = map[string]any{"code": known.code, "status": known.status}
	}
	return struct {
		Message string         `json:"__rpcError"`
		Error   map[string]any `json:"__rpcApError"`
	}{message, detail}
}
