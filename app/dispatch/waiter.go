package dispatch

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A Waiter is one poll. If a task is reserved for a poll when the poll ends, the task must not be lost, so every
// delivered task is either returned to the caller or released.

// Spec describes a poll. Its Lessee must not be changed afterwards. The Lessee's Sessions and Counted are not used
// here, since only claims count sessions.
type Spec struct {
	Namespace string
	Queues    []string
	Kinds     []protocol.TaskKind
	Free      map[protocol.TaskKind]int // free slots per kind; 0: the poll does not wait for that kind
	Max       int                       // maximum number of tasks of all kinds; less than 1 means 1
	Lessee    engine.Lessee
	// Budget is the byte budget of the response if other waiters share the response; nil: the response has only this
	// waiter.
	Budget *Budget
	// Own lists the tasks that the outcomes sent with the poll may create. They may be delivered before older tasks,
	// and claims do not use their slots until the poll collects.
	Own []Own
	// Run marks a poll for the next activity of this run: the worker has already run the eager workflow task that
	// schedules the activity. The poll is in no queue, and no claim is sent for it. It has priority over queued polls
	// for that activity.
	Run string
	// Still reports whether the worker is registered; nil: it is. It is called with the dispatcher's lock held and must
	// not call the dispatcher.
	Still func() bool
}

// Own is a task by which a run may continue.
type Own struct {
	Run  string
	Kind protocol.TaskKind
}

// runs returns the runs whose tasks the poll may get before older tasks.
func (s *Spec) runs() (list []string) {
	if s.Run != "" {
		list = append(list, s.Run)
	}
	for _, o := range s.Own {
		if !slices.Contains(list, o.Run) {
			list = append(list, o.Run)
		}
	}
	return list
}

// Waiter is one poll in its poll queues. Exactly one of Wait and Collect must be called, and ends it; Close may be
// called at any time and repeatedly.
type Waiter struct {
	d                 *Dispatch
	spec              Spec
	wake              chan struct{} // receives a value after a change that may end the wait
	registrationEnded atomic.Bool   // the registration of its worker has ended

	// The fields below are guarded by d.mu.
	member   *member
	place    uint64 // number of the waiter's arrival, which determines its position
	free     [kindCount]int
	max      int
	own      [kindCount]int // free slots that are reserved for tasks that its outcomes create
	entries  []entry
	pending  int // number of reservations and claims that have reserved it
	got      []store.Leased
	budget   *Budget
	stopped  bool           // a task did not fit into the response, so the poll must not receive later tasks
	once     bool           // the poll does not wait: it needs one claim of each poll queue that may contain tasks
	closing  bool           // accepts no new tasks
	detached bool           // removed from all poll queues; tasks that still arrive are released
	err      error          // why it was ended, or the error of its latest claim
	held     *protocol.Wait // why a limit delayed its tasks when its wait ended
}

// Enter adds a poll to the poll queue of every task queue and kind that it names, after all waiting polls.
func (d *Dispatch) Enter(s Spec) *Waiter {
	w := &Waiter{d: d, spec: s, wake: make(chan struct{}, 1), max: max(s.Max, 1), budget: s.Budget}
	if w.budget == nil {
		w.budget = NewBudget(protocol.MaxTaskBytes, nil)
	}
	w.spec.Lessee.Counted, w.spec.Lessee.Sessions = false, 0
	w.entries = make([]entry, 0, len(s.Queues)*len(s.Kinds))
	d.mu.Lock()
	defer d.mu.Unlock()
	// The poll's position is assigned first, so that two polls have the same order in every queue.
	d.arrivals++
	w.place = d.arrivals
	w.member = d.member(s.Lessee.Worker)
	w.member.polls = append(w.member.polls, w)
	if s.Run == "" {
		w.budget.waiters = append(w.budget.waiters, w)
	}
	d.waiters[w] = struct{}{}
	if s.Still != nil && !s.Still() {
		w.entries = nil
		d.endPollNow(w)
		return w
	}
	for _, kind := range s.Kinds {
		k := kindOf(kind)
		if k < 0 || s.Free[kind] <= 0 {
			continue
		}
		w.free[k] = s.Free[kind]
		for _, queue := range s.Queues {
			w.enter(d.pollQueue(pollQueueKey{s.Namespace, queue, k}))
		}
	}
	if d.draining {
		d.endWait(w, ErrDraining)
		return w
	}
	for _, run := range s.runs() {
		d.runWaiters[run] = append(d.runWaiters[run], w)
	}
	if s.Run != "" {
		return w
	}
	for _, o := range s.Own {
		if k := kindOf(o.Kind); k >= 0 && w.own[k] < w.free[k] {
			w.own[k]++
		}
	}
	w.relink()
	d.startClaims(w)
	return w
}

func (w *Waiter) enter(l *pollQueue) {
	for i := range w.entries {
		if w.entries[i].queue == l {
			return // the poll names the same queue or kind twice
		}
	}
	l.size++
	w.entries = append(w.entries, entry{queue: l, spot: w.member.spot(l, w.spec.Lessee.Draining), waiter: w})
}

// Wait blocks until a task was delivered, for at most hold. With hold 0 it waits only for the claims that look for
// older tasks. It returns tasks, or an error, or neither if there was no task. If ctx ended, the caller must release
// the returned tasks; the dispatcher releases tasks that arrive later.
//
// The error is ErrDraining, ErrRegistrationEnded, the error passed to Drop, the error of the latest claim at the
// timeout, or the cause of ctx.
func (w *Waiter) Wait(ctx context.Context, hold time.Duration) ([]store.Leased, error) {
	d := w.d
	if hold <= 0 {
		d.mu.Lock()
		w.wakeOnClaims()
		d.mu.Unlock()
	} else {
		timer := time.NewTimer(hold)
		defer timer.Stop()
		if w.waitUntilDone(ctx, timer.C) {
			return w.outcome(ctx)
		}
		d.mu.Lock()
		d.stopDeliveries(w)
		d.mu.Unlock()
	}
	w.settlePending(ctx)
	return w.outcome(ctx)
}

// settlePending waits for commits and claims that have reserved this poll. Their lease is already stored or will be. If
// the poll ended now, another commit would have to release the lease, while the worker polls again.
func (w *Waiter) settlePending(ctx context.Context) {
	w.d.mu.Lock()
	ended := w.done()
	w.d.mu.Unlock()
	if ended {
		return
	}
	timer := time.NewTimer(w.d.opt.Settle)
	defer timer.Stop()
	w.waitUntilDone(ctx, timer.C)
}

// Collect ends the poll and returns the tasks that were delivered to it. It does not wait for new tasks, but it waits
// for a commit or claim that has already reserved the poll, because its tasks would have to be released otherwise. If a
// poll that was sent with outcomes has received no task through them, Collect sends one claim for its queues and waits
// for the result.
func (w *Waiter) Collect(ctx context.Context) []store.Leased {
	w.d.mu.Lock()
	if w.own != [kindCount]int{} && w.pending == 0 && len(w.got) == 0 && !w.closing {
		w.own = [kindCount]int{}
		w.wakeOnClaims()
		w.d.startClaims(w)
	} else {
		w.d.stopDeliveries(w)
	}
	w.d.mu.Unlock()
	w.settlePending(ctx)
	tasks, _ := w.outcome(ctx)
	return tasks
}

// Close ends the poll and releases the tasks that were delivered and not yet returned.
func (w *Waiter) Close() {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	w.d.returnTasks(w.detach())
}

// wakeOnClaims makes all claims of its poll queues wake the waiter, also claims that were not sent for it.
func (w *Waiter) wakeOnClaims() {
	w.once = true
	if w.detached {
		return
	}
	for i := range w.entries {
		l := w.entries[i].queue
		if l.asking == nil {
			l.asking = map[*Waiter]bool{}
		}
		l.asking[w] = true
	}
}

// waitUntilDone blocks until the poll is complete and returns true, or returns false at the timeout or the end of ctx.
func (w *Waiter) waitUntilDone(ctx context.Context, timeout <-chan time.Time) bool {
	for {
		w.d.mu.Lock()
		ended := w.done()
		w.d.mu.Unlock()
		if ended {
			return true
		}
		select {
		case <-w.wake:
		case <-timeout:
			return false
		case <-ctx.Done():
			return true
		}
	}
}

// done reports whether the wait of the poll can end. For this and all methods below, the caller must hold d.mu.
func (w *Waiter) done() bool {
	if w.detached {
		return true
	}
	return w.pending == 0 && (len(w.got) > 0 || w.closing || (w.once && !w.asking()))
}

// asking reports whether a queue may contain a task for the poll and no claim for the poll has returned yet.
func (w *Waiter) asking() bool {
	if w.d.leaser == nil || w.d.closed || w.d.isolates(w.member.worker.Key(), w.member.worker.Incarnation) {
		return false
	}
	if w.full() {
		return false // no claim is sent for it until its own tasks have arrived, which ends its wait
	}
	for i := range w.entries {
		e := &w.entries[i]
		if !e.claimAnswered && !e.spot.hasNoOlderTask() {
			if e.queue.pause == nil || e.queue.err == nil {
				return true
			}
			w.err = e.queue.err // the store fails, so do not wait for the claim
		}
	}
	return false
}

// outcome ends the wait and returns its result.
func (w *Waiter) outcome(ctx context.Context) ([]store.Leased, error) {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	if w.detached {
		return nil, w.err
	}
	for i := range w.entries {
		if w.held == nil {
			w.held = w.entries[i].queue.throttle
		}
	}
	tasks := w.detach()
	if len(tasks) > 0 {
		return tasks, nil
	}
	w.d.count.EmptyPolls++
	if w.err == nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, w.err
}

// Throttled returns the limit that delayed the tasks of an ended poll; nil if none did.
func (w *Waiter) Throttled() *protocol.Wait {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	return w.held
}

// detach ends the waiter and returns the tasks that were delivered to it.
func (w *Waiter) detach() []store.Leased {
	if w.detached {
		return nil
	}
	w.detached = true
	w.relink()
	w.member.removePoll(w)
	for i := range w.entries {
		w.entries[i].queue.size--
		delete(w.entries[i].queue.asking, w)
	}
	delete(w.d.waiters, w)
	for _, run := range w.spec.runs() {
		w.d.runWaiters[run] = slices.DeleteFunc(w.d.runWaiters[run], func(o *Waiter) bool { return o == w })
		if len(w.d.runWaiters[run]) == 0 {
			delete(w.d.runWaiters, run)
		}
	}
	tasks := w.got
	w.got = nil
	w.signal()
	return tasks
}

// stopDeliveries stops new deliveries to a poll. Tasks that are already reserved for it still arrive.
func (d *Dispatch) stopDeliveries(w *Waiter) {
	w.closing = true
	w.relink()
	w.signal()
}

// endWait ends a wait with an error.
func (d *Dispatch) endWait(w *Waiter, err error) {
	w.err = err
	d.stopDeliveries(w)
}

// room returns the number of tasks of a kind that the poll can still accept.
func (w *Waiter) room(kind int) int {
	// A poll with a task ends immediately instead of waiting for more: the worker starts the task sooner, and its next
	// poll arrives meanwhile. For query tasks, skip a process that holds a blamed task if another process can run the
	// query.
	if w.detached || w.closing || len(w.got) > 0 || w.full() ||
		len(w.d.isolated) > 0 && !kindNames[kind].Asked() &&
			w.d.isolates(w.member.worker.Key(), w.member.worker.Incarnation) {
		return 0
	}
	return min(w.free[kind], w.max)
}

// full reports whether the response can contain no further task.
func (w *Waiter) full() bool { return w.stopped || w.budget.spent() }

// claimable returns how many tasks of a poll queue to claim for the waiter.
func (w *Waiter) claimable(l *pollQueue) int {
	n := w.room(l.key.kind)
	if n == 0 || l.fair {
		return n
	}
	kept := 0
	for _, own := range w.own {
		kept += own
	}
	return max(0, min(w.free[l.key.kind]-w.own[l.key.kind], w.max-kept))
}

// reserveSlots reserves n slots for one reservation or claim; release frees the unused slots.
func (w *Waiter) reserveSlots(kind, n int) {
	w.pending++
	w.free[kind] -= n
	w.max -= n
	w.budget.changed()
}

func (w *Waiter) release(kind, n int) {
	w.pending--
	w.free[kind] += n
	w.max += n
	if w.pending == 0 && len(w.got) == 0 {
		w.stopped = false
	}
	w.budget.changed()
	if w.pending == 0 {
		w.signal()
	}
}

// relink adds the poll to the queues in which it can accept a task and removes it from the others. The poll keeps its
// original position, so an unused reservation does not cost its place.
func (w *Waiter) relink() {
	for i := range w.entries {
		e := &w.entries[i]
		if w.spec.Run == "" && w.room(e.queue.key.kind) > 0 {
			e.link()
		} else {
			e.unlink()
		}
	}
}

func (w *Waiter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}
