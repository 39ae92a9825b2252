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

// Waiting polls are served at the commit that creates a task. Tasks from before the poll must be claimed, but an idle
// fleet must not send claims continuously: a poll queue claims only while it may contain tasks, for all of its pollers
// at once, and stops after an empty claim.

// claimShare is the share of a claim for one waiter.
type claimShare struct {
	entry     *entry
	requested int
	got       []store.Leased
	bytes     int64  // set aside of its response
	first     bool   // so is the place of the first task, which always fits
	age       uint64 // of the waiter's worker when the claim was sent
	lowMemory bool   // its memory is yet to be waited for
}

// kick sends the claims that a waiter needs, starting with the poll queue whose last claim is oldest, so that no kind
// or queue starves another. The caller holds mu.
func (d *Dispatch) kick(w *Waiter) {
	for {
		var next *pollQueue
		for i := range w.entries {
			e := &w.entries[i]
			if !e.linked || e.spot.clear() || w.claimable(e.queue) == 0 {
				continue
			}
			e.spot.group.openForClaim()
			if !e.queue.claiming && e.queue.pause == nil && (next == nil || e.queue.lastClaim < next.lastClaim) {
				next = e.queue
			}
		}
		if next == nil || !d.start(next) {
			return
		}
	}
}

// start sends one claim for all pollers of the poll queue that may find a task, in their order, and reserves their free
// slots until the result arrives. It reports whether it sent a claim. The caller holds mu.
func (d *Dispatch) start(l *pollQueue) bool {
	if d.leaser == nil || d.closed || l.claiming || l.pause != nil {
		return false
	}
	r := store.LeaseRequest{Namespace: l.key.namespace, Queue: l.key.queue, Kind: kindNames[l.key.kind]}
	if r.Kind == protocol.KindWorkflow {
		r.StickyWorkers = d.sticky
	}
	waiting := l.unclear(d.opt.MaxClaim)
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
		// The waiter that is first in the poll queue gets all of its part, or a small task behind it would go past a large
		// one.
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
		// The claim reserves these slots: a commit that creates a task must not use them too, or the poller would get
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

// unclear returns up to most pollers that may find a task in the queue, by arrival. It checks only groups with a
// backlog notification; a group without unclear pollers is skipped until its next notification.
func (l *pollQueue) unclear(most int) (list []*entry) {
	open := l.open[:0]
	for _, g := range l.open {
		some, waits := 0, false
		for e := g.first; e != nil && some < most; e = e.next {
			if !e.spot.clear() {
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
			d.refuse(l, &parts[0], err)
			return
		}
	}
	tasks, err := d.leaser.LeaseTasks(d.life, r)
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.endWork()
	l.claiming = false
	// The order matters: deliver the tasks, record the result of the claim, and only then claim again. A poller that
	// got a task has fewer free slots, and a poller with an empty queue needs no further claim.
	d.judge(l, len(tasks), err)
	d.deal(l, tasks, parts)
	for i := range parts {
		p := &parts[i]
		w := p.entry.waiter
		p.entry.claimAnswered = true
		if !w.closing {
			w.err = err
		}
		if errors.Is(err, store.ErrOutcome) {
			d.doubt(w, err)
		}
		w.budget.endClaim(p.bytes, p.first, p.got)
		w.release(l.key.kind, p.requested-len(p.got))
	}
	for i := range parts {
		e := parts[i].entry
		if err == nil && e.waiter.member.age == parts[i].age {
			e.spot.empty = gen // for remaining tasks the store would have called Backlog before it returned
		}
	}
	for i := range parts {
		d.kick(parts[i].entry.waiter)
	}
	d.start(l)
	for w := range l.asking {
		w.signal() // it may have waited for this claim to begin its own, which is not needed any more or has to wait
	}
}

// memoryWait is the maximum time that a claim waits for the memory of its first task.
const memoryWait = time.Second

func (d *Dispatch) awaitMemory(p *claimShare) error {
	ctx, cancel := context.WithTimeout(d.life, memoryWait)
	defer cancel()
	return p.entry.waiter.budget.memory.Grow(ctx, p.bytes)
}

// refuse ends a poll for whose tasks the app has no memory, and serves the polls behind it.
func (d *Dispatch) refuse(l *pollQueue, p *claimShare, err error) {
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
	d.start(l)
	for w := range l.asking {
		w.signal()
	}
}

// deal delivers each task to the poller that it was leased for. A task whose poller has ended is returned.
func (d *Dispatch) deal(l *pollQueue, tasks []store.Leased, parts []claimShare) {
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

// A poll queue with repeated empty claims pauses between them: tasks that none of its pollers may run must not load the
// store.
const (
	maxEmptyClaims    = 16                    // empty claims in a row before the first rest
	emptyClaimsWindow = 50 * time.Millisecond // a longer time between two of them ends the row
	emptyClaimsPause  = 10 * time.Millisecond
)

// judge limits the claims of a poll queue whose store fails or has nothing for it.
func (d *Dispatch) judge(l *pollQueue, found int, err error) {
	l.err = err
	switch {
	case err != nil:
		d.count.FailedClaims++
		if l.failures == 0 && !d.closed {
			store.Warn(&d.opt.Log, err).Str("queue", l.key.queue).Msg("failed to lease tasks; retrying while polls wait")
		}
		l.failures++
		// Half of the backoff is random. Otherwise the poll queues of all apps would claim at the same time after a database
		// outage.
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

// pauseClaims pauses the claims of the poll queue for a while. When the timer fires, it checks that it is still the
// poll queue's timer: the poll queue may have been resumed in between and have begun another pause.
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
			d.start(l)
		}
	})
	l.pause = timer
}
