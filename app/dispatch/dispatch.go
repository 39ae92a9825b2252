// Package dispatch holds the open polls of this app and delivers tasks to them. A task reaches a poll either in the
// transaction that makes the task ready, or through a claim.
//
// Before the committer writes a task, it reserves a waiting poll for the task; after the commit it delivers the task to
// that poll without a claim. For tasks that became ready before a poll arrived, the dispatcher sends one claim per
// queue and kind on behalf of all waiting polls. It remembers an empty claim until the store reports new tasks, so a
// waiting poll costs no SQL statements.
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

// The ways a wait ends without a task, other than that there was none.
var (
	ErrDraining = errors.New("app is draining")
	// the poller may poll again with its other queues
	ErrDrained = errors.New("the worker is drained by an operator")
	// of the poller's process: it deregistered, was removed, or was superseded
	ErrRegistrationEnded = errors.New("registration ended")
	// the memory of the poll's response did not become free in time
	ErrNoMemory = errors.New("memory budget exhausted: no memory for the tasks of a poll response")
)

// TaskLeaser is the part of a store that claims are sent to.
type TaskLeaser interface {
	LeaseTasks(ctx context.Context, r store.LeaseRequest) ([]store.Leased, error)
}

// Options tunes a Dispatch. The zero value works.
type Options struct {
	MaxClaim int           // most tasks one claim asks for; 256
	Backoff  time.Duration // wait after a first failed claim, doubled with each further one up to BackoffMax; 50 ms
	// BackoffMax is the longest wait between claims of a store that fails; 5 s.
	BackoffMax time.Duration
	// Settle is the time that a poll waits after its timeout for a commit or claim that has already reserved it; 2 s. A
	// task that arrives later is released.
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

// Dispatch is the store.Dispatcher of one process. All methods may be called from any goroutine; those of
// store.Dispatcher never block.
type Dispatch struct {
	Hub
	opt  Options
	life context.Context // of claims: ends when Close gives up waiting for them
	stop context.CancelFunc

	mu             sync.Mutex // guards all below, and everything in poll queues, waiters and workers
	leaser         TaskLeaser
	returnLeases   func([]store.Leased)
	sticky         func(run string) []store.Process
	onProcessEnded []func(store.Process)
	decided        func()
	pulse          func(time.Time)
	due            time.Time // earliest time reported by Due before Bind
	pollQueues     map[pollQueueKey]*pollQueue
	members        map[engine.WorkerKey]*member
	classes        map[string]*class
	waiters        map[*Waiter]struct{}
	routes         map[engine.QueueKey]string
	runWaiters     map[string][]*Waiter        // by run: waiters for its next activity
	isolated       map[engine.WorkerKey]string // incarnations that hold a blamed task and receive no other task
	pruneAt        int                         // number of poll queues and workers at which old ones are forgotten
	arrivals       uint64                      // gives every waiter its place
	claims         uint64                      // gives every claim its number
	draining       bool
	closed         bool
	busy           int           // reservations and claims whose outcome is open, and hand-backs under way
	quiet          chan struct{} // closed when busy falls to 0 after Close
	count          Counts
}

var _ store.Dispatcher = (*Dispatch)(nil)

// New makes a Dispatch. It accepts polls at once and sends claims after Bind.
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

// Bind connects the dispatcher to the store; the store cannot be opened without a dispatcher, so Bind follows the
// opening. back releases leased tasks whose poll has ended. It runs on a separate goroutine, must return without
// outside help, and must not count the delivery as an attempt. pulse notifies the sweeper of the time at which
// something becomes due, and must not block. back and pulse may be nil.
func (d *Dispatch) Bind(c TaskLeaser, back func([]store.Leased), pulse func(time.Time)) {
	d.mu.Lock()
	d.leaser, d.returnLeases, d.pulse = c, back, pulse
	// A commit may have reported due work before there was a sweeper. The time is passed on now; otherwise that work
	// would wait until the next report.
	due := d.due
	d.due = time.Time{}
	for _, l := range d.pollQueues {
		d.start(l)
	}
	d.mu.Unlock()
	if pulse != nil && !due.IsZero() {
		pulse(due)
	}
}

// Prefer makes workflow tasks go to a waiting poll of a process that has their run in its sticky cache, the best
// process first. If none of these processes polls, the task goes to another worker at once. workers must not block.
// Call Prefer before Bind.
func (d *Dispatch) Prefer(workers func(run string) []store.Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sticky = workers
}

// OnProcessEnded adds a function that Gone calls with the process before it ends the polls of that process. Functions
// are called in the order in which they were added; they must not block. Call it before Bind.
func (d *Dispatch) OnProcessEnded(f func(store.Process)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.onProcessEnded = append(d.onProcessEnded, f)
}

// Backlog reports that the queue has ready tasks to claim. It invalidates the remembered empty claims of workers that
// can serve these routing keys, or of all workers if there are no routing keys.
func (d *Dispatch) Backlog(namespace, queue string, kind protocol.TaskKind, keys ...store.RoutingKey) {
	k := kindOf(kind)
	if k < 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if queue == "" {
		d.reopen(func(l pollQueueKey) bool { return l.namespace == namespace && l.kind == k })
		return
	}
	if l := d.pollQueues[pollQueueKey{namespace, queue, k}]; l != nil { // without a poll queue no poll has waited
		l.recordReady(keys)
		d.start(l)
	}
}

// reopen marks poll queues as possibly containing tasks for all pollers.
func (d *Dispatch) reopen(which func(pollQueueKey) bool) {
	for k, l := range d.pollQueues {
		if which(k) {
			l.recordReady(nil)
			d.start(l)
		}
	}
}

// Throttled records that a budget withheld tasks from the current claim; the store calls it before it answers the
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
		l.recordReady(nil) // it is not empty: after the rest it is asked again
		d.pauseClaims(l, t.Wait)
	}
}

// Queue reports a new decision about a queue. A budget may now have room, and polls of drained workers or drained
// builds can no longer receive tasks.
func (d *Dispatch) Queue(q *engine.Queue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	concerns := func(k pollQueueKey) bool { return k.namespace == q.Namespace && (q.Name == "" || k.queue == q.Name) }
	if d.decided != nil {
		d.decided()
	}
	moved := d.routes[q.Key()] != q.Group // polls wait only in the queues routed to them
	if d.routes[q.Key()] = q.Group; q.Group == "" {
		delete(d.routes, q.Key())
	}
	for w := range d.waiters {
		worker := w.spec.Lessee.Worker
		if moved && worker.Namespace == q.Namespace {
			d.endWait(w, ErrDrained)
			continue
		}
		if worker.Namespace == q.Namespace && q.DrainOf(worker) != nil {
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
	// Claims are sent again for all polls. Raising a budget or ending a drain creates no task, so no commit would
	// report the tasks that can be leased now.
	d.reopen(concerns)
}

// Missed reports that notices of other apps were lost. It invalidates all remembered empty claims, and makes every
// watcher read its rows again.
func (d *Dispatch) Missed() {
	d.mu.Lock()
	d.reopen(func(pollQueueKey) bool { return true })
	d.mu.Unlock()
	d.missed()
}

// Due passes on to the sweeper when something wants it.
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
// tasks that were ready before and that no Backlog reports, for example the end of a session of a worker at its limit.
func (d *Dispatch) Recheck(k engine.WorkerKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for m := d.members[k]; m != nil; m = m.before {
		m.forget()
	}
	for _, w := range d.pollers(k) {
		d.kick(w)
	}
}

// OnDecided adds a function that is called after a decision about a queue or a namespace. It must not block.
func (d *Dispatch) OnDecided(decided func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.decided = decided
}

// Drop ends the waits of a worker's pollers with err: it drains. What is on its way to them is still delivered.
func (d *Dispatch) Drop(k engine.WorkerKey, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.pollers(k) {
		d.endWait(w, err)
	}
}

// Deregistered ends the open polls of a process with ErrRegistrationEnded, because the registration of that process has
// ended. Tasks
// on their way to these polls are released, because the process may no longer be running. The
// OnProcessEnded functions run
// first: from then on, a new poll of the process must be rejected by the Still function of
// its Spec.
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
			d.dismiss(w)
		}
	}
}

// dismiss ends a poll at once and releases the tasks that were already delivered to it.
func (d *Dispatch) dismiss(w *Waiter) {
	// The poll ends at once instead of waiting for tasks on their way to it. The process has ended, so a task delivered
	// to it would be blocked until its lease expires.
	w.err, w.closing = ErrRegistrationEnded, true
	w.registrationEnded.Store(true)
	d.returnTasks(w.detach())
}

// LeaseExpired ends the open polls of a worker whose lease expired, as if the polls had timed out. A live worker polls
// again, which proves that it is alive. A task delivered to a paused worker, or over a connection that broke unnoticed,
// would be lost again.
func (d *Dispatch) LeaseExpired(k engine.WorkerKey) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.pollers(k) {
		d.shut(w)
	}
}

// Isolate excludes the open polls of a process from dispatch because it holds a blamed task and receives no other task,
// or includes them again. An excluded poll remains open.
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
			m.forget()
		}
	}
	for _, w := range d.pollers(p.Worker) {
		w.relink()
		if !alone {
			d.kick(w)
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

// Drain answers all pollers with ErrDraining, now and from now on. What is on its way to them is still delivered.
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

// beginWork and endWork count what Close waits for. The caller holds mu.
func (d *Dispatch) beginWork() { d.busy++ }

func (d *Dispatch) endWork() {
	if d.busy--; d.busy == 0 && d.closed {
		select {
		case <-d.quiet: // the wait is over already
		default:
			close(d.quiet)
		}
	}
}

// returnTasks releases tasks that were leased for a poll that has ended. The caller holds mu.
func (d *Dispatch) returnTasks(tasks []store.Leased) {
	if len(tasks) == 0 {
		return
	}
	d.count.Returned += int64(len(tasks))
	back := d.returnLeases
	if back == nil {
		return // their leases run out
	}
	d.beginWork()
	go func() {
		back(tasks)
		d.mu.Lock()
		d.endWork()
		d.mu.Unlock()
	}()
}
