package connlimit

import "time"

// Scarce changes the descriptors of a listener that is in use, and for how long its connections are not closed.
func Scarce(l *Limit, descriptors int, young time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.descriptors.limit, l.descriptors.young = descriptors, young
}
