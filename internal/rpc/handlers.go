package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/sojourn-run/sojourn/internal/httpjson"
)

// Handlers is the method table of one side. Fill it with [Handle] before the first call. Concurrent reads are safe;
// changes while it is served are not.
type Handlers map[string]Handler

// Handler is one typed method, called with JSON.
type Handler struct {
	fromJSON func(ctx context.Context, payload json.RawMessage, count countUnknown) (any, error)
	// unread serves payloads that cannot be decoded; nil: they are refused
	unread func(ctx context.Context, payload json.RawMessage, why error) (any, error)
}

// countUnknown counts the members of a call that its method does not know; nil: they are not counted.
type countUnknown func(method string, members int)

// Handle registers fn as method. The payload is decoded into In; a missing or null payload is the zero In. Out is
// encoded as the response: use a pointer for a response that may be null, and [None] for an empty one. A judge checks a
// payload and the pointer to the decoded In, or unread, the error of decoding; if it returns an error, the call is
// refused with this error. Handle panics if the method already exists.
func Handle[In, Out any](
	h Handlers, method string, fn func(ctx context.Context, in In) (Out, error),
	judges ...func(payload []byte, in any, unread error) error,
) {
	if _, taken := h[method]; taken {
		panic("rpc: method " + method + " has a handler already")
	}
	h[method] = Handler{
		fromJSON: func(ctx context.Context, payload json.RawMessage, count countUnknown) (any, error) {
			var in In
			unknown, unread := httpjson.Inspect(payload, &in)
			if unknown.Count > 0 && count != nil {
				count(method, unknown.Count)
			}
			if unread == nil {
				unread = decode(payload, &in)
			}
			var why error
			if unread != nil {
				why = malformed(method, unread)
			}
			for _, judge := range judges {
				why = judge(payload, &in, unread)
			}
			if why != nil {
				return h[method].unreadable(ctx, method, payload, why)
			}
			return guard(ctx, method, in, fn)
		},
	}
}

// Unread registers fn for payloads of a method that cannot be decoded or that a check refused, with the reason why. A
// method that bundles independent items uses it to execute the valid ones. fn returns an error to refuse the call.
func (h Handlers) Unread(
	method string, fn func(ctx context.Context, payload json.RawMessage, why error) (any, error),
) {
	handler, ok := h[method]
	if !ok {
		panic("rpc: method " + method + " has no handler")
	}
	handler.unread = fn
	h[method] = handler
}

func (h Handler) unreadable(ctx context.Context, method string, payload json.RawMessage, why error) (any, error) {
	if h.unread == nil {
		return nil, why
	}
	return guard(ctx, method, payload, func(ctx context.Context, payload json.RawMessage) (any, error) {
		return h.unread(ctx, payload, why)
	})
}

// Serve executes one call whose payload came over a connection. The error is an [*Error] or nil; a panic of the handler
// is one with [CodeInternal]. The context may have a principal and a Delivery; Serve adds neither.
func (h Handlers) Serve(ctx context.Context, method string, payload json.RawMessage) (any, error) {
	return h.handle(ctx, method, payload, nil)
}

func (h Handlers) handle(
	ctx context.Context, method string, payload json.RawMessage, count countUnknown,
) (any, error) {
	handler, err := h.find(method)
	if err != nil {
		return nil, err
	}
	out, err := handler.fromJSON(ctx, payload, count)
	if err != nil {
		return nil, outcome(ctx, err)
	}
	return out, nil
}

// find returns the handler of method, or a refusal.
func (h Handlers) find(method string) (Handler, error) {
	handler, ok := h[method]
	if !ok {
		if len(method) > 64 {
			method = method[:64] + "…"
		}
		return Handler{}, Errorf(CodeUnknownMethod, http.StatusNotFound, "no method %q", method)
	}
	return handler, nil
}

// guard runs fn and converts a panic to an error, with the stack for the log.
func guard[In, Out any](
	ctx context.Context, method string, in In, fn func(context.Context, In) (Out, error),
) (out any, err error) {
	defer func() {
		if p := recover(); p != nil {
			cause := fmt.Errorf("panic in method %s: %v\n%s", method, p, debug.Stack())
			out, err = nil,
				&Error{Code: CodeInternal, Message: "internal error", Status: http.StatusInternalServerError, cause: cause}
		}
	}()
	answer, err := fn(ctx, in)
	if err != nil {
		return nil, err
	}
	return answer, nil
}

func malformed(method string, err error) *Error {
	return Errorf(CodeMalformedPayload, http.StatusBadRequest, "payload of %s: %w", method, err)
}

// decode decodes a payload. A type with UnmarshalJSON receives it unchanged and must validate it.
func decode(payload json.RawMessage, into any) error {
	payload = bytes.TrimSpace(payload)
	if len(payload) == 0 || bytes.Equal(payload, []byte("null")) {
		return nil
	}
	if own, ok := into.(json.Unmarshaler); ok {
		return own.UnmarshalJSON(payload)
	}
	return json.Unmarshal(payload, into)
}
