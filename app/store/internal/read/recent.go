package read

import (
	"sync"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
)

// Where very many activities wait, what they are called with is in no memory any more when they are claimed. They are
// claimed in the order in which they were scheduled, so the next ones stand in the row that was read for one of them:
// 64 events, most of which it would be read and decoded for once more.

// mostRecent is how many rows are kept; one of several events has 256 KB at most, and as it was stored takes no more.
const mostRecent = 8

// recent are rows of histories whose last events were not asked for yet. A history is only ever appended to, and what
// waits in it was never imported, so they are right as long as they are kept.
type recent struct {
	mu   sync.Mutex // guards what follows
	rows [mostRecent]*record.Packed
	next int // the oldest
}

// keep keeps a row that was read for its events up to last.
func (r *recent) keep(p *record.Packed, last int64) {
	if last >= p.Last() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows[r.next] = p
	r.next = (r.next + 1) % mostRecent
}

// row returns the row that holds an event, if that is kept. With its last event it is kept no longer.
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
