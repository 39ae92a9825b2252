package read

import (
	"sync"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// When very many activities wait, the cache has evicted their arguments before they are claimed. Activities are claimed
// in the order in which they were scheduled, so the arguments of the next ones are in the same packed row of up to 64
// events. Without this cache, the row would be read and decoded for each of them.

// maxRecentRows is the maximum number of cached rows. A row of several events has at most 256 KB, and is cached in its
// stored form.
const maxRecentRows = 8

// recent caches packed rows of histories until their last event has been read. A history is only ever appended to, and
// waiting activities are never in imported runs, so cached rows stay correct.
type recent struct {
	mu   sync.Mutex // guards the fields below
	rows [maxRecentRows]*record.Packed
	next int // index of the oldest row, which the next one replaces
}

// add caches a row whose events were read up to the event last.
func (r *recent) add(p *record.Packed, last int64) {
	if last >= p.Last() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[r.next] = p
	r.next = (r.next + 1) % maxRecentRows
}

// cachedRow returns the cached row that contains an event, if there is one. Reading its last event evicts it.
func (r *recent) cachedRow(k store.EventKey) *record.Packed {
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
