package workflowtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/internal/link"
	"github.com/sojourn-run/sojourn/internal/slogbridge"
	"github.com/sojourn-run/sojourn/internal/workeropt"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// Options are the options of RunWith.
type Options struct {
	// Workers are started before the test, in this order. Empty: one worker polls Queues, and each other queue gets a
	// worker when a task first appears on it, unless the test has added a worker for the queue.
	Workers []WorkerSpec
	// Queues are the task queues of workers that name none; empty: the setting queues, "default" without it.
	Queues []string
	// Capabilities are those of workers that name none; empty: the setting capabilities.
	Capabilities []string
	// Settings are settings of the app and its workers, with the names and values that `sojourn config` prints, such as
	// "session-lease": "60s". A setting that is not named has its default, except that attempt-lease is 2m. RunWith fails
	// the test if a setting is unknown, invalid, or has no effect in a test, such as addr.
	Settings map[string]string

	perQueue bool // each queue gets a worker
}

// WorkerSpec describes a worker of the test. All workers have the registry of the test. Zero values mean the values of
// the options and settings.
type WorkerSpec struct {
	ID           string   // worker ID; empty: test for the first worker, else test-N
	Queues       []string // task queues to poll; empty: those of the options
	Capabilities []string // matched with the requirements of tasks and sessions; empty: those of the options
	Concurrency  int      // activities at once; 0: the setting worker-concurrency, 128 without it
	MaxSessions  int      // maximum of held sessions; 0: the setting worker-max-sessions; negative: none
}

// Worker is a worker of the test, which the test can kill, freeze and drain.
type Worker struct {
	ID     string
	env    *Env
	faults *faults
	stop   context.CancelFunc
	ended  func() error // waits for the end of the worker and returns its error

	mu     sync.Mutex // guards killed
	killed bool
}

// RunWith is Run with several workers, other queues, capabilities or settings.
func RunWith[T testing.TB](t T, o Options, r *worker.Registry, test func(t T, env *Env)) {
	t.Helper()
	o.perQueue = len(o.Workers) == 0
	runWith(t, o, r, test)
}

// queueWatch reports the queues whose tasks no poll waits for.
type queueWatch struct {
	store.Dispatcher
	appeared func(queue string)
}

// Backlog reports that a queue has ready tasks.
func (q queueWatch) Backlog(namespace, name string, kind protocol.TaskKind, keys ...store.RoutingKey) {
	q.Dispatcher.Backlog(namespace, name, kind, keys...)
	if name != "" {
		q.appeared(name)
	}
}

// watchQueues returns a dispatcher that starts a worker for each queue on which a task appears, if the options demand
// it.
func (e *Env) watchQueues(d store.Dispatcher) store.Dispatcher {
	if !e.options.perQueue {
		return d
	}
	return queueWatch{d, func(name string) {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.served[name] || e.ended {
			return
		}
		e.served[name] = true
		id := "test-" + name
		if len(id) > maxWorkerID || e.ids[id] {
			id = e.freeID()
		}
		e.ids[id] = true
		e.starts.Go(func() {
			if _, err := e.startWorker(WorkerSpec{ID: id, Queues: []string{name}}); err != nil {
				e.t.Error(err)
				e.fail()
			}
		})
	}}
}

// Worker returns a worker by its number in the order in which the workers were started, from 0.
func (e *Env) Worker(i int) *Worker {
	e.t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	if i < 0 || i >= len(e.workers) {
		e.t.Fatalf("worker %d does not exist; the test has %d workers", i, len(e.workers))
	}
	return e.workers[i]
}

// AddWorker starts another worker.
func (e *Env) AddWorker(spec WorkerSpec) *Worker {
	e.t.Helper()
	w, err := e.startWorker(spec)
	if err != nil {
		e.t.Fatal(err)
	}
	return w
}

// maxWorkerID is the maximum length of a worker ID in bytes.
const maxWorkerID = 255

// freeID returns a worker ID that no worker of the test has had: test for the first worker, else test-N. The caller
// holds e.mu.
func (e *Env) freeID() string {
	for n := len(e.workers); ; n++ {
		id := "test"
		if n > 0 {
			id = fmt.Sprint("test-", n)
		}
		if !e.ids[id] {
			return id
		}
	}
}

// startWorker starts a worker and waits until it polls.
func (e *Env) startWorker(spec WorkerSpec) (*Worker, error) {
	if len(spec.Queues) == 0 {
		spec.Queues = e.options.Queues
	}
	if len(spec.Queues) == 0 {
		spec.Queues = e.settings.Queues
	}
	e.mu.Lock()
	if spec.ID == "" {
		spec.ID = e.freeID()
	}
	e.ids[spec.ID] = true
	for _, name := range spec.Queues {
		e.served[name] = true
	}
	e.mu.Unlock()
	if len(spec.Capabilities) == 0 {
		spec.Capabilities = e.options.Capabilities
	}
	o, err := e.workerOptions()
	if err != nil {
		return nil, err
	}
	o.WorkerID, o.Queues, o.Logger = spec.ID, slices.Clone(spec.Queues), slogbridge.Slog(e.log)
	if len(spec.Capabilities) > 0 {
		o.Capabilities = spec.Capabilities
	}
	o.Concurrency = cmp.Or(spec.Concurrency, o.Concurrency)
	if spec.MaxSessions != 0 {
		o.Sessions.Max = max(spec.MaxSessions, 0)
	}
	f := newFaults(link.Local{Join: e.server.Connections().Join})
	w, err := worker.New(workeropt.With(
		o, workeropt.Options{Carrier: f, OnTaskFailed: e.taskFailed, OnBranchRun: e.watch.registerRun},
	))
	if err != nil {
		return nil, fmt.Errorf("worker %s: %w", spec.ID, err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	if err := w.WaitReady(e.t.Context()); err != nil {
		stop()
		return nil, errors.Join(err, <-done)
	}
	added := &Worker{
		ID: spec.ID, env: e, faults: f, stop: stop, ended: sync.OnceValue(func() error { return <-done }),
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.workers = append(e.workers, added)
	return added, nil
}

// Kill cuts the connection of the worker for good, as if its process was killed: it does not deregister, and the app
// receives no further outcome of its tasks. The app learns of the loss when it misses heartbeats, after a minute.
// Activity code that runs in the worker continues until it returns or observes its context.
func (w *Worker) Kill() {
	w.mu.Lock()
	w.killed = true
	w.mu.Unlock()
	w.faults.kill()
	w.stop()
}

// Freeze suspends the worker's heartbeats, polls and reports for d, as if its process was stopped. It returns when d
// has passed. Activity code that runs in the worker continues; its outcomes are sent after d. If calls overlap, the
// worker is frozen until the last one returns.
func (w *Worker) Freeze(d time.Duration) {
	thaw := w.faults.freeze()
	time.Sleep(d)
	thaw()
}

// Drain stops the worker in order: it accepts no further tasks, finishes those that run, releases its sessions and
// deregisters. Drain returns when the worker has ended.
func (w *Worker) Drain() {
	w.env.t.Helper()
	w.stop()
	if err := w.ended(); err != nil {
		w.env.t.Error(err)
	}
}

// stopAtEnd stops the worker at the end of the test.
func (w *Worker) stopAtEnd() error {
	w.stop()
	err := w.ended()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.killed {
		return nil // it could not deregister
	}
	return err
}

// endWorkers stops all workers.
func (e *Env) endWorkers() (err error) {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	e.starts.Wait()
	e.mu.Lock()
	workers := slices.Clone(e.workers)
	e.mu.Unlock()
	for _, w := range workers {
		err = errors.Join(err, w.stopAtEnd())
	}
	return err
}

// Session is the state of a session.
type Session struct {
	ID     string
	Status string // active, expired, closed, failed or orphaned
	Worker string // ID of the worker that owns it; empty: none
	Epoch  int64  // rises with each acquisition, so that the app rejects former owners
}

// Sessions returns the sessions of the test, sorted by their IDs.
func (e *Env) Sessions() (all []Session) {
	e.t.Helper()
	in := protocol.SessionList{PageSize: 200}
	for {
		page, err := e.server.View().Sessions(e.t.Context(), in)
		if err != nil {
			e.t.Fatal(err)
		}
		for _, v := range page.Sessions {
			s := Session{ID: v.SessionID, Status: string(v.Status), Epoch: v.Epoch}
			if v.LeaseOwner != nil {
				s.Worker = *v.LeaseOwner
			}
			all = append(all, s)
		}
		if page.NextPageToken == nil {
			slices.SortFunc(all, func(a, b Session) int { return cmp.Compare(a.ID, b.ID) })
			return all
		}
		in.PageToken = *page.NextPageToken
	}
}
