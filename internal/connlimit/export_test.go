package connlimit

import "time"

// Scarce changes the descriptors of a running listener, and how long new connections are not closed.
func Scarce(l *Limit, descriptors int, young time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.descriptors.limit, l.descriptors.young = descriptors, young
}
