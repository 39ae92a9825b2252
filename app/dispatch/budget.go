package dispatch

import "github.com/sojourn-run/sojourn/app/store"

// A response larger than a frame of its transport delivers nothing, so its bytes are counted before tasks are leased
// for it. Claims and reservations for one response run concurrently; each reserves the bytes it may need, like slots.

// Budget is how many bytes of tasks one response may carry. Waiters whose tasks go into the same response share one.
// The first task of a response always fits. All methods of a Budget are called with the mutex of the Dispatch held.
type Budget struct {
	left    int64
	tasks   int       // tasks that were added to the response or are being claimed for it
	waiters []*Waiter // queued waiters of the response
}

// NewBudget returns the budget of a response with at most this number of bytes of tasks.
func NewBudget(bytes int64) *Budget { return &Budget{left: bytes} }

// Spend reserves bytes for other parts of a response. It returns false if they would exceed the budget and over
// together.
func (d *Dispatch) Spend(b *Budget, bytes, over int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if bytes > b.left+over {
		return false
	}
	b.reserve(bytes)
	b.changed()
	return true
}

// smallest is the size below which no task fits.
const smallest = 1 << 10

func (b *Budget) spent() bool { return b.tasks > 0 && b.left < smallest }

func (b *Budget) fits(bytes int64) bool { return b.tasks == 0 || bytes <= b.left }

func (b *Budget) reserve(bytes int64) {
	b.left -= bytes
	b.tasks++
}

// release returns the bytes that were reserved for tasks that were not leased.
func (b *Budget) release(bytes int64, tasks int) {
	b.left += bytes
	b.tasks -= tasks
}

// changed enqueues the waiters of the response for the kinds of tasks that fit now, and dequeues them for the others.
func (b *Budget) changed() {
	for _, w := range b.waiters {
		w.relink()
	}
}

// part sets bytes aside for a claim. Where other claims or reservations may come to the waiter meanwhile, it is half of
// what is left; only one of them may give the response its first task.
func (b *Budget) part(alone bool) (bytes int64, first bool) {
	bytes = max(0, b.left)
	if !alone {
		bytes /= 2
	}
	if first = b.tasks == 0; first {
		b.tasks++
	}
	b.left -= bytes
	return bytes, first
}

// endClaim ends a claim that had reserved bytes.
func (b *Budget) endClaim(bytes int64, first bool, given []store.Leased) {
	if first {
		b.tasks--
	}
	b.left += bytes
	for i := range given {
		b.reserve(given[i].Size)
	}
}

// size is what an offered task takes of the waiter's response.
func (w *Waiter) size(o *store.Offer) int64 {
	if o.KeptBytes == o.Bytes || w.d.sticky == nil {
		return o.Bytes
	}
	for _, p := range w.d.sticky(o.Run) {
		if p.Worker == w.member.worker.Key() && p.Incarnation == w.member.worker.Incarnation {
			return o.KeptBytes
		}
	}
	return o.Bytes
}
