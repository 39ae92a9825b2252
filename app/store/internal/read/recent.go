package read

import (
	"sync"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// If very many activities wait, their arguments have left the cache when they are claimed. They are claimed in the
// order in which they were scheduled, so the next ones are in the same row of 64 events, which would otherwise be read
// and decoded for each of them.

// mostRecent is the maximum number of cached rows. A row of several events has at most 256 KB, and is cached in its
// stored form.
const mostRecent = 8

// recent caches rows of histories whose last events were not read yet. A history is only ever appended to, and waiting
// activities are never in imported runs, so cached rows stay correct.
type recent struct {
	mu   sync.Mutex // guards the fields below
	rows [mostRecent]*record.Packed
	next int // the oldest
}

// add caches a row that was read for its events up to last.
func (r *recent) add(p *record.Packed, last int64) {
	if last >= p.Last() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[r.next] = p
	r.next = (r.next + 1) % mostRecent
}

// row returns the cached row that contains an event, if there is one. Reading its last event evicts it.
func (r *recent) row(k store.EventKey) *record.Packed {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, p := range r.rows {
		if p == nil || p.Run != k.Run || k.Seq < p.First || k.Seq > p.Last() {
			continue
		}
		if k.Seq == p.Last() {
			r.rows[i] = nil
		}
		return p
	}
	return nil
}
