package session

import (
	"context"
	"errors"
)

// rebuild is a running rebuild for which other callers wait.
type rebuild struct {
	done chan struct{} // closed when the rebuild has ended
	err  error
	own  bool // the rebuild failed because its own caller was cancelled; a waiter must run it again
}

// Rebuilds counts the rebuilds of the session's state. An attempt reads the count before it runs. If it then finds the
// state missing and the count has increased, another attempt has rebuilt the state.
func (h *Holding) Rebuilds() int {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	return h.rebuilds
}

// Rebuilding reports whether the state was rebuilt since the count was seen, or is being rebuilt.
func (h *Holding) Rebuilding(seen int) bool {
	h.set.mu.Lock()
	defer h.set.mu.Unlock()
	return h.rebuilds > seen || h.rebuilding != nil
}

// AwaitRebuild waits for a running rebuild. It reports whether the state was rebuilt since the count was seen.
func (h *Holding) AwaitRebuild(ctx context.Context, seen int) bool {
	for {
		h.set.mu.Lock()
		running, rebuilt := h.rebuilding, h.rebuilds > seen
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

// Rebuild runs fn to rebuild the session's state. With shared, concurrent callers wait for one rebuild and receive its
// error, and callers whose count (seen) is lower than the current count return immediately. If the rebuilding caller is
// cancelled, the next waiter runs fn.
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
		running := h.rebuilding
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
	h.rebuilding = mine
	h.set.mu.Unlock()
	defer func() {
		h.set.mu.Lock()
		if mine.err == nil {
			h.rebuilds++
		}
		h.rebuilding = nil
		h.set.mu.Unlock()
		close(mine.done)
	}()
	mine.err = fn(ctx)
	mine.own = ctx.Err() != nil
	return mine.err
}
