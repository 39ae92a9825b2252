package runner

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/internal/clock"
	"github.com/sojourn-run/sojourn/worker/session"
)

// A process may be paused (a laptop sleeps, a virtual machine migrates) and resume with tasks whose leases have
// expired. Therefore the worker checks the lease before it starts code: if the lease has expired, the app may have
// dispatched the task to another worker.

// arrival holds the times of a poll response that contains tasks.
type arrival struct {
	read  time.Time // when this worker read the response
	made  time.Time // earliest time at which the app can have created the response, by this worker's clock
	known bool      // true: made follows from the age of the response; false: made is the time when the poll was sent
	store time.Time // store's clock when the app created the response; zero: the response has no store time
}

// arrived returns the arrival of a response that was just read; its poll was sent at sent. A late response has two
// possible reasons: the app waited for a task before it responded, or the response waited in a socket buffer while this
// process was paused. The age of the response distinguishes these cases. A response is never older than its poll.
func (k *leaseRenewer) arrived(sent time.Time, store history.Time) arrival {
	now := time.Now()
	a := arrival{read: now, made: sent, store: store.Time}
	if store.IsZero() {
		return a
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recordStoreTime(store.Time, sent, now)
	age, known := k.ages.Of(clock.Between(k.origin, now), store.Time)
	if made := now.Add(-age.Longest()); known && age.Agree() && !made.Before(sent) {
		a.made, a.known = made, true
	}
	return a
}

// recordResponse records the store's time from a response without tasks. Its request was sent at sent.
func (k *leaseRenewer) recordResponse(sent, store time.Time) {
	if store.IsZero() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.recordStoreTime(store, sent, now)
	k.ages.Of(clock.Between(k.origin, now), store)
}

// maxStep is how far the store's clock may be behind its known lower bound without counting as set back.
const maxStep = time.Minute

// recordStoreTime records the store's time from a response that was read at now. The caller must hold mu.
func (k *leaseRenewer) recordStoreTime(store, sent, now time.Time) {
	// The app created the response after the request was sent. A store time before that means that the store's clock
	// was set back.
	if !k.store.IsZero() && store.Before(k.bound(sent).Add(-maxStep)) {
		k.store, k.read, k.ages = store, now, clock.Ages{}
		return
	}
	// A delayed response has a store time below the known bound. It must not lower the bound.
	if store.After(k.bound(now)) {
		k.store, k.read = store, now
	}
}

// bound returns a lower bound of the store's clock at now, or zero if no response had a store time. It subtracts 0.1 %
// of the elapsed time because the two clocks do not run at exactly the same speed. The caller must hold mu.
func (k *leaseRenewer) bound(now time.Time) time.Time {
	if k.store.IsZero() {
		return time.Time{}
	}
	since := now.Sub(k.read)
	return k.store.Add(since - since/1000)
}

// storeTime returns a lower bound of the current time of the store's clock.
func (k *leaseRenewer) storeTime() history.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return history.At(k.bound(time.Now()))
}

// leaseStart returns the local time at which a lease of the given length started if it expires at end by the store's
// clock. A longer lease is renewed equally soon.
func (a arrival) leaseStart(end history.Time, length time.Duration) time.Time {
	if a.store.IsZero() || end.IsZero() {
		return a.made
	}
	return a.made.Add(min(0, end.Sub(a.store)-length))
}

// sentAt returns when the app sent the response, by this worker's clock.
func (a arrival) sentAt() time.Time {
	if a.known {
		return a.made
	}
	return a.read
}

// tooOld reports whether the lease of a task in this response has certainly expired.
func (k *leaseRenewer) tooOld(received arrival, end history.Time) bool {
	return received.known && !end.IsZero() && clock.Lease{
		Since: clock.Between(received.made, time.Now()), Lasts: end.Sub(received.store) - k.margin, Known: true,
	}.Judge() == clock.Drop
}

// judge returns whether the code of a leased task may start at now. The caller must hold mu.
func (k *leaseRenewer) judge(l *lease, now time.Time) clock.Verdict {
	return clock.Lease{
		Since: clock.Between(l.renewed, now), Lasts: l.length - l.margin, Known: l.known,
		Paused: k.ticks.PausedSince(l.renewed, now),
	}.Judge()
}

// begin waits until the leases of an attempt and of its session are certainly valid. After a pause, the worker cannot
// know that for tasks that it received before the pause, so it sends a heartbeat and waits for the app's response. If
// begin returns an error, the attempt must not start.
func (k *leaseRenewer) begin(ctx context.Context, l *lease, session time.Time) error {
	for asked := false; ; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		now := time.Now()
		k.mu.Lock()
		verdict := k.judge(l, now)
		switch {
		case l.sessionMoved:
			k.mu.Unlock()
			return &unavailable{"its session went to another holder before it began"}
		case verdict == clock.Drop:
			k.mu.Unlock()
			return &unavailable{"its lease was over before it began"}
		case verdict == clock.Begin && (asked || session.IsZero() || session.After(now)):
			l.doubtSince = time.Time{}
			k.mu.Unlock()
			return nil
		}
		if l.doubtSince.IsZero() {
			l.doubtSince = now
		}
		if l.answered == nil {
			l.answered = make(chan struct{})
		}
		answered := l.answered
		k.mu.Unlock()
		// Wait for the response to a renewal, without a timeout: only the app knows whether the lease is valid.
		k.requestHeartbeat()
		select {
		case <-answered:
			// The response does not mean that the lease is valid, since the app may have rejected the renewal. The next
			// iteration checks the lease again.
			asked = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// confirmed applies a response that renewed the lease. From now on l.renewed is a lower bound: the app renewed the
// lease at that time or later. The caller must hold mu.
func (l *lease) confirmed(a protocol.HeartbeatResponse) {
	l.known, l.doubtSince = false, time.Time{}
	// The lease of the attempt is valid, but the session has another owner or epoch: the attempt must not run in it.
	if mine, row := l.session, a.Session; mine != nil && row != nil &&
		(row.Epoch != mine.Epoch || row.LeaseOwner != l.task.Owner) {
		l.sessionMoved = true
	}
	l.wake()
}

// wake wakes the goroutines that wait in begin for a heartbeat response. The caller must hold mu.
func (l *lease) wake() {
	if l.answered != nil {
		close(l.answered)
		l.answered = nil
	}
}

// sessionOf returns the lease of the attempt's session from the last heartbeat response.
func (k *leaseRenewer) sessionOf(l *lease) session.Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return l.sessionLease
}

// confirmLease waits until the attempt may start code: the activity, or another function such as a rebuild handler.
func (a *attempt) confirmLease(ctx context.Context) error {
	if a.outside { // the app discards the preparation, or refuses the snapshot, when its lease expires
		return context.Cause(ctx)
	}
	return a.r.leases.begin(ctx, a.lease, a.sessionEnd())
}

// sessionEnd returns when the lease of the attempt's session expires, as far as this worker knows. It returns zero if
// the expiry is unknown or the attempt has no session.
func (a *attempt) sessionEnd() (end time.Time) {
	s := a.task.Session
	if s == nil {
		return end
	}
	if !a.received.store.IsZero() && !s.LeaseExpiresAt.IsZero() {
		end = a.received.made.Add(s.LeaseExpiresAt.Sub(a.received.store))
	}
	return later(end, a.r.opt.Sessions.Until(s.SessionID, s.Epoch))
}

// begun is the hook that fails an attempt whose lease has expired, before the attempt enters its session or runs code.
func begun(a *attempt, next call) call {
	return func(ctx context.Context) (payload.Payload, error) {
		if err := a.confirmLease(ctx); err != nil {
			return payload.Payload{}, err
		}
		return next(ctx)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
