package sandbox

import (
	"context"
	"time"
)

// evictTime is the time that the owner of a session has to agree to its eviction.
const evictTime = 10 * time.Second

// resident returns the resident memory in bytes of all executors, as last reported by their supervisors. The caller
// must hold the mutex.
func (p *Pool) resident() (bytes int64) {
	for ex := range p.all {
		bytes += ex.resident.Load()
	}
	return bytes
}

// checkPressure starts to end idle executors if all executors together exceed their memory limit. It is called when an
// executor has grown and when a call has ended, and does not block.
func (p *Pool) checkPressure() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.relieving || p.closed || p.draining || p.resident() <= p.memory {
		return
	}
	p.relieving = true
	p.work.Go(p.relieve)
}

// relieve ends executors, in the order in which victim returns them, until the others fit into the limit or victim
// returns none.
func (p *Pool) relieve() {
	for refused := 0; ; {
		p.mu.Lock()
		excess := p.resident()
		var end func() bool
		if excess > p.memory && !p.closed && !p.draining && refused <= 3 {
			end = p.victim(0, "the executors of the worker ran out of memory")
		}
		if end == nil {
			p.relieving = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		p.opt.Logger.Info().Int64("resident_bytes", excess).Int64("limit_bytes", p.memory).Msg("executor memory limit exceeded; ending the executor that uses most above its share")
		if !end() {
			refused++
		}
	}
}

// victim selects an executor to end and returns a function that ends it: first idle executors outside sessions, then
// prepared ones, then the least recently used session that was idle for at least the given time. It never selects
// pinned sessions and sessions with running calls. It returns nil without a candidate; the returned function reports
// whether the executor was ended. The caller must hold the mutex.
func (p *Pool) victim(idle time.Duration, why string) (end func() bool) {
	for key, list := range p.idle {
		if len(list) > 0 {
			ex := list[0]
			p.idle[key] = append([]*executor(nil), list[1:]...)
			return func() bool { p.retireExecutor(ex); return true }
		}
	}
	for name, list := range p.blanks {
		if len(list) > 0 {
			ex := list[0]
			p.blanks[name] = append([]*executor(nil), list[1:]...)
			return func() bool { p.retireExecutor(ex); return true }
		}
	}
	var oldest *session
	for _, s := range p.sessions {
		if !s.pinned && !s.leaving && s.inflight == 0 && time.Since(s.used) >= idle &&
			(oldest == nil || s.used.Before(oldest.used)) {
			oldest = s
		}
	}
	if oldest == nil {
		return nil
	}
	oldest.leaving = true
	return func() bool { return p.evict(oldest, why) }
}

// evict ends an idle session. Its owner is notified first and may refuse.
func (p *Pool) evict(s *session, why string) bool {
	t := tombstone{epoch: s.epoch, cause: CauseEvictedPressure, when: time.Now(), message: why}
	lost := *t.lostError(s.id, s.epoch, 0)
	if p.opt.OnEvict != nil {
		ctx, cancel := context.WithTimeout(context.Background(), evictTime)
		defer cancel()
		if !p.opt.OnEvict(ctx, lost) {
			p.mu.Lock()
			s.leaving, s.used = false, time.Now()
			p.mu.Unlock()
			return false
		}
	}
	p.mu.Lock()
	there := p.sessions[s.id] == s
	if there {
		p.recordLoss(s, t)
	}
	p.mu.Unlock()
	if there && p.opt.OnEvict == nil {
		p.opt.OnLost(lost) // report the loss before the executor is killed
	}
	p.finishSession(context.Background(), s, ending{cause: CauseEvictedPressure, kind: Unavailable, message: t.message})
	return true
}
