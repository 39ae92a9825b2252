package sandbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/sandbox/frame"
)

// session holds the executors of a session for one epoch, one per runtime. The pool's mutex guards it.
type session struct {
	id       string
	epoch    int64
	pinned   bool
	prepares bool // the worker does not hold the session yet; the epoch is that of its owner
	leaving  bool // its eviction has started
	slots    map[string]*slot
	inflight int
	used     time.Time     // when the last call ended
	quiet    chan struct{} // closed when inflight falls to 0; nil unless waited for
	// true if an earlier holding of this session at this worker was evicted: that is the reason why its state is
	// missing, until it is rebuilt
	evicted atomic.Bool
}

// slot holds one executor of a session. The first call that needs the executor creates the slot.
type slot struct {
	ready chan struct{} // closed when ex or err is set
	ex    *executor
	err   error
}

// tombstone records the end of a holding, so that the next call gets the reason why its state is missing.
type tombstone struct {
	epoch   int64
	cause   Cause
	when    time.Time
	message string
}

// lostError returns the error for a call of the epoch wanted.
func (t tombstone) lostError(id string, epoch, now int64) *SessionLost {
	return &SessionLost{
		Session: id, EpochRequested: epoch, EpochNow: now, Cause: t.cause, When: t.when, Message: t.message,
	}
}

// join returns the executor of a session and runtime, starting it for the first call. Done must be called when the call
// has ended.
func (p *Pool) join(ctx context.Context, inv Invocation, l *language) (ex *executor, done func(), err error) {
	p.mu.Lock()
	s, replaced, err := p.sessionFor(inv)
	if err != nil {
		p.mu.Unlock()
		return nil, nil, err
	}
	s.inflight++
	done = func() {
		defer p.checkPressure()
		p.mu.Lock()
		defer p.mu.Unlock()
		s.used = time.Now()
		if s.inflight--; s.inflight == 0 && s.quiet != nil {
			close(s.quiet)
			s.quiet = nil
		}
	}
	place := s.slots[l.name]
	mine := place == nil
	if mine {
		place = &slot{ready: make(chan struct{})}
		s.slots[l.name] = place
	}
	p.mu.Unlock()
	if replaced != nil {
		p.background(func() {
			p.finishSession(
				context.Background(), replaced,
				ending{cause: CauseClosed, kind: Unavailable, message: "a later holding of the session took its place"},
			)
		})
	}
	if mine {
		p.fillSlot(s, place, l)
	} else {
		select {
		case <-place.ready:
		case <-ctx.Done():
			done()
			return nil, nil, &Error{Type: Cancelled, Message: context.Cause(ctx).Error()}
		}
	}
	if place.err != nil {
		done()
		return nil, nil, place.err
	}
	return place.ex, done, nil
}

// sessionFor finds or creates the holding that a call belongs to; replaced is an older one that the caller must close.
// The caller must hold the mutex.
func (p *Pool) sessionFor(inv Invocation) (s, replaced *session, err error) {
	id, epoch := inv.Session.ID, inv.Session.Epoch
	s = p.sessions[id]
	if s != nil && s.epoch == epoch {
		s.pinned = s.pinned || inv.Session.Pinned
		if inv.Rebuild {
			s.evicted.Store(false)
		}
		return s, nil, nil
	}
	grave, buried := p.tombs[id]
	if s != nil && s.epoch > epoch {
		if !buried || grave.epoch != epoch {
			grave = tombstone{cause: CauseNeverHere, when: time.Now()}
		}
		return nil, nil, grave.lostError(id, epoch, s.epoch)
	}
	if buried && time.Since(grave.when) < tombstoneTime {
		switch {
		case grave.epoch == epoch && !inv.Rebuild:
			return nil, nil, grave.lostError(id, epoch, 0)
		case grave.epoch > epoch:
			return nil, nil, tombstone{cause: CauseNeverHere, when: time.Now()}.lostError(id, epoch, 0)
		}
	}
	if s != nil {
		replaced = s
		p.recordLoss(s, tombstone{epoch: s.epoch, cause: CauseClosed, when: time.Now(), message: "held again under a later epoch"})
	} else if buried && grave.epoch == epoch {
		delete(p.tombs, id)
	}
	s = &session{
		id: id, epoch: epoch, pinned: inv.Session.Pinned, prepares: inv.Session.Prepares, slots: map[string]*slot{},
		used: time.Now(),
	}
	s.evicted.Store(buried && grave.epoch < epoch && grave.cause == CauseEvictedPressure && !inv.Rebuild)
	p.sessions[id] = s
	return s, replaced, nil
}

// recordLoss removes a session and records its loss for later calls; the caller must end its executors and hold the
// mutex.
func (p *Pool) recordLoss(s *session, t tombstone) {
	if p.sessions[s.id] == s {
		delete(p.sessions, s.id)
	}
	if old, ok := p.tombs[s.id]; !ok || old.epoch <= t.epoch {
		p.tombs[s.id] = t
	}
	if now := time.Now(); now.Sub(p.swept) > time.Minute {
		p.swept = now
		for id, t := range p.tombs {
			if now.Sub(t.when) >= tombstoneTime {
				delete(p.tombs, id)
			}
		}
	}
}

// fillSlot puts an executor into a slot and assigns it to the session. It continues if the first call that needs it
// ends, since other calls wait too.
func (p *Pool) fillSlot(s *session, place *slot, l *language) {
	defer close(place.ready)
	ex, err := p.blankExecutor(l)
	p.mu.Lock()
	gone := p.sessions[s.id] != s
	alive := false
	if err == nil {
		_, alive = p.all[ex] // from now on, the session owns it
	}
	if alive && !gone {
		ex.session.Store(s)
		place.ex = ex
		p.mu.Unlock()
		open := frame.Header{T: frame.Open, Session: s.id, Epoch: s.epoch}
		if s.prepares {
			open.Epoch = 0 // calls under an epoch state it
		}
		if ex.send(frame.Frame{Header: open}) != nil {
			<-ex.done // wait for the end, so that begin returns the reason
		}
		return
	}
	if err == nil {
		err = errExited // it ended before it was assigned; the caller tries again and receives the reason
	}
	place.err = err
	delete(s.slots, l.name)
	if len(s.slots) == 0 && !gone {
		delete(p.sessions, s.id) // the session has no state yet
	}
	p.mu.Unlock()
	if ex != nil {
		p.background(func() {
			ex.close(context.Background(), ending{cause: CauseClosed, kind: Unavailable, message: "the session closed"})
		})
	}
}

// CloseSession ends a holding gracefully. It waits for calls in flight (they are killed when ctx ends), runs the close
// hooks for up to five seconds, and removes the scratch folders. The next call of that epoch gets a [*SessionLost] with
// the cause closed, or drained if that is the reason. Epoch 0 means the current epoch. If the pool does not have the
// session, CloseSession does nothing.
func (p *Pool) CloseSession(ctx context.Context, which Session, reason string) error {
	cause := CauseClosed
	switch c := Cause(reason); c {
	case CauseDrained, CauseEvictedIdle, CauseEvictedTTL, CauseEvictedPressure, CauseWorkerLost:
		cause = c
	}
	p.mu.Lock()
	s := p.sessions[which.ID]
	if s == nil || which.Epoch != 0 && s.epoch != which.Epoch {
		p.mu.Unlock()
		return nil
	}
	p.recordLoss(s, tombstone{epoch: s.epoch, cause: cause, when: time.Now(), message: reason})
	p.mu.Unlock()
	p.finishSession(ctx, s, ending{cause: cause, kind: Cancelled, message: "the session was closed: " + reason})
	return nil
}

// AdoptSession makes the executors in which the worker prepared a session those of a holding under a later epoch. No
// call may run in them. If they have ended, it does nothing.
func (p *Pool) AdoptSession(id string, from, to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.sessions[id]
	if old == nil || old.epoch != from || !old.prepares {
		return
	}
	// A new value, because executors read the epoch of theirs without the mutex.
	s := &session{id: id, epoch: to, pinned: old.pinned, slots: old.slots, used: time.Now()}
	p.sessions[id] = s
	for _, place := range s.slots {
		if place.ex != nil {
			place.ex.session.Store(s)
		}
	}
}

// finishSession waits for the calls of a buried session and ends its executors.
func (p *Pool) finishSession(ctx context.Context, s *session, why ending) {
	p.mu.Lock()
	quiet := s.quiet
	if s.inflight > 0 && quiet == nil {
		quiet = make(chan struct{})
		s.quiet = quiet
	}
	p.mu.Unlock()
	if quiet != nil {
		select {
		case <-quiet:
		case <-ctx.Done():
		}
	}
	p.mu.Lock()
	var open []*executor
	for _, place := range s.slots {
		if place.ex != nil {
			open = append(open, place.ex)
		}
	}
	p.mu.Unlock()
	var ending sync.WaitGroup
	for _, ex := range open {
		ending.Go(func() { ex.close(ctx, why) })
	}
	ending.Wait()
}

// ended records that an executor has ended, before the calls in it return: the next call must find the tombstone.
func (p *Pool) ended(ex *executor, why ending) {
	p.mu.Lock()
	delete(p.all, ex)
	p.stats.countEnd(ex.lang.name, why.cause, ex.info().Calls)
	p.reserved--
	p.blanks[ex.lang.name] = without(p.blanks[ex.lang.name], ex)
	for key, list := range p.idle {
		if p.idle[key] = without(list, ex); len(p.idle[key]) == 0 {
			delete(p.idle, key)
		}
	}
	s := ex.session.Load()
	if s == nil || p.sessions[s.id] != s {
		p.mu.Unlock()
		return
	}
	t := tombstone{epoch: s.epoch, cause: why.cause, when: time.Now(), message: why.message}
	p.recordLoss(s, t)
	notify := !p.closed
	p.mu.Unlock()
	p.opt.Logger.Warn().Str("session_id", s.id).Int64("epoch", s.epoch).Str("cause", string(why.cause)).Str(
		"sandbox_id", ex.id,
	).Msg("executor of a session ended; the session's state is lost")
	if notify {
		p.background(func() { p.opt.OnLost(*t.lostError(s.id, s.epoch, 0)) })
	}
	// The session's state is distributed over its executors. If one of them has ended, all state counts as lost.
	p.background(func() {
		p.finishSession(
			context.Background(), s,
			ending{cause: why.cause, kind: Crashed, message: "another executor of the session ended: " + why.message},
		)
	})
}

func without(list []*executor, ex *executor) []*executor {
	for i, other := range list {
		if other == ex {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

// isType reports whether err is an [*Error] of type t.
func isType(err error, t ErrorType) bool {
	var e *Error
	return errors.As(err, &e) && e.Type == t
}
