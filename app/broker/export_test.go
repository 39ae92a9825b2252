package broker

// Gathers says whether a heartbeat waits for others to be stored with.
func (b *Broker) Gathers() bool {
	b.renewals.mu.Lock()
	defer b.renewals.mu.Unlock()
	return b.renewals.waiting != nil
}
