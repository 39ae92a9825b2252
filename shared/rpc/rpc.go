// Package rpc calls named methods of the app from a worker, and the other way round, over any carrier.
//
// A [Caller] is what the calling side holds. [Handlers] is the table the answering side fills. Three carriers join
// them: [Local] passes Go values within one process, [SocketCaller] with [Serve] speaks the envelope of the worker
// channel, and HTTP transports call [Handlers.Serve] themselves.
package rpc

import (
	"context"
	"time"
)

// DefaultTimeout bounds a call whose context has no deadline, and every handler.
const DefaultTimeout = 60 * time.Second

// Caller calls methods of the other side.
type Caller interface {
	// Call sends in to method and fills out, a pointer, with the answer. A nil out discards the answer, and an answer of
	// null leaves out as it was. A refusal by the other side is an [*Error]; so is a deadline that passed (code
	// [CodeDeadlineExceeded]). Without a deadline in ctx the call ends after [DefaultTimeout].
	Call(ctx context.Context, method string, in, out any) error
	// Notify hands in to method as a hint: nobody answers, and it may be lost. The error says only that it could not be
	// sent.
	Notify(ctx context.Context, method string, in any) error
}

// None is the answer of a method that has nothing to say. It travels as null.
type None struct{}

// MarshalJSON writes null.
func (None) MarshalJSON() ([]byte, error) { return []byte("null"), nil }

// UnmarshalJSON takes any value and drops it.
func (*None) UnmarshalJSON([]byte) error { return nil }

type principalKey struct{}

// WithPrincipal returns a context that carries who is calling. Carriers set it once they know; handlers read it with
// [PrincipalFrom].
func WithPrincipal(ctx context.Context, principal any) context.Context {
	return context.WithValue(ctx, principalKey{}, principal)
}

// PrincipalFrom returns who is calling, or nil when the carrier did not say.
func PrincipalFrom(ctx context.Context) any {
	return ctx.Value(principalKey{})
}
