package querytask

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// cutOff is a store that adds each query task but returns an error to its caller.
type cutOff struct{ *memoryQueue }

func (c cutOff) add(ctx context.Context, q store.Question, timeout time.Duration, most int) error {
	if err := c.memoryQueue.add(ctx, q, timeout, most); err != nil {
		return err
	}
	return errors.New("the connection was cut")
}

// watched records the context with which a query task was added.
type watched struct {
	*memoryQueue
	seen chan error
}

func (w watched) add(ctx context.Context, q store.Question, timeout time.Duration, most int) error {
	w.seen <- ctx.Err()
	return w.memoryQueue.add(ctx, q, timeout, most)
}

func pending(l queue) *Pending {
	return &Pending{queue: l, draining: make(chan struct{}), log: zerolog.Nop()}
}

// A query task is removed if its caller got an error, even if the store had added the query task.
func TestQueryOfAFailedCallIsRemoved(t *testing.T) {
	m := newMemoryQueue(func(queueKey) {})
	q := store.Question{ID: "q", Namespace: "default", Queue: "main", Kind: protocol.KindQuery}
	if _, err := pending(cutOff{m}).Run(t.Context(), q, time.Minute); err == nil {
		t.Error("the failure was not told")
	}
	if n := len(m.all) + len(m.ready); n != 0 {
		t.Errorf("%d questions are left without a caller", n)
	}
}

// A caller that disconnects does not cancel the insert of its query task: afterwards the app would not know whether the
// row exists.
func TestCancelledCallerDoesNotCancelOtherQueries(t *testing.T) {
	m := newMemoryQueue(func(queueKey) {})
	seen := make(chan error, 1)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	q := store.Question{ID: "q", Namespace: "default", Queue: "main", Kind: protocol.KindQuery}
	if _, err := pending(watched{m, seen}).Run(ctx, q, time.Minute); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left was told %v", err)
	}
	if err := <-seen; err != nil {
		t.Errorf("the question was cut off: %v", err)
	}
	if n := len(m.all) + len(m.ready); n != 0 {
		t.Errorf("%d questions are left without a caller", n)
	}
}

// A worker that leaves while another departure is being checked causes one more check.
func TestADepartureDuringACheckIsCheckedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _, _ := inMemory()
		p.departure = make(chan struct{})
		checks := 0
		p.Answerable = func(context.Context, *store.Question) bool {
			if checks++; checks == 1 {
				p.WorkerLeft()
				return true
			}
			return false
		}
		answered := ask(t, p, "q")
		p.WorkerLeft()
		if got := <-answered; !errors.Is(got.err, ErrNoWorker) || checks != 2 {
			t.Errorf("after %d checks: %v, want %v", checks, got.err, ErrNoWorker)
		}
	})
}
