package dispatch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// pool is a fake of the memory budget for responses.
type pool struct {
	mu      sync.Mutex // guards the other fields
	left    int64
	changed chan struct{} // closed and replaced when memory becomes free
}

func newPool(bytes int64) *pool { return &pool{left: bytes, changed: make(chan struct{})} }

func (p *pool) add(bytes int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left += bytes
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *pool) Return(bytes int64) { p.add(bytes) }
func (p *pool) Force(bytes int64)  { p.add(-bytes) }

func (p *pool) Try(bytes int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if bytes > p.left {
		return false
	}
	p.left -= bytes
	return true
}

func (p *pool) Grow(ctx context.Context, bytes int64) error {
	for {
		p.mu.Lock()
		changed := p.changed
		p.mu.Unlock()
		if p.Try(bytes) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// However many polls wait, the app leases only tasks that fit into its memory: a claim reserves bytes before it is sent
// to the store, most of them for the longest-waiting poll. It returns unused bytes, and each task reaches its poll.
func TestClaimsReserveMemoryBeforeTheyLease(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		const polls, capacity = 30, 2*most + smallShare*3
		memory := newPool(capacity)
		var waiting []<-chan answer
		for i := range polls {
			in := spec(worker(fmt.Sprint(i)), 1, oneActivity)
			in.Budget = NewBudget(most, memory)
			waiting = append(waiting, waitFor(t.Context(), d.Enter(in), time.Minute))
		}
		rested()
		for i := range polls {
			b.addReady(sized(fmt.Sprint(i), 1000))
		}
		time.Sleep(30 * time.Second)
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, c := range b.claims {
			total := int64(0)
			for i, p := range c.Pollers {
				if total += p.Bytes; i == 0 && p.Bytes != most || p.Bytes < most && p.First {
					t.Errorf("poller %d of a claim may be given %d bytes, first %v", i, p.Bytes, p.First)
				}
			}
			if total > capacity {
				t.Errorf("a claim may lease %d bytes of %d", total, int64(capacity))
			}
		}
		for i, w := range waiting {
			wantTasks(t, w, fmt.Sprint(i))
		}
		if memory.left != capacity {
			t.Errorf("%d bytes are free at the end, want %d: tasks of the fake have no size", memory.left, int64(capacity))
		}
	})
}

// A poll for which no memory is free within a second is refused without a claim, and does not delay the polls after it.
func TestAPollWithoutMemoryIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, d *Dispatch, b *backlog) {
		b.mu.Lock()
		b.ready = append(b.ready, sized("x", 1000))
		b.mu.Unlock()
		none := newPool(0)
		poor, rich := spec(worker("a"), 1, oneActivity), spec(worker("b"), 1, oneActivity)
		poor.Budget = NewBudget(most, none)
		began := time.Now()
		first := d.Enter(poor)
		second := waitFor(t.Context(), d.Enter(rich), time.Minute)
		if _, err := first.Wait(t.Context(), time.Minute); !errors.Is(err, ErrNoMemory) || time.Since(began) != memoryWait {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		wantTasks(t, second, "x")
		if n := d.Counts().NoMemory; n != 1 {
			t.Errorf("%d polls counted", n)
		}
		// A task is not reserved for a poll either if there is no memory for it.
		poor.Budget = NewBudget(most, none)
		none.add(most)
		third := waitFor(t.Context(), d.Enter(poor), time.Minute)
		rested()
		none.add(1000 - most)
		if d.Reserve(sized("y", 2000)) != nil {
			t.Error("a task was delivered without memory")
		}
		r := mustReserve(t, d, sized("z", 500))
		r.Undo()
		if none.left != 1000 {
			t.Errorf("%d bytes are free, want 1000", none.left)
		}
		mustReserve(t, d, sized("z", 500)).Deliver(lease(sized("z", 500), 0))
		wantTasks(t, third, "z")
	})
}
