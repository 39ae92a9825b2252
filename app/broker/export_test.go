package broker

import "context"

// Gathers reports whether a heartbeat waits for other heartbeats.
func (b *Broker) Gathers() bool {
	b.renewals.mu.Lock()
	defer b.renewals.mu.Unlock()
	return b.renewals.waiting != nil
}

// MarkStuck marks the stuck runs, as the background loop does.
func (b *Broker) MarkStuck(ctx context.Context) error { return b.markStuck(ctx) }
