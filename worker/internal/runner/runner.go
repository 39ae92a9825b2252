// Package runner polls for tasks while slots are free, runs each attempt and reports its outcome.
package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	cores "runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/sojourn-run/sojourn/internal/codecs"
	"github.com/sojourn-run/sojourn/internal/replay"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker/activity"
	"github.com/sojourn-run/sojourn/worker/session"
	"github.com/sojourn-run/sojourn/worker/workflow"
)

// A worker stops in two steps, because outcomes must not be lost. Stop ends polling and lets running tasks finish;
// HandBack cancels the remaining tasks and returns them. The context of requests outlives the context of tasks, so that
// outcomes are still reported.

// Link is the connection to the app: the requests of a runner, and notifications about the connection.
type Link interface {
	Poll(ctx context.Context, in protocol.PollRequest) (protocol.PollResponse, error)
	Complete(ctx context.Context, in protocol.CompleteRequest) (protocol.CompleteBatchResponse, error)
	HistoryPage(ctx context.Context, in protocol.HistoryRequest) (protocol.HistoryPage, error)
	HeartbeatTask(ctx context.Context, in protocol.HeartbeatRequest) (protocol.HeartbeatResponse, error)
	RecordLogs(ctx context.Context, in protocol.LogsRequest) (protocol.LogsResponse, error)
	Changed() <-chan struct{}           // the channel is closed when the connection is lost or established
	Beat()                              // requests an early heartbeat
	Abandon(item protocol.CompleteItem) // reports that a task ended without a report to the app
}

// Definitions are the workflows and activities of this worker.
type Definitions interface {
	FindWorkflow(name string) (*workflow.Definition, bool)
	FindActivity(name string) (*activity.Definition, bool)
	FindSession(name string) (*SessionDefinition, bool)
	Interceptors() []workflow.Interceptor
	replay.Names
}

// Executors run activities outside this process; *sandbox.Pool implements it.
type Executors interface {
	Has(activity string) (runtime string, ok bool)
	Invoke(ctx context.Context, inv sandbox.Invocation, hooks sandbox.Hooks) (sandbox.Result, error)
	// Exported is a value that the file of a handler exports under this name, as JSON; nil for none.
	Exported(ctx context.Context, activity, name string) ([]byte, error)
}

// Options are the options of a runner. Link, Definitions and Sessions are required.
type Options struct {
	Link        Link
	Definitions Definitions
	Sessions    *session.Sessions
	Executors   Executors // nil: no executors
	InProcess   bool      // isolated activities run in this process

	WorkerID      string
	Queues        []string // nil: all queues for which the worker registered
	WorkflowSlots int      // 0: the runner runs no workflow tasks
	ActivitySlots int      // 0: the runner runs no activities
	Validates     bool     // the worker declared validators, so it polls for update validations
	// number of poll loops, which share the kinds of tasks in turn; query and validation tasks have one more loop each.
	// Default: 2
	Pollers  int
	Senders  int  // number of concurrent requests with outcomes; default: 16
	Outcomes int  // maximum number of queued outcomes; while the queue is full, slots stay in use; default: 1024
	PollIDs  bool // polls have an ID, so that a poll repeated after a lost response receives the same tasks
	Machines int  // size of the sticky cache, in replay machines; default: 1000

	AttemptLease time.Duration // lease of attempts and workflow tasks, as registered; default: 30 s
	LeaseBuffer  time.Duration // a lease is renewed this long before its end; default: 5 s
	Logger       *slog.Logger  // receives the runner's log and the lines of workflow code; nil: nothing is logged
	// ReleaseSession releases a session at the app. nil: no call.
	ReleaseSession func(ctx context.Context, id string, epoch int64, reason string) error
	// TakeSnapshot stores a snapshot of a session that this worker owns; nil: no call. It must not block.
	TakeSnapshot func(id string, epoch int64)
	Namespace    string
	Snapshots    *SnapshotFiles // snapshots of sessions that exceed the app's limit
	MaxSetUps    int            // number of concurrent set-ups of sessions; default: number of cores
	Codecs       codecs.Chain   // encode and decode the payloads of workflows and activities
	// TaskFailed is called for each workflow task that fails in workflow code; nil: no call.
	TaskFailed  func(t *protocol.WorkflowTask, f *protocol.Failure)
	OnBranchRun func(run replay.Run, stack func() string) (done func()) // see replay.Options
}

func (o Options) defaults() Options {
	num := func(n *int, v int) {
		if *n <= 0 {
			*n = v
		}
	}
	num(&o.Pollers, 2)
	num(&o.Senders, 16)
	num(&o.Outcomes, 1024)
	num(&o.Machines, 1000)
	num(&o.MaxSetUps, cores.GOMAXPROCS(0))
	if o.Snapshots == nil {
		o.Snapshots = &SnapshotFiles{}
	}
	if o.AttemptLease <= 0 {
		o.AttemptLease = 30 * time.Second
	}
	if o.LeaseBuffer <= 0 {
		o.LeaseBuffer = 5 * time.Second
	}
	return o
}

// These are the causes with which the context of an attempt ends before its code does.
var (
	ErrCancelled = errors.New("the activity was cancelled")
	ErrLeaseLost = errors.New("the attempt is no longer leased to this worker")
	ErrDraining  = errors.New("the worker is draining")
)

// maxRenewal is the longest time between two renewals of an attempt: the interval of the worker's heartbeats.
const maxRenewal = 10 * time.Second

// short is a limit for leases: a shorter lease is renewed after half of its length.
const short = 15 * time.Second

// AttemptInterval returns the renewal interval of attempts: leases are renewed with every heartbeat, and so often that
// two renewals may be lost. A lease of less than 15 s survives the loss of one renewal.
func AttemptInterval(lease, buffer time.Duration) time.Duration {
	every := session.Interval(lease, buffer)
	if lease >= short {
		every = min(every, lease/3)
	}
	return min(maxRenewal, every)
}

// Runner runs the tasks of one worker. Run must be called only once.
type Runner struct {
	opt          Options
	log          zerolog.Logger
	slots        *slots
	leases       *leaseRenewer
	report       *report
	logs         logSender
	cache        *cache
	deadlocks    deadlocks
	stacks       stacks
	warned       stacks // warnings of the app that were logged, by run and subject
	replays      *replays
	rejections   rejections
	loops        []*loop
	setUps       chan struct{} // semaphore: one element for each running set-up
	preparations preparations
	stopped      atomic.Bool    // polling has stopped, and tasks that still arrive are returned
	begin        sync.Mutex     // held while a task begins or stopped is set
	tasks        sync.WaitGroup // running tasks; none begins after stopped is set
	life         context.Context
	end          context.CancelCauseFunc // ends the context of all tasks
	started      sync.Once
	done         chan struct{} // closed when the loops have ended
	polling      context.CancelFunc
	pollCtx      context.Context
	ticking      sync.WaitGroup
}

// New returns a runner; Run starts it.
func New(o Options) (*Runner, error) {
	o = o.defaults()
	switch {
	case o.Link == nil || o.Definitions == nil || o.Sessions == nil:
		return nil, errors.New("runner: link, definitions and sessions are required")
	case o.WorkflowSlots < 0 || o.ActivitySlots < 0 || o.WorkflowSlots+o.ActivitySlots == 0:
		return nil, fmt.Errorf(
			"runner: at least one slot is required, got %d workflow and %d activity slots", o.WorkflowSlots, o.ActivitySlots,
		)
	}
	r := &Runner{opt: o, log: slogbridge.Zerolog(o.Logger), done: make(chan struct{})}
	r.life, r.end = context.WithCancelCause(context.Background())
	// this context outlives the tasks, since their outcomes must still be reported
	r.pollCtx, r.polling = context.WithCancel(context.Background())
	loops, pollers := loopsFor(r, o.Pollers)
	r.loops = loops
	size := slotCounts{protocol.KindWorkflow: o.WorkflowSlots, protocol.KindActivity: o.ActivitySlots}
	for _, k := range []protocol.TaskKind{protocol.KindQuery, protocol.KindValidation} {
		if pollers[k] > 0 {
			size[k] = querySlots
		}
	}
	r.slots = newSlots(size, pollers)
	r.leases = newLeaseRenewer(o.AttemptLease, o.LeaseBuffer, o.Link.Beat)
	r.cache = newCache(o.Machines)
	r.replays = newReplays()
	r.report = newReport(r)
	r.logs.r = r
	r.setUps = make(chan struct{}, o.MaxSetUps)
	r.preparations = preparations{r: r, all: map[string]*preparation{}}
	r.ticking.Go(func() { r.leases.ticks.Run(r.pollCtx, r.woke) })
	return r, nil
}

// Run polls for tasks and runs them until Stop.
func (r *Runner) Run() {
	r.started.Do(func() {
		var loops sync.WaitGroup
		for _, l := range r.loops {
			loops.Go(l.run)
		}
		loops.Wait()
		close(r.done)
	})
	<-r.done
}

// Stop stops polling and waits, until ctx ends, for running tasks to finish and for all outcomes to be accepted. Tasks
// from polls in flight are returned.
func (r *Runner) Stop(ctx context.Context) error {
	r.stopTaking()
	r.preparations.close()
	if err := r.idle(ctx); err != nil {
		return err
	}
	return r.report.flush(ctx)
}

func (r *Runner) stopTaking() {
	// Take the lock for starting tasks: a task that arrives now either counts as running, and Stop waits for it, or is
	// returned.
	r.begin.Lock()
	r.stopped.Store(true)
	r.begin.Unlock()
	r.slots.close()
}

// idle waits until no task is running.
func (r *Runner) idle(ctx context.Context) error {
	done := make(chan struct{})
	go func() { r.tasks.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// HandBack cancels running tasks and returns them to the app, which may dispatch them to another worker immediately. It
// waits until all are returned or ctx ends.
func (r *Runner) HandBack(ctx context.Context) {
	r.end(ErrDraining)
	// Tasks whose code ignores its context are not awaited: the app requeues them when the worker deregisters.
	_ = r.idle(ctx)
	_ = r.report.flush(ctx)
}

// Close stops the poll loops, cancels running tasks and closes the replay machines in the sticky cache. Code that
// ignores its context continues to run, and its outcome is discarded.
func (r *Runner) Close() {
	r.stopTaking()
	r.preparations.close()
	r.end(ErrDraining)
	r.polling()
	r.started.Do(func() { close(r.done) }) // Run was never called
	<-r.done
	// Loops and tasks add outcomes, the response to an outcome may contain tasks, and both close replay machines.
	// Therefore the cache of machines is closed last.
	r.report.close()
	r.logs.wait.Wait()
	r.ticking.Wait()
	r.cache.close()
}

// woke is called after a pause of this process. Leases may have expired, so it requests a heartbeat immediately.
func (r *Runner) woke(gap time.Duration) {
	r.log.Warn().Dur("gap", gap).Msg("process was paused; renewing leases before starting queued tasks")
	r.opt.Link.Beat()
}

// Ended is called with the IDs of closed runs. It evicts their replay machines, with their goroutines, and removes the
// records of their rejected eager workflow tasks and logged stack traces. A machine that a task uses is closed when the
// app rejects the outcome of that task.
func (r *Runner) Ended(runs []string) {
	for _, run := range runs {
		r.cache.evict(run)
		r.rejections.forget(run)
		r.stacks.drop(run)
	}
}

// CachedRuns returns the runs in the sticky cache.
func (r *Runner) CachedRuns() []protocol.CachedRun { return r.cache.entries() }

// Busy returns the numbers of running workflow tasks and activities.
func (r *Runner) Busy() (workflows, activities int) { return r.slots.busy() }

// Resize changes the maximum number of concurrent activities. It has no effect on a runner without activity slots.
func (r *Runner) Resize(activities int) {
	if r.opt.ActivitySlots > 0 && activities > 0 {
		r.slots.resize(protocol.KindActivity, activities)
	}
}

// spawn runs a task of a poll on its reserved slot.
func (r *Runner) spawn(t protocol.Task, received arrival) {
	r.begin.Lock()
	defer r.begin.Unlock()
	if r.stopped.Load() {
		if item, ok := returnItem(t, drainedUnstarted); ok {
			r.report.handBack(item)
		}
		r.slots.release(t.Kind, 1)
		return
	}
	r.tasks.Go(func() {
		stack.Grow()
		slotHeld := false // the slot is reserved for the next activity
		defer func() {
			if !slotHeld {
				r.slots.release(t.Kind, 1)
			}
		}()
		switch {
		case t.Activity != nil:
			slotHeld = r.activity(t.Activity, received)
		case t.Workflow != nil:
			r.workflow(t.Workflow, received)
		case t.Query != nil:
			r.query(t.Query)
		case t.Validation != nil:
			r.validation(t.Validation)
		default:
			r.log.Error().Str("kind", string(t.Kind)).Msg("received a task of a kind this worker does not poll; ignored")
		}
	})
}

// drainedUnstarted is the reason for returning a task that arrived while the worker drained; the code of the task did
// not begin.
const drainedUnstarted = "draining_before_start"

// returnItem returns the outcome that returns a task to the app.
func returnItem(t protocol.Task, why string) (protocol.CompleteItem, bool) {
	switch {
	case t.Activity != nil:
		item := itemOf(t.Activity)
		item.Returned, item.Began = why, new(false)
		return item, true
	case t.Workflow != nil:
		item := taskItem(t.Workflow)
		item.Returned = why
		return item, true
	case t.Query != nil:
		item := queryItem(t.Query)
		item.Returned = why
		return item, true
	case t.Validation != nil:
		item := validationItem(t.Validation)
		item.Returned = why
		return item, true
	}
	return protocol.CompleteItem{}, false
}

func itemOf(t *protocol.ActivityTask) protocol.CompleteItem {
	item := protocol.CompleteItem{
		Kind: protocol.KindActivity, TaskID: t.TaskID, Owner: t.LeaseOwner, AttemptID: t.AttemptID,
	}
	if t.Session != nil {
		item.Epoch = t.Session.Epoch
	}
	return item
}

func taskItem(t *protocol.WorkflowTask) protocol.CompleteItem {
	return protocol.CompleteItem{Kind: protocol.KindWorkflow, TaskID: t.TaskID, Owner: t.LeaseOwner, Attempt: t.Attempt}
}
