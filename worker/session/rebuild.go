package session

import (
	"context"
	"errors"
)

// rebuild is one that runs, for those who wait for it.
type rebuild struct {
	done chan struct{} // closed at its end
	err  error
	own  bool // it failed because of the caller's own end, which says nothing to others
}

// Rebuilds is how often the session's state was rebuilt. An attempt notes it before it runs: when it finds the state
// missing and the number has grown, somebody else has rebuilt it meanwhile.
func (h *Holding) Rebuilds() int {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	return h.rebuilds
}

// Rebuilding says whether the state was rebuilt since seen, or is being rebuilt now.
func (h *Holding) Rebuilding(seen int) bool {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	return h.rebuilds > seen || h.flight != nil
}

// AwaitRebuild waits for a rebuild that runs, and says whether the state was rebuilt since seen.
func (h *Holding) AwaitRebuild(ctx context.Context, seen int) bool {
	for {
		h.set.mu.Lock()
		running, rebuilt := h.flight, h.rebuilds > seen
		h.set.mu.Unlock()
		if rebuilt || running == nil {
			return rebuilt
		}
		select {
		case <-running.done:
		case <-ctx.Done():
			return false
		}
	}
}

// Rebuild runs fn to rebuild the session's state. With shared, callers that come while one rebuilds wait for it and get
// its error, and those that noted fewer rebuilds (seen) than there have been do nothing: one rebuild serves all that
// were cold at once. When the one that rebuilds is cancelled, the next waiter tries.
func (h *Holding) Rebuild(ctx context.Context, seen int, shared bool, fn func(context.Context) error) error {
	if !shared {
		err := fn(ctx)
		h.set.mu.Lock()
		defer h.set.mu.Unlock()
		if err == nil {
			h.rebuilds++
		}
		return err
	}
	for {
		h.set.mu.Lock()
		if h.rebuilds > seen {
			h.set.mu.Unlock()
			return nil
		}
		running := h.flight
		if running == nil {
			break
		}
		h.set.mu.Unlock()
		select {
		case <-running.done:
			if running.err != nil && !running.own {
				return running.err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	mine := &rebuild{done: make(chan struct{}), err: errors.New("the rebuild panicked")}
	h.flight = mine
	h.set.mu.Unlock()
	defer func() {
		h.set.mu.Lock()
		if mine.err == nil {
			h.rebuilds++
		}
		h.flight = nil
		h.set.mu.Unlock()
		close(mine.done)
	}()
	mine.err = fn(ctx)
	mine.own = ctx.Err() != nil
	return mine.err
}
