package dispatch

import "github.com/sojourn-run/sojourn/app/store"

// A response that is larger than a frame of its transport delivers nothing, so its bytes are counted before tasks are
// leased for it. Claims and reservations of one response run at the same time; each sets aside what it may need, as it
// does with slots.

// Budget is how many bytes of tasks one response may carry. Waiters whose tasks go into the same response share one.
// The first task of a response always fits. All methods of a Budget are called with the mutex of the Dispatch held.
type Budget struct {
	left    int64
	tasks   int       // that were given or are under way
	waiters []*Waiter // those that stand in lines
}

// NewBudget makes the budget of a response of at most so many bytes of tasks.
func NewBudget(bytes int64) *Budget { return &Budget{left: bytes} }

// Spend takes bytes of a response for what else it carries, and says false when that would be more than the budget and
// over together.
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

// release gives back what was reserved for tasks that do not come.
func (b *Budget) release(bytes int64, tasks int) {
	b.left += bytes
	b.tasks -= tasks
}

// changed moves the waiters of the response into the lines in which they can take a task now, and out of the others.
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

// endClaim ends a claim that had set bytes aside.
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
