package sandbox

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sojourn-run/sojourn/sandbox/internal/supervisor"
)

// blankExecutor returns an executor that has not run code, from the prepared ones or a new one, and starts preparing
// another.
func (p *Pool) blankExecutor(l *language) (*executor, error) {
	p.mu.Lock()
	var ex *executor
	for ex == nil && len(p.blanks[l.name]) > 0 {
		list := p.blanks[l.name]
		ex = list[0]
		p.blanks[l.name] = append([]*executor(nil), list[1:]...)
		if old := ex; old.packs != l.installed() { // it was started before the packages of the handlers changed
			ex = nil
			p.work.Go(func() { p.retireExecutor(old) })
		}
	}
	p.mu.Unlock()
	var err error
	if ex == nil {
		if err = p.reserve(); err == nil {
			ex, err = p.start(l)
		}
	}
	if err == nil {
		p.refill(l)
	}
	return ex, err
}

// refill starts another prepared executor in the background, if one is missing and there is room without ending another
// executor.
func (p *Pool) refill(l *language) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.draining || p.closed || p.reserved >= p.capacity || p.resident() > p.memory/8*7 ||
		len(p.blanks[l.name])+p.booting[l.name] >= p.opt.Blank {
		return
	}
	p.reserved++
	p.booting[l.name]++
	p.work.Go(func() {
		ex, err := p.start(l)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.booting[l.name]--
		if err != nil {
			if !p.closed { // a failure while the pool is closed is expected
				p.opt.Logger.Warn().Err(err).Str("runtime", l.name).Msg("failed to start a reserve executor")
			}
			return
		}
		if _, there := p.all[ex]; there {
			p.blanks[l.name] = append(p.blanks[l.name], ex)
		}
	})
}

// start starts an executor whose place is reserved. At most as many start concurrently as there are processors.
func (p *Pool) start(l *language) (*executor, error) {
	p.starts <- struct{}{}
	defer func() { <-p.starts }()
	id := "sb-" + rand.Text()[:10]
	scratch := filepath.Join(p.dir, id)
	u, err := p.users.acquireUser()
	if err != nil {
		p.unreserve()
		return nil, &Error{Type: Unavailable, Message: err.Error(), Retryable: true}
	}
	if err := errors.Join(os.Mkdir(scratch, 0o700), u.own(scratch)); err != nil {
		supervisor.Wipe(scratch)
		u.release()
		p.unreserve()
		return nil, &Error{Type: Unavailable, Message: fmt.Sprintf("scratch folder: %v", err), Retryable: true}
	}
	g, err := p.groups.Make(id, l.limits.group())
	if err != nil {
		supervisor.Wipe(scratch)
		u.release()
		p.unreserve()
		return nil, &Error{Type: Unavailable, Message: fmt.Sprintf("control group: %v", err), Retryable: true}
	}
	ex, err := launch(l, p.opt, u, g, id, scratch, p.checkPressure, p.ended)
	if err != nil {
		if ex == nil && !isType(err, Unavailable) { // no process was started
			p.unreserve()
			err = &Error{Type: Unavailable, Message: err.Error(), Retryable: true}
		}
		return nil, err
	}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		ex.mu.Lock()
		p.stats.Starts[l.name]++
		if !ex.ended {
			p.all[ex] = struct{}{}
		}
		ex.mu.Unlock()
	}
	p.mu.Unlock()
	if closed {
		ex.kill(ending{cause: CauseDrained, kind: Unavailable, message: "the worker stops"})
		<-ex.done
		return nil, &Error{Type: Unavailable, Message: "the worker stops", Retryable: true}
	}
	return ex, nil
}

// reserve makes room for one more executor: it ends idle executors outside sessions, then prepared ones of other
// runtimes, then the least recently used idle session. It does not wait until there is room, because another worker may
// be able to run the caller's task sooner.
func (p *Pool) reserve() error {
	for refused := 0; ; {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return &Error{Type: Unavailable, Message: "the worker stops", Retryable: true}
		}
		if p.reserved < p.capacity {
			p.reserved++
			p.mu.Unlock()
			return nil
		}
		end := p.victim(p.opt.IdleEvictable, "executors ran out")
		p.mu.Unlock()
		if end == nil || refused > 3 {
			return &Error{
				Type: Unavailable, Message: fmt.Sprintf("all %d executors are in use", p.capacity), Retryable: true,
				Details: []byte(`{"throttled":true}`),
			}
		}
		if !end() {
			refused++
		}
	}
}

func (p *Pool) unreserve() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved--
}
