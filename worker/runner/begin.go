package runner

import (
	"context"
	"time"

	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/payload"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/clock"
	"github.com/sojourn-run/sojourn/worker/session"
)

// A process may be paused (a laptop that sleeps, a virtual machine that is moved) and wake up with tasks whose leases
// are long over. Before any code begins, it is made certain that the lease still lives: what is begun late may run on
// another worker at the same time.

// arrival is how an answer with tasks came.
type arrival struct {
	read  time.Time // when it was read
	made  time.Time // when the app made it, as far as is known: not later than that
	known bool      // made comes from the answer's age; else it is only when the poll was sent
	store time.Time // the store's time when it was made; zero: the app did not say
}

// arrived judges an answer to a poll that was sent at that time and has just been read. The poll may have been held for
// longer than a lease, and the answer may have lain in a buffer while this process was paused. Its age tells which; it
// cannot be older than the poll.
func (k *leaseRenewer) arrived(sent time.Time, store history.Time) arrival {
	now := time.Now()
	a := arrival{read: now, made: sent, store: store.Time}
	if store.IsZero() {
		return a
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.noteTime(store.Time, sent, now)
	age, known := k.ages.Of(clock.Between(k.origin, now), store.Time)
	if made := now.Add(-age.Longest()); known && age.Agree() && !made.Before(sent) {
		a.made, a.known = made, true
	}
	return a
}

// aged records the store's time in a response without tasks, to a request that was sent at sent.
func (k *leaseRenewer) aged(sent, store time.Time) {
	if store.IsZero() {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.noteTime(store, sent, now)
	k.ages.Of(clock.Between(k.origin, now), store)
}

// maxStep is the largest distance of the store's clock behind its known bound that is not a step back.
const maxStep = time.Minute

// noteTime notes the store's time in an answer that was read now; mu is held.
func (k *leaseRenewer) noteTime(store, sent, now time.Time) {
	// The response was made after its request was sent. A time before that means that the store's clock was set back.
	if !k.store.IsZero() && store.Before(k.bound(sent).Add(-maxStep)) {
		k.store, k.read, k.ages = store, now, clock.Ages{}
		return
	}
	// An answer that lay somewhere for long tells a time that is behind what is known already; it must not set the
	// bound back.
	if store.After(k.bound(now)) {
		k.store, k.read = store, now
	}
}

// bound is a time that the store's clock has passed by now, zero if nobody has told it; mu is held. The two
// clocks do not run at exactly the same speed, so a thousandth is allowed for.
func (k *leaseRenewer) bound(now time.Time) time.Time {
	if k.store.IsZero() {
		return time.Time{}
	}
	since := now.Sub(k.read)
	return k.store.Add(since - since/1000)
}

// storeTime is a lower bound of the store's time.
func (k *leaseRenewer) storeTime() history.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return history.At(k.bound(time.Now()))
}

// rests is the moment from which a lease that ends at that time of the store lives for length. What the app
// leased for longer is renewed just as soon.
func (a arrival) rests(end history.Time, length time.Duration) time.Time {
	if a.store.IsZero() || end.IsZero() {
		return a.made
	}
	return a.made.Add(min(0, end.Sub(a.store)-length))
}

// began is when the app sent what arrived, by this side's clock.
func (a arrival) began() time.Time {
	if a.known {
		return a.made
	}
	return a.read
}

// tooOld says whether what arrived in this way was leased until a time that is past beyond doubt.
func (k *leaseRenewer) tooOld(came arrival, end history.Time) bool {
	return came.known && !end.IsZero() && clock.Lease{
		Since: clock.Between(came.made, time.Now()), Lasts: end.Sub(came.store) - k.margin, Known: true,
	}.Judge() == clock.Drop
}

// judge says whether what is leased may begin at now; mu is held.
func (k *leaseRenewer) judge(l *lease, now time.Time) clock.Verdict {
	return clock.Lease{
		Since: clock.Between(l.renewed, now), Lasts: k.length - k.margin, Known: l.known,
		Stood: k.ticks.StoodSince(l.renewed, now),
	}.Judge()
}

// begin waits until an attempt may begin: its lease, and that of its session, live beyond doubt. A process that was
// paused does not know whether they do for what it was given before, and asks the app. An error says why the attempt
// may not begin.
func (k *leaseRenewer) begin(ctx context.Context, l *lease, session time.Time) error {
	for asked := false; ; {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		now := time.Now()
		k.mu.Lock()
		verdict := k.judge(l, now)
		switch {
		case l.gone:
			k.mu.Unlock()
			return &unavailable{"its session went to another holder before it began"}
		case verdict == clock.Drop:
			k.mu.Unlock()
			return &unavailable{"its lease was over before it began"}
		case verdict == clock.Begin && (asked || session.IsZero() || session.After(now)):
			l.doubt = time.Time{}
			k.mu.Unlock()
			return nil
		}
		if l.doubt.IsZero() {
			l.doubt = now
		}
		if l.answered == nil {
			l.answered = make(chan struct{})
		}
		answered := l.answered
		k.mu.Unlock()
		// It waits for an answer to a renewal and not for a time: only the app can say whether the lease lives.
		k.beat()
		select {
		case <-answered:
			// An answer that came leaves it to the lease to judge. It is not taken as a yes: the renewal may have
			// been refused.
			asked = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// confirmed takes the answer that renewed a lease; mu is held. What the lease rests on now is a bound: it was
// renewed later than that.
func (l *lease) confirmed(a protocol.HeartbeatAnswer) {
	l.known, l.doubt = false, time.Time{}
	// The lease of the attempt lives, but its session continued without it: to begin now would be next to the new holder.
	if mine, row := l.session, a.Session; mine != nil && row != nil &&
		(row.Epoch != mine.Epoch || row.LeaseOwner != l.task.Owner) {
		l.gone = true
	}
	l.wake()
}

// wake continues with who waits for an answer; mu is held.
func (l *lease) wake() {
	if l.answered != nil {
		close(l.answered)
		l.answered = nil
	}
}

// sessionOf is the last that an answer said of the lease of the attempt's session.
func (k *leaseRenewer) sessionOf(l *lease) session.Lease {
	k.mu.Lock()
	defer k.mu.Unlock()
	return l.said
}

// may waits until the attempt may begin, or continues with another piece of its code.
func (a *attempt) may(ctx context.Context) error {
	return a.r.leases.begin(ctx, a.lease, a.sessionEnd())
}

// sessionEnd is when the lease of the attempt's session ends as far as this side knows; zero: it does not, or there is
// no session.
func (a *attempt) sessionEnd() (end time.Time) {
	s := a.task.Session
	if s == nil {
		return end
	}
	if !a.came.store.IsZero() && !s.LeaseExpiresAt.IsZero() {
		end = a.came.made.Add(s.LeaseExpiresAt.Sub(a.came.store))
	}
	return later(end, a.r.opt.Sessions.Until(s.SessionID, s.Epoch))
}

// begun keeps an attempt from taking up its session, or running, on a lease that has ended.
func begun(a *attempt, next call) call {
	return func(ctx context.Context) (payload.Payload, error) {
		if err := a.may(ctx); err != nil {
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
