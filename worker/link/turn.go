package link

import "sync"

// turn goes round the URLs of the apps.
type turn struct {
	mu sync.Mutex
	n  int // guarded by mu
}

// of is the URL whose turn it is; empty when there is none.
func (t *turn) of(urls []string) string {
	if len(urls) == 0 {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return urls[t.n%len(urls)]
}

// next makes it the turn of the URL behind.
func (t *turn) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.n++
}
