// Package dispatch holds the open polls of this app and delivers tasks to them. A poll receives a task either in the
// transaction that makes the task ready, or through a claim.
//
// Before the committer writes a task, it reserves a waiting poll for the task; after the commit it delivers the task to
// that poll without a claim. For tasks that became ready before a poll arrived, the dispatcher sends one claim per
// queue and kind for all waiting polls. It remembers an empty claim until the store reports new tasks, so a waiting
// poll costs no SQL statements.
package dispatch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// These are the reasons why a wait ends without a task, apart from a timeout.
var (
	ErrDraining = errors.New("app is draining")
	// ErrDrained: the worker or the build of a queue is drained; the worker may poll again with its other queues.
	ErrDrained = errors.New("the worker is drained by an operator")
	// ErrRegistrationEnded: the process of the worker deregistered, was removed, or was superseded.
	ErrRegistrationEnded = errors.New("registration ended")
	// ErrNoMemory: the memory for the poll's response did not become free in time.
	ErrNoMemory = errors.New("memory budget exhausted: no memory for the tasks of a poll response")
)

// TaskLeaser is the part of a store to which claims are sent.
type TaskLeaser interface {
	LeaseTasks(ctx context.Context, r store.LeaseRequest) ([]store.Leased, error)
}

// Options tunes a Dispatch. The zero value works.
type Options struct {
	MaxClaim int // maximum number of tasks of one claim; 256
	// Pause after the first failed claim; it doubles with each further failure up to BackoffMax; 50 ms.
	Backoff time.Duration
	// BackoffMax is the longest pause between claims while the store fails; 5 s.
	BackoffMax time.Duration
	// Settle is how long a poll waits after its timeout for a commit or claim that has already reserved it; 2 s. A task
	// that arrives later is released.
	Settle time.Duration
	Log    zerolog.Logger
}

func (o Options) defaults() Options {
	if o.MaxClaim <= 0 {
		o.MaxClaim = 256
	}
	if o.Backoff <= 0 {
		o.Backoff = 50 * time.Millisecond
	}
	if o.BackoffMax <= 0 {
		o.BackoffMax = 5 * time.Second
	}
	if o.Settle <= 0 {
		o.Settle = 2 * time.Second
	}
	return o
}

// Dispatch is the store.Dispatcher of one process. All methods are safe for concurrent use; those of store.Dispatcher
// never block.
type Dispatch struct {
	Hub
	opt  Options
	life context.Context // context of claims; it ends when Close stops waiting for them
	stop context.CancelFunc

	mu             sync.Mutex // guards all fields below, and all poll queues, waiters and members
	leaser         TaskLeaser
	returnLeases   func([]store.Leased)
	sticky         func(run string) []store.Process
	onProcessEnded []func(store.Process)
	decided        func()
	pulse          func(time.Time)
	due            time.Time // earliest time that was passed to Due before Bind
	pollQueues     map[pollQueueKey]*pollQueue
	members        map[engine.WorkerKey]*member
	classes        map[string]*class
	waiters        map[*Waiter]struct{}
	routes         map[engine.QueueKey]string
	runWaiters     map[string][]*Waiter // waiters for the next activity of a run, by run
	// incarnations of workers that hold a blamed task and receive no other task
	isolated map[engine.WorkerKey]string
	pruneAt  int    // number of poll queues and workers at which unused ones are removed
	arrivals uint64 // number of arrived waiters; determines their order
	claims   uint64 // number of claims; determines their order
	draining bool
	closed   bool
	busy     int           // reservations and claims without an outcome, and releases in progress
	quiet    chan struct{} // closed when busy becomes 0 after Close
	count    Counts
}

var _ store.Dispatcher = (*Dispatch)(nil)

// New creates a Dispatch. It accepts polls immediately and sends claims after Bind.
func New(o Options) *Dispatch {
	d := &Dispatch{
		opt:        o.defaults(),
		pollQueues: map[pollQueueKey]*pollQueue{},
		members:    map[engine.WorkerKey]*member{},
		classes:    map[string]*class{},
		waiters:    map[*Waiter]struct{}{},
		routes:     map[engine.QueueKey]string{},
		runWaiters: map[string][]*Waiter{},
		isolated:   map[engine.WorkerKey]string{},
		pruneAt:    pruneMinimum,
		quiet:      make(chan struct{}),
	}
	d.life, d.stop = context.WithCancel(context.Background())
	return d
}

// Bind connects the dispatcher to the store. The store cannot be opened without a dispatcher, so Bind is called
// afterwards. back releases leased tasks whose poll has ended. It runs on a separate goroutine, must return eventually,
// and must not count the delivery as an attempt. pulse notifies the sweeper of the time at which something becomes due,
// and must not block. back and pulse may be nil.
func (d *Dispatch) Bind(c TaskLeaser, back func([]store.Leased), pulse func(time.Time)) {
	d.mu.Lock()
	d.leaser, d.returnLeases, d.pulse = c, back, pulse
	// A commit may have called Due before there was a sweeper. Pass the time on now, so that this work need not wait
	// until the next call.
	due := d.due
	d.due = time.Time{}
	for _, l := range d.pollQueues {
		d.startClaim(l)
	}
	d.mu.Unlock()
	if pulse != nil && !due.IsZero() {
		pulse(due)
	}
}

// Prefer sets a function that returns the processes with a run in their sticky caches, the best first. A workflow task
// of the run is delivered to a waiting poll of the first of them. If none of these processes polls, another worker gets
// the task immediately. workers must not block. Call Prefer before Bind.
func (d *Dispatch) Prefer(workers func(run string) []store.Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sticky = workers
}

// OnProcessEnded adds a function that Deregistered calls with the process before it ends the polls of that process.
// Functions are called in the order in which they were added; they must not block. Call it before Bind.
func (d *Dispatch) OnProcessEnded(f func(store.Process)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onProcessEnded = append(d.onProcessEnded, f)
}

// Backlog reports that the queue has ready tasks to claim. Remembered empty claims are then no longer valid for workers
// that can run tasks with these routing keys, or for all workers if there are no routing keys.
func (d *Dispatch) Backlog(namespace, queue string, kind protocol.TaskKind, keys ...store.RoutingKey) {
	k := kindOf(kind)
	if k < 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if queue == "" {
		d.markClaimable(func(l pollQueueKey) bool { return l.namespace == namespace && l.kind == k })
		return
	}
	if l := d.pollQueues[pollQueueKey{namespace, queue, k}]; l != nil { // without a poll queue there has been no poll
		l.recordReady(keys)
		d.startClaim(l)
	}
}

// markClaimable marks poll queues as possibly containing tasks, for all polls.
func (d *Dispatch) markClaimable(which func(pollQueueKey) bool) {
	for k, l := range d.pollQueues {
		if which(k) {
			l.recordReady(nil)
			d.startClaim(l)
		}
	}
}

// Throttled records that a limit delayed tasks of the current claim; the store calls it before it responds to the
// claim. The next claim is useful only after a lease of the queue has ended, which the store reports through Backlog,
// or after t.Wait.
func (d *Dispatch) Throttled(namespace, queue string, kind protocol.TaskKind, t engine.Throttle) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.pollQueues[pollQueueKey{namespace, queue, kindOf(kind)}]
	if l == nil {
		return
	}
	l.throttle = t.Why
	d.count.Throttled++
	if t.Wait > 0 {
		l.recordReady(nil) // the queue is not empty: claim it again after the pause
		d.pauseClaims(l, t.Wait)
	}
}

// Queue reports changed settings of a queue. A limit may now admit tasks, and polls of drained workers or drained
// builds can no longer receive tasks.
func (d *Dispatch) Queue(q *engine.Queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	concerns := func(k pollQueueKey) bool { return k.namespace == q.Namespace && (q.Name == "" || k.queue == q.Name) }
	if d.decided != nil {
		d.decided()
	}
	moved := d.routes[q.Key()] != q.Group // polls wait only in queues that are routed to their group
	if d.routes[q.Key()] = q.Group; q.Group == "" {
		delete(d.routes, q.Key())
	}
	for w := range d.waiters {
		worker := w.spec.Lessee.Worker
		if moved && worker.Namespace == q.Namespace {
			d.endWait(w, ErrDrained)
			continue
		}
		if worker.Namespace == q.Namespace && q.DrainOf(worker) != nil &&
			!w.spec.Lessee.Draining {
			d.endWait(w, ErrDrained)
			continue
		}
		if !q.Drained(worker.BuildID) {
			continue
		}
		for i := range w.entries {
			if k := w.entries[i].queue.key; concerns(k) && q.Name != "" {
				d.endWait(w, ErrDrained)
				break
			}
		}
	}
	for k, l := range d.pollQueues {
		if concerns(k) {
			l.resume()
		}
	}
	// Claim again for all polls: raising a limit or ending a drain creates no task, so no commit reports the tasks that
	// can be leased now.
	d.markClaimable(concerns)
}

// Missed reports that notifications of other apps were lost. It invalidates all remembered empty claims, and reports an
// overflow to all watchers, which then read their rows again.
func (d *Dispatch) Missed() {
	d.mu.Lock()
	d.markClaimable(func(pollQueueKey) bool { return true })
	d.mu.Unlock()
	d.missed()
}

// Due notifies the sweeper that a row becomes due at a time.
func (d *Dispatch) Due(at time.Time) {
	if at.IsZero() {
		return
	}
	d.mu.Lock()
	pulse := d.pulse
	if pulse == nil && (d.due.IsZero() || at.Before(d.due)) {
		d.due = at
	}
	d.mu.Unlock()
	if pulse != nil {
		pulse(at)
	}
}

// Recheck invalidates the remembered empty claims of a worker. Call it after a change that lets the worker receive
// tasks that were ready before and that no Backlog reports, for example after the end of a session of a worker at its
// maximum.
func (d *Dispatch) Recheck(k engine.WorkerKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for m := d.members[k]; m != nil; m = m.before {
		m.forgetEmptyClaims()
	}
	for _, w := range d.pollers(k) {
		d.startClaims(w)
	}
}

// OnDecided adds a function that is called after the settings of a queue or a namespace change. It must not block.
func (d *Dispatch) OnDecided(decided func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decided = decided
}

// Drop ends the waits of a worker's polls with err. Tasks that are reserved for them are still delivered. With
// ErrDraining, the polls for sessions that the worker hands over continue.
func (d *Dispatch) Drop(k engine.WorkerKey, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.pollers(k) {
		if !errors.Is(err, ErrDraining) || !w.spec.Lessee.Draining {
			d.endWait(w, err)
		}
	}
}

// Deregistered ends the open polls of a process with ErrRegistrationEnded, because the registration of that process has
// ended. Tasks that are reserved for these polls are released, because the process may no longer be running. The
// OnProcessEnded functions run first: from then on, the Still function of a new poll's Spec must reject polls of the
// process.
func (d *Dispatch) Deregistered(p store.Process) {
	d.mu.Lock()
	gone := d.onProcessEnded
	d.mu.Unlock()
	for _, f := range gone {
		f(p)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.pollers(p.Worker) {
		if w.spec.Lessee.Worker.Incarnation == p.Incarnation {
			d.endPollNow(w)
		}
	}
}

// endPollNow ends a poll immediately and releases the tasks that were already delivered to it.
func (d *Dispatch) endPollNow(w *Waiter) {
	// The poll ends immediately instead of waiting for tasks that are reserved for it. The process has ended, so no
	// worker could run such a task before its lease expires.
	w.err, w.closing = ErrRegistrationEnded, true
	w.registrationEnded.Store(true)
	d.returnTasks(w.detach())
}

// LeaseExpired ends the open polls of a worker whose lease expired, as if the polls had timed out. A live worker polls
// again, which proves that it is alive. A task that is delivered to a paused worker, or over a broken connection, would
// be lost again.
func (d *Dispatch) LeaseExpired(k engine.WorkerKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.pollers(k) {
		d.stopDeliveries(w)
	}
}

// Isolate excludes the open polls of a process from dispatch because the process holds a blamed task and receives no
// other task, or includes them again. An excluded poll stays open.
func (d *Dispatch) Isolate(p store.Process, alone bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if alone {
		d.isolated[p.Worker] = p.Incarnation
	} else if d.isolated[p.Worker] == p.Incarnation {
		delete(d.isolated, p.Worker)
	}
	for m := d.members[p.Worker]; m != nil; m = m.before {
		if !alone {
			m.forgetEmptyClaims()
		}
	}
	for _, w := range d.pollers(p.Worker) {
		w.relink()
		if !alone {
			d.startClaims(w)
		}
	}
}

// Isolated reports whether a process holds a blamed task and receives no other task.
func (d *Dispatch) Isolated(p store.Process) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.isolates(p.Worker, p.Incarnation)
}

func (d *Dispatch) isolates(k engine.WorkerKey, incarnation string) bool {
	is, ok := d.isolated[k]
	return ok && is == incarnation
}

// Drain ends all polls with ErrDraining, now and from now on. Tasks that are reserved for them are still delivered.
func (d *Dispatch) Drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.endPolls()
}

func (d *Dispatch) endPolls() {
	d.draining = true
	for w := range d.waiters {
		d.endWait(w, ErrDraining)
	}
}

// Close drains the dispatcher and waits until no reservation, claim or release is in progress. If ctx ends first, it
// cancels the claims and returns an error. The store must still be open.
func (d *Dispatch) Close(ctx context.Context) error {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		d.endPolls()
		for _, l := range d.pollQueues {
			l.resume()
		}
		if d.busy == 0 {
			close(d.quiet)
		}
	}
	d.mu.Unlock()
	defer d.stop()
	select {
	case <-d.quiet:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginWork and endWork count the work for which Close waits. The caller must hold mu.
func (d *Dispatch) beginWork() { d.busy++ }

func (d *Dispatch) endWork() {
	if d.busy--; d.busy == 0 && d.closed {
		select {
		case <-d.quiet: // Close no longer waits
		default:
			close(d.quiet)
		}
	}
}

// returnTasks releases tasks that were leased for a poll that has ended. The caller must hold mu.
func (d *Dispatch) returnTasks(tasks []store.Leased) {
	if len(tasks) == 0 {
		return
	}
	d.count.Returned += int64(len(tasks))
	back := d.returnLeases
	if back == nil {
		return // their leases expire
	}
	d.beginWork()
	go func() {
		back(tasks)
		d.mu.Lock()
		d.endWork()
		d.mu.Unlock()
	}()
}
