package rpc

import (
	"context"
	"sync"
)

type deliveryKey struct{}

// Delivery reports to the handler of a call whether the transport sent its response, so that a handler that leased a
// task can return it if the response was lost.
type Delivery struct {
	mu      sync.Mutex // guards the fields below
	settled bool
	ok      bool
	waiting []func(ok bool)
}

// WithDelivery returns a context in which handlers may call [OnDelivered], and the Delivery, which the transport must
// settle exactly once when it knows whether the response was sent. Only transports need it.
func WithDelivery(ctx context.Context) (context.Context, *Delivery) {
	d := &Delivery{}
	return context.WithValue(ctx, deliveryKey{}, d), d
}

// OnDelivered registers fn for the result of sending the response: true if it was queued on the socket, false if it was
// lost or the handler failed. fn runs once, on the transport's goroutine, and must not block. OnDelivered returns false
// if the transport does not report results; then fn is never called.
func OnDelivered(ctx context.Context, fn func(ok bool)) bool {
	d, _ := ctx.Value(deliveryKey{}).(*Delivery)
	if d == nil {
		return false
	}
	d.mu.Lock()
	if !d.settled {
		d.waiting = append(d.waiting, fn)
		d.mu.Unlock()
		return true
	}
	ok := d.ok
	d.mu.Unlock()
	fn(ok)
	return true
}

// Settle reports the result to all registered functions. Only the first call counts.
func (d *Delivery) Settle(ok bool) {
	d.mu.Lock()
	if d.settled {
		d.mu.Unlock()
		return
	}
	d.settled, d.ok = true, ok
	waiting := d.waiting
	d.waiting = nil
	d.mu.Unlock()
	for _, fn := range waiting {
		fn(ok)
	}
}
