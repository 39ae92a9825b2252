package rpc

import (
	"context"
	"sync"
)

type deliveryKey struct{}

// Delivery follows the answer of one call from the handler to the carrier, so that a handler that gave something away
// (a leased task) learns whether it ever left.
type Delivery struct {
	mu      sync.Mutex // guards what follows
	settled bool
	ok      bool
	waiting []func(ok bool)
}

// WithDelivery returns a context in which handlers may call [OnDelivered], and the Delivery the carrier must settle
// exactly once it knows the fate of the answer. Only carriers need it.
func WithDelivery(ctx context.Context) (context.Context, *Delivery) {
	d := &Delivery{}
	return context.WithValue(ctx, deliveryKey{}, d), d
}

// OnDelivered asks the carrier of this call to tell fn what became of the answer: true when it was queued on the
// socket, false when it was lost on the way or never given because the handler failed. fn runs once, on the carrier's
// goroutine, and must not block. OnDelivered reports whether the carrier keeps count at all; when it does not, fn is
// never called.
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

// Settle tells everybody who asked. Only the first call counts.
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
