package link

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// quietBeat is the maximum interval of heartbeats over connections without notices, where heartbeat responses carry
// them.
const quietBeat = 5 * time.Second

// beatTimeout is the timeout of one heartbeat. A later heartbeat carries the same renewals, and two more must fit into
// the lease.
const beatTimeout = 8 * time.Second

// Beat requests a heartbeat now. Concurrent requests share one heartbeat.
func (l *Link) Beat() {
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// Drain makes heartbeats report that the worker drains.
func (l *Link) Drain() {
	l.mu.Lock()
	l.draining = true
	l.mu.Unlock()
	l.Beat()
}

// heartbeatLoop sends the worker's heartbeats, independently of polls and tasks: every Heartbeat and whenever a lease
// is due for renewal. One call contains all renewals.
func (l *Link) heartbeatLoop(ctx context.Context) {
	timer := time.NewTimer(l.beatEvery())
	defer timer.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-l.kick:
		}
		if l.isDeregistering() {
			return
		}
		if !l.Connected() {
			timer.Reset(until(l.expireHoldings(), time.Now().Add(time.Second)))
			continue
		}
		next := l.sendHeartbeat(ctx)
		last = time.Now()
		timer.Reset(until(next, last.Add(l.beatEvery())))
	}
}

// beatEvery returns the current heartbeat interval, which is shorter during a hand-over.
func (l *Link) beatEvery() time.Duration {
	l.mu.Lock()
	lv := l.live
	l.mu.Unlock()
	every := l.beatInterval(lv)
	if l.opt.Heartbeat <= 0 && (l.handsOver() || l.prepares) {
		every = min(every, handOverBeat)
	}
	return every
}

// beatInterval returns the heartbeat interval on a connection outside of hand-overs, which the worker registers: from
// the options, otherwise from the app, otherwise 10 s. lv may be nil.
func (l *Link) beatInterval(lv *live) time.Duration {
	if l.opt.Heartbeat > 0 {
		return l.opt.Heartbeat
	}
	every := 10 * time.Second
	if lv == nil {
		return every
	}
	if s := lv.settings.BeatSeconds; s > 0 {
		every = time.Duration(s) * time.Second
	}
	if lv.quiet() {
		every = min(every, quietBeat)
	}
	return every
}

// quiet reports whether no notices arrive on the connection.
func (lv *live) quiet() bool {
	q, ok := lv.conn.(quiet)
	return ok && q.Quiet()
}

// quiet reports whether no notices arrive on the current connection.
func (l *Link) quiet() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live != nil && l.live.quiet()
}

// until returns the time until the earlier of two times, with a minimum.
func until(next, latest time.Time) time.Duration {
	if next.IsZero() || next.After(latest) {
		next = latest
	}
	return max(time.Until(next), 10*time.Millisecond)
}

// expireHoldings ends leases and sessions that expired while there is no connection, and returns when to check again.
// It does not report a failed renewal to Holdings, because none was sent: after a failure Holdings would wait before it
// renews again, but the next connection must renew at once.
func (l *Link) expireHoldings() (next time.Time) {
	if l.opt.Holdings != nil {
		_, _, next = l.opt.Holdings.Due(time.Now())
	}
	return next
}

// sendHeartbeat sends one heartbeat with all renewals, and returns the time of the next renewal.
func (l *Link) sendHeartbeat(ctx context.Context) time.Time {
	in := protocol.WorkerHeartbeat{}
	sent := time.Now()
	if l.opt.Holdings != nil {
		in.Leases, in.Sessions, _ = l.opt.Holdings.Due(sent)
		if l.quiet() {
			in.Leases = l.opt.Holdings.Leases()
		}
	}
	l.mu.Lock()
	in.Draining = l.draining
	l.mu.Unlock()
	if l.opt.Preparations != nil {
		in.Preparations = l.opt.Preparations.Preparations(in.Draining || l.Paused())
	}
	l.prepares = len(in.Preparations) > 0
	in.CachedRuns = l.nextCachedRuns()
	in.Machine, _ = json.Marshal(l.machine()) // cannot fail: numbers and text
	call, cancel := context.WithTimeout(ctx, beatTimeout)
	out, err := callRegistered(call, l, "heartbeat", protocol.WorkerVerbs.WorkerHeartbeat, in)
	cancel()
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrConnectionEnded) {
		l.log.Warn().Err(err).Int("leases", len(in.Leases)).Int("sessions", len(in.Sessions)).Msg("heartbeat failed")
	}
	if err == nil {
		l.cachedRunsReported(len(in.CachedRuns))
		l.notifyEnded(out.EndedRuns)
		l.applyIntent(out.Intent, "")
		l.recordHandOvers(in.Draining, out.HandOvers)
		if l.opt.Preparations != nil {
			l.opt.Preparations.Prepared(sent, out)
			l.prepares = l.prepares || len(out.Preparations) > 0
		}
		if out.Settings != l.Settings().Revision {
			go l.refetchSettings(ctx) // renewals must not wait for it
		}
	}
	if l.opt.Holdings == nil {
		return time.Time{}
	}
	l.opt.Holdings.Renewed(sent, in.Leases, in.Sessions, out, err)
	now := time.Now()
	leases, sessions, next := l.opt.Holdings.Due(now)
	if len(leases)+len(sessions) > 0 {
		return now // the renewal became due while this heartbeat was in flight, which may have taken seconds
	}
	return next
}

// refresh fetches the settings over the current connection and registers again, since the settings that operators set
// for all workers can change the registration.
func (l *Link) refresh(ctx context.Context) error {
	l.refreshing.Lock()
	defer l.refreshing.Unlock()
	lv, err := l.wait(ctx)
	if err != nil {
		return err
	}
	s, err := l.fetch(ctx, lv.conn)
	if err != nil {
		return err
	}
	l.mu.Lock()
	if l.live == lv {
		fresh := &live{conn: lv.conn, ctx: lv.ctx, end: lv.end, generation: lv.generation, settings: s}
		l.live = fresh
	}
	l.mu.Unlock()
	l.judge(s.Release, s.Strict)
	if l.opt.OnSettings != nil {
		l.opt.OnSettings(s)
	}
	if s.Revision == lv.settings.Revision {
		return nil
	}
	lv.registering.Lock()
	defer lv.registering.Unlock()
	if l.isDeregistering() {
		return ErrLeft
	}
	if err := l.register(ctx, lv, nil); err != nil {
		// The next connection registers again.
		lv.end(fmt.Errorf("register again with the changed fleet settings: %w", err))
		return err
	}
	return nil
}

// Reregister sends the registration again over the current connection. Without a connection it does nothing, since the
// next connection registers.
func (l *Link) Reregister(ctx context.Context) error {
	l.mu.Lock()
	lv := l.live
	l.mu.Unlock()
	if lv == nil {
		return nil
	}
	lv.registering.Lock()
	defer lv.registering.Unlock()
	if l.isDeregistering() {
		return ErrLeft
	}
	call, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	return l.register(call, lv, nil)
}

// refetchSettings fetches the settings again after the app reported that they have changed.
func (l *Link) refetchSettings(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	if err := l.refresh(call); err != nil && ctx.Err() == nil {
		l.log.Warn().Err(err).Msg("failed to fetch changed settings")
	}
}
