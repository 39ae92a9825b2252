package sandbox

import (
	"context"
	"time"
)

// reuse is the key of calls outside sessions that may run in the same executor one after another.
type reuse struct {
	runtime string
	hash    string // hash of the handler's code; empty for native handlers, which are all in one binary
}

// SetFresh selects whether each call outside sessions runs in a new executor, or executors are reused. Calls in
// progress continue.
func (p *Pool) SetFresh(fresh bool) { p.fresh.Store(fresh) }

// borrowExecutor returns an executor for one call outside sessions. done returns it to the pool, or ends it if it must
// not be reused.
func (p *Pool) borrowExecutor(inv Invocation, l *language, b *bundle) (ex *executor, done func(), err error) {
	key := reuse{runtime: l.name}
	if b != nil {
		key.hash = b.Hash
	}
	fresh := inv.Fresh || p.fresh.Load() || b != nil && b.single
	if !fresh {
		p.mu.Lock()
		for list := p.idle[key]; len(list) > 0 && ex == nil; list = p.idle[key] {
			last := list[len(list)-1]
			p.idle[key] = list[:len(list)-1]
			if time.Since(last.born) < reuseAge {
				ex = last
			} else {
				p.work.Go(func() { p.retireExecutor(last) })
			}
		}
		p.mu.Unlock()
	}
	if ex == nil {
		if ex, err = p.blankExecutor(l); err != nil {
			return nil, nil, err
		}
	}
	return ex, func() {
		p.background(func() {
			if fresh || !p.offerForReuse(ex, key) {
				p.retireExecutor(ex)
			}
		})
	}, nil
}

// offerForReuse makes an executor available for the next call if it is reusable.
func (p *Pool) offerForReuse(ex *executor, key reuse) bool {
	ex.mu.Lock()
	fit := !ex.ended && ex.endCause == nil && ex.unknownFrames == 0 && ex.served < reuseCalls && len(ex.calls) == 0
	ex.mu.Unlock()
	limit := ex.lang.limits.Memory
	if !fit || ex.tainted.Load() || limit > 0 && ex.resident.Load() > limit/10*7 || time.Since(ex.born) >= reuseAge ||
		!ex.hasNoDescendants() {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if _, there := p.all[ex]; !there {
		return true // it has ended already
	}
	p.idle[key] = append(p.idle[key], ex)
	return true
}

// retireExecutor ends an executor that is in no list.
func (p *Pool) retireExecutor(ex *executor) {
	ex.close(
		context.Background(), ending{cause: CauseEvictedIdle, kind: Unavailable, message: "the executor had served its time"},
	)
}
