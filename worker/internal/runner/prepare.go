package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/session"
)

// The app may request the set-up of a session that another, draining worker owns. The set-up runs without an attempt
// and without an epoch. Each heartbeat reports all preparations, and its response says which of them this worker keeps,
// which it discards, and which sessions it has acquired.

// preparations are the sessions that this worker prepares.
type preparations struct {
	r    *Runner
	runs sync.WaitGroup // running set-ups

	mu     sync.Mutex // guards the fields below, and the preparations
	all    map[string]*preparation
	closed bool
}

// preparation is the set-up of one session for an epoch of its owner.
type preparation struct {
	holding  *session.Holding
	session  *protocol.SessionAffinity
	cancel   context.CancelCauseFunc
	done     bool // the set-up has ended without an error
	seconds  float64
	snapshot string // checksum of the owner's snapshot that the worker restores; empty: none
	restored bool   // the snapshot is restored
	failed   string // why the preparation ended; empty: it did not
}

var errDiscarded = errors.New("the session is no longer prepared")

// Preparations returns the preparations for a heartbeat. A draining worker gives all of them up.
func (r *Runner) Preparations(draining bool) []protocol.SessionPreparation {
	p := &r.preparations
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]protocol.SessionPreparation, 0, len(p.all))
	for id, one := range p.all {
		if why := one.holding.Discarded(); why != "" && one.failed == "" {
			one.failed = why
		}
		if draining && one.failed == "" {
			one.failed = "the worker drains"
		}
		list = append(list, protocol.SessionPreparation{
			SessionID: id, Epoch: one.holding.Epoch, Prepared: one.done && one.failed == "", Failed: one.failed,
			Seconds: one.seconds, Snapshot: one.snapshot, Restored: one.restored && one.failed == "",
		})
	}
	return list
}

// Prepared applies the states of preparations in the response to a heartbeat that was sent at sent.
func (r *Runner) Prepared(sent time.Time, a protocol.WorkerHeartbeatResponse) {
	p := &r.preparations
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range a.Preparations {
		one := p.all[s.SessionID]
		known := one != nil && one.holding.Epoch == s.Epoch
		switch {
		case s.State == protocol.PreparationPreparing && s.Session != nil && !known:
			p.start(s)
		case s.State == protocol.PreparationPreparing && known && s.Snapshot != nil &&
			one.done && one.failed == "" && one.snapshot == "" && !p.closed:
			p.restorePrepared(one, s)
		case s.State == protocol.PreparationAcquired && s.Session != nil:
			lease := session.Lease{Sent: sent, Store: a.StoreTime.Time, End: s.Session.LeaseExpiresAt.Time}
			r.opt.Sessions.Acquired(s.Session, s.Epoch, lease)
			if known {
				delete(p.all, s.SessionID)
			}
		case s.State == protocol.PreparationSnapshot && r.opt.TakeSnapshot != nil:
			r.opt.TakeSnapshot(s.SessionID, s.Epoch)
		case s.State == protocol.PreparationDiscarded && known:
			p.discard(s.SessionID)
		}
	}
}

// start runs the set-up of a session in the background. The caller must hold mu.
func (p *preparations) start(s protocol.PreparationState) {
	if p.closed {
		return
	}
	p.discard(s.SessionID)
	ctx, cancel := context.WithCancelCause(p.r.life)
	one := &preparation{holding: p.r.opt.Sessions.Prepare(s.Session, s.Epoch), cancel: cancel, session: s.Session}
	p.all[s.SessionID] = one
	p.runs.Go(func() {
		began := time.Now()
		err := p.r.prepare(ctx, one.holding, s.Session)
		p.ended(ctx, one, s.Session.Definition, time.Since(began).Seconds(), err)
		cancel(nil)
		p.r.opt.Link.Beat()
	})
}

// ended records the end of a set-up and logs it.
func (p *preparations) ended(ctx context.Context, one *preparation, def string, seconds float64, err error) {
	h, log := one.holding, p.r.log.With().Str("session_id", one.holding.ID).Str("definition", def).Logger()
	p.mu.Lock()
	defer p.mu.Unlock()
	one.seconds = seconds
	switch {
	case err == nil && h.SetUp():
		one.done = true
		log.Info().Float64("set_up_seconds", seconds).Msg("session set up for a hand-over")
		return
	case err == nil || ctx.Err() != nil:
		one.failed = errDiscarded.Error()
	default:
		one.failed = protocol.ErrorText(err.Error())
		log.Warn().Str("error", one.failed).Msg("failed to set up a session for a hand-over")
	}
	h.CloseState()
}

// discard ends a preparation and drops its state. The caller must hold mu.
func (p *preparations) discard(id string) {
	if one := p.all[id]; one != nil {
		delete(p.all, id)
		one.cancel(errDiscarded)
		p.r.opt.Sessions.Discard(id, one.holding.Epoch, errDiscarded.Error())
	}
}

// close discards all preparations and waits for their set-ups.
func (p *preparations) close() {
	p.mu.Lock()
	p.closed = true
	for id := range p.all {
		p.discard(id)
	}
	p.mu.Unlock()
	p.runs.Wait()
}

// prepare runs the set-up of a session by its definition. It fills the state of the holding.
func (r *Runner) prepare(ctx context.Context, h *session.Holding, s *protocol.SessionAffinity) (err error) {
	def, ok := r.opt.Definitions.FindSession(s.Definition)
	if !ok {
		return fmt.Errorf("session definition %s is not registered here", s.Definition)
	}
	stack.Grow()
	defer func() {
		if p := recover(); p != nil {
			err = panicError(p)
		}
	}()
	a := r.outsideOfAttempt(h, s, def)
	a.prepares = true
	return a.runSetUp(ctx, def, func() {})
}
