package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/sojourn-run/sojourn/internal/rawjson"
)

// These are the events of the worker channel.
const (
	EventCall   = "rpc"        // one argument {method, payload, deadlineMs?}, with ack
	EventNotify = "rpc-notify" // one argument {method, payload}, no ack
)

// Socket is the connection that calls use; *socketio.Socket implements it.
type Socket interface {
	Principal() any
	On(event string, handler func(ctx context.Context, args []json.RawMessage) (ack []any, err error))
	Emit(event string, args ...any) error
	EmitWithAck(ctx context.Context, event string, args ...any) ([]json.RawMessage, error)
}

// envelope is the argument of both events.
type envelope struct {
	Method     string `json:"method"`
	Payload    any    `json:"payload,omitempty"`
	DeadlineMS int64  `json:"deadlineMs,omitempty"` // time for which the caller waits
}

// failure is the acknowledgement of a refused call.
type failure struct {
	Message *string        `json:"__rpcError"`
	Error   map[string]any `json:"__rpcApError"`
}

// Serving contains the options of Serve.
type Serving struct {
	Timeout time.Duration // maximum time of a handler; a caller's deadlineMs may shorten it; 0: DefaultTimeout
	// Failed, if set, is called for every refused call, for logs and metrics. An internal error wraps its cause.
	Failed func(ctx context.Context, method string, err *Error)
	// Unknown, if set, is called for a call with members that its method does not have, with their number.
	Unknown func(method string, members int)
}

// Serve answers the calls and notices that arrive on s with handlers. A second Serve on the same socket replaces the
// handlers.
func Serve(s Socket, handlers Handlers, how Serving) {
	s.On(EventCall, func(ctx context.Context, args []json.RawMessage) ([]any, error) {
		ctx, delivery := WithDelivery(WithPrincipal(ctx, s.Principal()))
		answer, err := how.serve(ctx, handlers, args)
		if err != nil {
			delivery.Settle(false)
			return []any{Failure(err)}, nil
		}
		return []any{delivered{answer, delivery}}, nil
	})
	s.On(EventNotify, func(ctx context.Context, args []json.RawMessage) ([]any, error) {
		// A notice has no response; a refusal was passed to how.Failed.
		_, _ = how.serve(WithPrincipal(ctx, s.Principal()), handlers, args)
		return nil, nil
	})
}

func (how Serving) serve(ctx context.Context, handlers Handlers, args []json.RawMessage) (answer any, err error) {
	var call envelopeIn
	defer func() {
		if err != nil && how.Failed != nil {
			how.Failed(ctx, call.Method, AsError(err))
		}
	}()
	if len(args) != 1 {
		return nil, Errorf(
			CodeMalformedPayload, http.StatusBadRequest, "want one argument {method, payload}, got %d", len(args),
		)
	}
	if err := call.read(rawjson.Once(args[0])); err != nil {
		return nil, Errorf(CodeMalformedPayload, http.StatusBadRequest, "argument {method, payload}: %w", err)
	}
	timeout := how.Timeout
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	if call.DeadlineMS > 0 && call.DeadlineMS < timeout.Milliseconds() {
		timeout = time.Duration(call.DeadlineMS) * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer, err = handlers.handle(ctx, call.Method, call.Payload, how.Unknown)
	if w, ok := answer.(wire); ok {
		answer = w.Wire()
	}
	if err == nil && ctx.Err() != nil {
		// The caller no longer waits: a response would be lost without notice to the handler.
		return nil, AsError(ctx.Err())
	}
	return answer, err
}

// Failure returns the ack value for an error: {"__rpcError": message, "__rpcApError": {"code": …, "status": …, …}}.
func Failure(err error) any {
	e := AsError(err)
	members := make(map[string]any, len(e.Details)+2)
	for k, v := range e.Details {
		members[k] = v
	}
	members["code"] = e.Code
	if e.Status != 0 {
		members["status"] = e.Status
	}
	return failure{Message: &e.Message, Error: members}
}

// wire is implemented by a response that has a simpler value with the same JSON; that value is encoded instead.
type wire interface{ Wire() any }

// delivered is an acknowledgement that is notified whether it was queued.
type delivered struct {
	answer   any
	delivery *Delivery
}

// Value returns the value to encode.
func (d delivered) Value() any { return d.answer }

// MarshalJSON encodes the response.
func (d delivered) MarshalJSON() ([]byte, error) { return json.Marshal(d.answer) }

// Sent is called by the socket once, when the acknowledgement was queued or could not be queued.
func (d delivered) Sent(ok bool) { d.delivery.Settle(ok) }

// SocketCaller calls the methods that the other end of a socket serves.
type SocketCaller struct {
	Socket  Socket
	Timeout time.Duration // limits a call without a deadline; 0: DefaultTimeout
}

// Call sends in to method by one event "rpc", waits for the ack and decodes the response into out, a pointer. A nil out
// discards the response, and null does not change out. A refusal by the other side is an [*Error], and so is an
// exceeded deadline ([CodeDeadlineExceeded]). Any other error means that the connection ended or that the call was not
// queued: the other side may or may not have executed the call.
func (c SocketCaller) Call(ctx context.Context, method string, in, out any) error {
	ctx, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	call := envelope{Method: method, Payload: in}
	if deadline, has := ctx.Deadline(); has {
		call.DeadlineMS = max(1, time.Until(deadline).Milliseconds())
	}
	ack, err := c.Socket.EmitWithAck(ctx, EventCall, call)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return AsError(err)
		}
		return err
	}
	if len(ack) == 0 {
		return nil
	}
	if err := failed(ack[0]); err != nil {
		return err
	}
	if out == nil {
		return nil
	}
	if err := decode(ack[0], out); err != nil {
		return Errorf(CodeMalformedResponse, http.StatusBadGateway, "response of %s: %w", method, err)
	}
	return nil
}

// Notify queues one event "rpc-notify".
func (c SocketCaller) Notify(_ context.Context, method string, in any) error {
	return c.Socket.Emit(EventNotify, envelope{Method: method, Payload: in})
}

// failed returns the refusal in an ack, or nil if the ack is a response.
func failed(ack json.RawMessage) error {
	if !bytes.Contains(ack, []byte(`"__rpcError"`)) {
		return nil
	}
	var f failure
	if err := json.Unmarshal(ack, &f); err != nil || f.Message == nil {
		return nil //nolint:nilerr // not a refusal; decoding it as a response returns the error
	}
	e := &Error{Code: CodeInternal, Message: *f.Message}
	if code, ok := f.Error["code"].(string); ok {
		e.Code = code
	}
	if status, ok := f.Error["status"].(float64); ok {
		e.Status = int(status)
	}
	delete(f.Error, "code")
	delete(f.Error, "status")
	if len(f.Error) > 0 {
		e.Details = f.Error
	}
	return e
}
