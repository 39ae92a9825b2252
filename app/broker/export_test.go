package broker

import "context"

// Gathers says whether a heartbeat waits for others to be stored with.
func (b *Broker) Gathers() bool {
	b.renewals.mu.Lock()
	defer b.renewals.mu.Unlock()
	return b.renewals.waiting != nil
}

// MarkStuck is one pass that marks stuck runs.
func (b *Broker) MarkStuck(ctx context.Context) error { return b.markStuck(ctx) }
