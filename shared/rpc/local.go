package rpc

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"time"
)

// Local is the Caller of the same process: it hands Go values to the table without JSON. Both sides then share what the
// values point to, so neither may change them after the call.
type Local struct {
	Handlers  Handlers
	Principal any           // who calls, put into the context of every handler; nil leaves the context's own
	Timeout   time.Duration // bounds a call without a deadline; 0 is DefaultTimeout
}

// Call runs the handler of method on the caller's goroutine. in is an In of the handler or a pointer to one, out a
// pointer to its Out; values of other types go through JSON, as they would over a socket.
func (l Local) Call(ctx context.Context, method string, in, out any) error {
	ctx, cancel := withTimeout(ctx, l.Timeout)
	defer cancel()
	if l.Principal != nil {
		ctx = WithPrincipal(ctx, l.Principal)
	}
	ctx, delivery := WithDelivery(ctx)
	delivered := false
	defer func() { delivery.Settle(delivered) }()

	handler, err := l.Handlers.find(method)
	if err != nil {
		return err
	}
	answer, err := handler.fromValue(ctx, in)
	if err != nil {
		return AsError(err)
	}
	if err := assign(out, answer); err != nil {
		return Errorf(CodeMalformedAnswer, http.StatusInternalServerError, "answer of %s: %w", method, err)
	}
	delivered = true
	return nil
}

// Notify runs the handler of method and drops its answer. It returns when the handler has, so handlers of hints must be
// quick.
func (l Local) Notify(ctx context.Context, method string, in any) error {
	return l.Call(ctx, method, in, nil)
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

// convert makes an In of value: as it is, what it points to, or by way of JSON.
func convert[In any](value any) (In, error) {
	var in In
	switch v := value.(type) {
	case nil:
		return in, nil
	case *In:
		if v != nil {
			in = *v
		}
		return in, nil
	case In:
		return v, nil
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return in, err
	}
	return in, decode(raw, &in)
}

// assign stores answer where out points to. A nil answer leaves it alone, as null does over a wire.
func assign(out, answer any) error {
	if out == nil || answer == nil {
		return nil
	}
	if _, none := answer.(None); none {
		return nil
	}
	target := reflect.ValueOf(out)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return &json.InvalidUnmarshalError{Type: target.Type()}
	}
	target = target.Elem()
	source := reflect.ValueOf(answer)
	if nilable(source.Kind()) && source.IsNil() {
		return nil
	}
	switch {
	case source.Type().AssignableTo(target.Type()):
		target.Set(source)
		return nil
	case source.Kind() == reflect.Pointer && source.Elem().Type().AssignableTo(target.Type()):
		target.Set(source.Elem())
		return nil
	}
	raw, err := json.Marshal(answer)
	if err != nil {
		return err
	}
	return decode(raw, out)
}

func nilable(kind reflect.Kind) bool {
	switch kind {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return true
	}
	return false
}
