package socketio

import (
	"context"
	"sync"
)

// group counts goroutines so that closing can wait for them. Unlike a sync.WaitGroup it may grow during a wait, and the
// wait can be cancelled.
type group struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // created by a waiter, closed when n becomes 0
}

func (g *group) add() {
	g.mu.Lock()
	g.n++
	g.mu.Unlock()
}

func (g *group) done() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.n == 0 && g.idle != nil {
		close(g.idle)
		g.idle = nil
	}
}

// run starts fn on a counted goroutine.
func (g *group) run(fn func()) {
	g.add()
	go func() {
		defer g.done()
		fn()
	}()
}

// wait returns when all counted goroutines have ended, or with the error of ctx.
func (g *group) wait(ctx context.Context) error {
	g.mu.Lock()
	if g.n == 0 {
		g.mu.Unlock()
		return nil
	}
	if g.idle == nil {
		g.idle = make(chan struct{})
	}
	idle := g.idle
	g.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
