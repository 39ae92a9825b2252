package dispatch

import (
	"context"

	"github.com/sojourn-run/sojourn/app/store"
)

// A response that is larger than a frame of its transport delivers nothing, so the bytes are counted before tasks are
// leased for it. Claims and reservations for one response run concurrently; each reserves the bytes that it may need,
// like slots.

// Memory is the memory that the app may use for the tasks of one response, in bytes of tasks. All methods except Grow
// are called with Dispatch.mu held.
type Memory interface {
	Try(bytes int64) bool                        // reserves bytes if they are free
	Grow(ctx context.Context, bytes int64) error // waits until they are free, and reserves them
	Return(bytes int64)                          // returns reserved bytes
	Force(bytes int64)                           // reserves bytes that are already in use
}

// unlimited is the Memory of responses whose size is not counted.
type unlimited struct{}

func (unlimited) Try(int64) bool                    { return true }
func (unlimited) Grow(context.Context, int64) error { return nil }
func (unlimited) Return(int64)                      {}
func (unlimited) Force(int64)                       {}

// Budget is the number of bytes of tasks that one response may contain. Waiters of the same response share one Budget.
// The first task of a response always fits. All methods are called with Dispatch.mu held.
type Budget struct {
	remaining int64
	tasks     int       // tasks that were added to the response or are being claimed for it
	waiters   []*Waiter // queued waiters of the response
	memory    Memory
}

// NewBudget returns the budget of a response with a maximum number of bytes of tasks. A nil memory has no limit.
func NewBudget(bytes int64, memory Memory) *Budget {
	if memory == nil {
		memory = unlimited{}
	}
	return &Budget{remaining: bytes, memory: memory}
}

// Spend reserves bytes for other parts of a response. It returns false if they would exceed the budget by more than
// tolerance.
func (d *Dispatch) Spend(b *Budget, bytes, tolerance int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if bytes > b.remaining+tolerance {
		return false
	}
	b.reserve(bytes)
	b.memory.Force(bytes)
	b.changed()
	return true
}

// minTaskSize is smaller than every task: if fewer bytes remain, the response cannot contain a further task.
const minTaskSize = 1 << 10

func (b *Budget) spent() bool { return b.tasks > 0 && b.remaining < minTaskSize }

func (b *Budget) fits(bytes int64) bool { return b.tasks == 0 || bytes <= b.remaining }

func (b *Budget) reserve(bytes int64) {
	b.remaining -= bytes
	b.tasks++
}

// undo returns the bytes that were reserved for a task that will not be delivered.
func (b *Budget) undo(bytes int64) {
	b.remaining += bytes
	b.tasks--
	b.memory.Return(bytes)
}

// changed adds the waiters of the response to the queues of tasks that still fit, and removes them from the others.
func (b *Budget) changed() {
	for _, w := range b.waiters {
		w.relink()
	}
}

// reserveShare reserves bytes for a claim. If other claims or reservations for the response may run meanwhile, it
// reserves half of the remaining bytes. Only one of them may deliver the first task of the response.
func (b *Budget) reserveShare(alone bool) (bytes int64, first bool) {
	bytes = max(0, b.remaining)
	if !alone {
		bytes /= 2
	}
	if first = b.tasks == 0; first {
		b.tasks++
	}
	b.remaining -= bytes
	return bytes, first
}

// smallShare is the maximum size of a claim for a waiter for which the app has no more memory.
const smallShare = 64 << 10

// afford reserves memory for a claim. If memory is short, it reduces the number of bytes; false: there is no memory.
func (b *Budget) afford(bytes int64, first bool) (int64, bool, bool) {
	if b.memory.Try(bytes) {
		return bytes, first, true
	}
	if bytes > smallShare && b.memory.Try(smallShare) {
		if first {
			b.tasks--
		}
		b.remaining += bytes - smallShare
		return smallShare, false, true
	}
	b.cancel(bytes, first)
	return 0, false, false
}

// cancel returns the bytes of a claim for which the app has no memory.
func (b *Budget) cancel(bytes int64, first bool) {
	if first {
		b.tasks--
	}
	b.remaining += bytes
}

// endClaim ends a claim for which bytes were reserved, and returns the unused ones.
func (b *Budget) endClaim(bytes int64, first bool, given []store.Leased) {
	b.cancel(bytes, first)
	used := int64(0)
	for i := range given {
		b.reserve(given[i].Size)
		used += given[i].Size
	}
	if used > bytes {
		b.memory.Force(used - bytes)
	} else {
		b.memory.Return(bytes - used)
	}
}

// size returns the size of an offered task in the waiter's response.
func (w *Waiter) size(o *store.Offer) int64 {
	if o.CachedBytes == o.Bytes || w.d.sticky == nil {
		return o.Bytes
	}
	for _, p := range w.d.sticky(o.Run) {
		if p.Worker == w.member.worker.Key() && p.Incarnation == w.member.worker.Incarnation {
			return o.CachedBytes
		}
	}
	return o.Bytes
}
