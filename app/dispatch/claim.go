package dispatch

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Waiting polls receive a task in the commit that creates it. Tasks that existed before the poll must be claimed, but
// an idle fleet must not send claims all the time: a poll queue is claimed only while it may contain tasks, for all of
// its polls at once, and not after an empty claim.

// claimShare is the part of a claim that belongs to one waiter.
type claimShare struct {
	entry     *entry
	requested int
	got       []store.Leased
	bytes     int64  // bytes reserved in its response
	first     bool   // it may also return the first task of the response, which always fits
	age       uint64 // age of the waiter's member when the claim was sent
	lowMemory bool   // the memory for it is not reserved yet
}

// startClaims sends a claim for each poll queue of a waiter that may contain a task for it. It begins with the poll
// queue whose last claim is oldest, so that no kind or queue starves another. The caller must hold mu.
func (d *Dispatch) startClaims(w *Waiter) {
	for {
		var next *pollQueue
		for i := range w.entries {
			e := &w.entries[i]
			if !e.linked || e.spot.hasNoOlderTask() || w.claimable(e.queue) == 0 {
				continue
			}
			e.spot.group.openForClaim()
			if !e.queue.claiming && e.queue.pause == nil && (next == nil || e.queue.lastClaim < next.lastClaim) {
				next = e.queue
			}
		}
		if next == nil || !d.startClaim(next) {
			return
		}
	}
}

// startClaim sends one claim for all polls of the poll queue that may find a task, in their order, and reserves their
// free slots until the result arrives. It reports whether it sent a claim. The caller must hold mu.
func (d *Dispatch) startClaim(l *pollQueue) bool {
	if d.leaser == nil || d.closed || l.claiming || l.pause != nil {
		return false
	}
	r := store.LeaseRequest{Namespace: l.key.namespace, Queue: l.key.queue, Kind: kindNames[l.key.kind]}
	if r.Kind == protocol.KindWorkflow {
		r.StickyWorkers = d.sticky
	}
	waiting := l.claimablePolls(d.opt.MaxClaim)
	if len(waiting) == 0 {
		return false
	}
	r.Pollers = make([]store.Poller, 0, len(waiting))
	parts := make([]claimShare, 0, len(waiting))
	budget := d.opt.MaxClaim
	for _, e := range waiting {
		w := e.waiter
		n := min(w.claimable(l), budget)
		if n == 0 {
			break
		}
		p := claimShare{entry: e, requested: n, age: w.member.age}
		p.bytes, p.first = w.budget.reserveShare(n == w.max)
		// The first waiter of the poll queue gets all of its bytes. Otherwise a small task could be leased to it before
		// a larger, older one.
		if len(parts) == 0 {
			p.lowMemory = !w.budget.memory.Try(p.bytes)
		} else {
			var some bool
			if p.bytes, p.first, some = w.budget.afford(p.bytes, p.first); !some {
				break
			}
		}
		budget -= n
		r.Pollers = append(r.Pollers, store.Poller{
			Lessee: w.spec.Lessee, Max: n, Bytes: p.bytes, First: p.first, Deregistered: &w.registrationEnded,
		})
		parts = append(parts, p)
		// The claim reserves these slots: a commit that creates a task must not use them, too, or the poll would get
		// more tasks than it has slots.
		w.reserveSlots(l.key.kind, n)
		if p.lowMemory {
			break
		}
	}
	d.claims++
	l.claiming, l.lastClaim, l.throttle = true, d.claims, nil
	d.count.Claims++
	d.beginWork()
	go d.claim(l, l.gen, r, parts)
	return true
}

// claimablePolls returns up to most polls for which the queue may contain a task, by arrival. It searches only groups
// that were notified of waiting tasks; a group without such polls is skipped until its next notification.
func (l *pollQueue) claimablePolls(most int) (list []*entry) {
	open := l.open[:0]
	for _, g := range l.open {
		some, waits := 0, false
		for e := g.first; e != nil && some < most; e = e.next {
			if !e.spot.hasNoOlderTask() {
				waits = true
				if e.waiter.claimable(l) > 0 {
					list = append(list, e)
					some++
				}
			}
		}
		if g.open = waits; g.open {
			open = append(open, g)
		}
	}
	clear(l.open[len(open):])
	l.open = open
	slices.SortFunc(list, func(a, b *entry) int { return cmp.Compare(a.waiter.place, b.waiter.place) })
	return list
}

// claim sends a claim to the store and delivers the leased tasks.
func (d *Dispatch) claim(l *pollQueue, gen uint64, r store.LeaseRequest, parts []claimShare) {
	if parts[0].lowMemory {
		if err := d.awaitMemory(&parts[0]); err != nil {
			d.refusePoll(l, &parts[0], err)
			return
		}
	}
	tasks, err := d.leaser.LeaseTasks(d.life, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.endWork()
	l.claiming = false
	// The order matters: deliver the tasks, record the result of the claim, and only then claim again. A poll that got
	// a task has fewer free slots, and a poll of an empty queue needs no further claim.
	d.delayClaims(l, len(tasks), err)
	d.deliverClaimed(l, tasks, parts)
	for i := range parts {
		p := &parts[i]
		w := p.entry.waiter
		p.entry.claimAnswered = true
		if !w.closing {
			w.err = err
		}
		if errors.Is(err, store.ErrOutcome) {
			d.endUncertain(w, err)
		}
		w.budget.endClaim(p.bytes, p.first, p.got)
		w.release(l.key.kind, p.requested-len(p.got))
	}
	for i := range parts {
		e := parts[i].entry
		if err == nil && e.waiter.member.age == parts[i].age {
			e.spot.empty = gen // if tasks had remained, the store would have called Backlog before it returned
		}
	}
	for i := range parts {
		d.startClaims(parts[i].entry.waiter)
	}
	d.startClaim(l)
	for w := range l.asking {
		// the waiter may have waited for this claim before claiming itself; now it need not claim, or must wait again
		w.signal()
	}
}

// memoryWait is the maximum time that a claim waits for the memory of its first task.
const memoryWait = time.Second

func (d *Dispatch) awaitMemory(p *claimShare) error {
	ctx, cancel := context.WithTimeout(d.life, memoryWait)
	defer cancel()
	return p.entry.waiter.budget.memory.Grow(ctx, p.bytes)
}

// refusePoll ends a poll for whose tasks the app has no memory, and serves the polls after it.
func (d *Dispatch) refusePoll(l *pollQueue, p *claimShare, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.endWork()
	w := p.entry.waiter
	l.claiming = false
	d.count.NoMemory++
	w.budget.cancel(p.bytes, p.first)
	if !w.closing && !w.detached {
		if d.life.Err() == nil {
			err = ErrNoMemory
		}
		d.endWait(w, err)
	}
	w.release(l.key.kind, p.requested)
	d.startClaim(l)
	for w := range l.asking {
		w.signal()
	}
}

// deliverClaimed delivers each task to the poll for which it was leased. A task whose poll has ended is released.
func (d *Dispatch) deliverClaimed(l *pollQueue, tasks []store.Leased, parts []claimShare) {
	if len(tasks) == 0 {
		d.count.EmptyClaims++
	}
	var lost []store.Leased
	for _, t := range tasks {
		if t.Poller < 0 || t.Poller >= len(parts) || len(parts[t.Poller].got) == parts[t.Poller].requested {
			d.opt.Log.Error().Str("queue", l.key.queue).Int("poller", t.Poller).Msg("store leased more tasks than the polls requested; requeueing the surplus")
			lost = append(lost, t)
			continue
		}
		p := &parts[t.Poller]
		p.got = append(p.got, t)
		if w := p.entry.waiter; w.detached {
			lost = append(lost, t)
		} else {
			w.got = append(w.got, t)
			d.count.Claimed++
		}
	}
	d.returnTasks(lost)
}

// A poll queue with repeated empty claims pauses between claims: tasks that none of its polls may run must not load the
// store.
const (
	maxEmptyClaims    = 16                    // consecutive empty claims before the first pause
	emptyClaimsWindow = 50 * time.Millisecond // a longer time between two of them starts the count again
	emptyClaimsPause  = 10 * time.Millisecond
)

// delayClaims starts a pause of a poll queue's claims after a failed claim or several empty ones.
func (d *Dispatch) delayClaims(l *pollQueue, found int, err error) {
	l.err = err
	switch {
	case err != nil:
		d.count.FailedClaims++
		if l.failures == 0 && !d.closed {
			store.Warn(&d.opt.Log, err).Str("queue", l.key.queue).Msg("failed to lease tasks; retrying while polls wait")
		}
		l.failures++
		// Half of the backoff is random. Otherwise the poll queues of all apps would claim at the same time after an
		// outage of the database.
		wait := d.opt.BackoffMax
		if shift := l.failures - 1; shift < 16 {
			wait = min(wait, d.opt.Backoff<<shift)
		}
		d.pauseClaims(l, wait-rand.N(wait/2+1))
	case found > 0:
		l.failures, l.vain = 0, 0
	default:
		l.failures = 0
		now := time.Now()
		if now.Sub(l.vainAt) > emptyClaimsWindow {
			l.vain = 0
		}
		l.vain++
		l.vainAt = now
		if l.vain > maxEmptyClaims {
			d.pauseClaims(l, emptyClaimsPause)
		}
	}
}

// pauseClaims pauses the claims of the poll queue. When the timer fires, it checks that it is still the poll queue's
// timer: the pause may have ended early, and another one may have begun.
func (d *Dispatch) pauseClaims(l *pollQueue, wait time.Duration) {
	if d.closed {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if l.pause == timer {
			l.pause = nil
			d.startClaim(l)
		}
	})
	l.pause = timer
}
