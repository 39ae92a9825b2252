package broker

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/membership"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Limits of remembered sticky workers, per run and over all runs. Beyond them the oldest entries are dropped, which
// costs one full history each.
const (
	stickyWorkersOfRun = 32
	mostStickyWorkers  = 50_000
)

// stickyRuns records which workers have which runs in their sticky caches, and up to which event, so that a task
// contains only the events that its worker has not seen. The entry may be stale: a worker that evicted the run reads
// its history from the beginning. Each app has its own memory.
type stickyRuns struct {
	mu   sync.Mutex                             // guards what follows
	runs *simplelru.LRU[string, []stickyWorker] // workers of each run, the one with the latest workflow task first
	size int                                    // number of workers of all runs
}

// seen is the last event that the worker's cached run has applied.
type stickyWorker struct {
	store.Process
	seen int64
}

// recordSticky records which run the worker of a workflow task keeps in its cache. It runs before the outcome is
// committed, since the next task may be dispatched with the commit.
func (b *Broker) recordSticky(run string, in protocol.CompleteItem) {
	p := b.processOf(in)
	switch {
	case len(in.Commands) > 0 && in.Commands[len(in.Commands)-1].Type.Terminal():
		b.sticky.forget(run, p) // other workers are notified when the run has closed
	case in.Kept > 0 && p.Incarnation != "":
		b.sticky.add(run, stickyWorker{p, in.Kept})
	case in.Failure == nil: // a failed task need not evict the run
		b.sticky.forget(run, p)
	}
}

// forgetSticky reverts recordSticky after an outcome was refused: the worker evicts the run then.
func (b *Broker) forgetSticky(in protocol.CompleteItem) {
	if run, _, ok := engine.ParseTaskID(in.TaskID); ok && in.Kind == protocol.KindWorkflow {
		b.sticky.forget(run, b.processOf(in))
	}
}

// processOf returns the process that sent an outcome.
func (b *Broker) processOf(in protocol.CompleteItem) store.Process {
	p := store.Process{
		Worker:      engine.WorkerKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), ID: in.Owner},
		Incarnation: in.Incarnation,
	}
	if w := b.workers.Get(p.Worker); p.Incarnation == "" && w != nil {
		p.Incarnation = w.Incarnation
	}
	return p
}

// add records a process as the most recent sticky worker of a run.
func (k *stickyRuns) add(run string, by stickyWorker) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs == nil { // each run has at least one worker, so the LRU's own limit is never reached
		k.runs, _ = simplelru.NewLRU[string, []stickyWorker](mostStickyWorkers+1, nil)
	}
	// The cache of an older process of the worker was lost with the process.
	workers := k.without(run, func(o stickyWorker) bool { return o.Worker == by.Worker })
	workers = slices.Insert(workers, 0, by)
	k.set(run, workers[:min(len(workers), stickyWorkersOfRun)])
	for k.size > mostStickyWorkers {
		_, oldest, _ := k.runs.RemoveOldest()
		k.size -= len(oldest)
	}
}

// forget removes a process from the workers of a run.
func (k *stickyRuns) forget(run string, p store.Process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs != nil {
		k.set(run, k.without(run, func(o stickyWorker) bool { return o.Process == p }))
	}
}

// runIDs returns the runs that any worker has in its cache.
func (k *stickyRuns) runIDs() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs == nil {
		return nil
	}
	return k.runs.Keys()
}

// sweep removes processes that are no longer alive.
func (k *stickyRuns) sweep(lives func(store.Process) bool) {
	known := map[store.Process]bool{}
	for _, run := range k.runIDs() {
		for _, w := range k.workersOf(run) {
			is, asked := known[w.Process]
			if !asked {
				is = lives(w.Process)
				known[w.Process] = is
			}
			if !is {
				k.forget(run, w.Process)
			}
		}
	}
}

// drop forgets a run that has ended.
func (k *stickyRuns) drop(run string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs != nil {
		k.set(run, nil)
	}
}

// without returns a copy of the workers of a run except those for which gone returns true; the caller holds mu and owns
// the slice.
func (k *stickyRuns) without(run string, gone func(stickyWorker) bool) []stickyWorker {
	workers, _ := k.runs.Peek(run)
	return slices.DeleteFunc(slices.Clone(workers), gone)
}

// set replaces the workers of a run, and removes the run if there are none; mu is held.
func (k *stickyRuns) set(run string, workers []stickyWorker) {
	before, _ := k.runs.Peek(run)
	k.size += len(workers) - len(before)
	if len(workers) == 0 {
		k.runs.Remove(run)
		return
	}
	k.runs.Add(run, workers)
}

// lastEvent returns the last event of the run that this process has in memory, or 0.
func (k *stickyRuns) lastEvent(run string, p store.Process) int64 {
	for _, r := range k.workersOf(run) {
		if r.Process == p {
			return r.seen
		}
	}
	return 0
}

// workersOf returns the processes with a run in their sticky caches. The slice is never modified, so it may be read
// without the lock.
func (k *stickyRuns) workersOf(run string) []stickyWorker {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs == nil {
		return nil
	}
	workers, _ := k.runs.Peek(run)
	return workers
}

// stickyWorkers returns the processes that should get a task of the run before other polls, the best first. It omits
// workers that drain, were superseded, are behind the release gate, or missed two heartbeats.
func (b *Broker) stickyWorkers(run string) (list []store.Process) {
	for _, k := range b.sticky.workersOf(run) {
		// Skip a worker that would not accept the task now, but keep its entry for the next task.
		fit := false
		b.workers.With(k.Worker, func(h *membership.TrackedWorker) {
			fit = h.Worker.Incarnation == k.Incarnation && h.Gate == "" && !b.workers.Stopped(h) &&
				time.Since(h.At) <= 2*b.opt.Heartbeat
		})
		if fit {
			list = append(list, k.Process)
		}
	}
	return list
}
