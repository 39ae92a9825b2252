// Package rpc calls named methods of the peer on a socket.
//
// [Handlers] is the method table of the called side; [Serve] and [SocketCaller] implement the envelope of the worker
// channel. Calls within one process do not use it: see package workerconn of the app.
package rpc

import (
	"context"
	"time"
)

// DefaultTimeout is the timeout of a call whose context has no deadline, and of every handler.
const DefaultTimeout = 60 * time.Second

// None is the response of a method without a result, encoded as null.
type None struct{}

// MarshalJSON writes null.
func (None) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// UnmarshalJSON accepts and ignores any value.
func (*None) UnmarshalJSON([]byte) error { return nil }

type principalKey struct{}

// WithPrincipal returns a context with the authenticated caller. Transports set it; handlers read it with
// [PrincipalFrom].
func WithPrincipal(ctx context.Context, principal any) context.Context {
	return context.WithValue(ctx, principalKey{}, principal)
}

// PrincipalFrom returns the caller, or nil if the transport set none.
func PrincipalFrom(ctx context.Context) any {
	return ctx.Value(principalKey{})
}

func withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	return context.WithTimeout(ctx, timeout)
}
