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

// These are the maximum numbers of sticky workers that are remembered, per run and over all runs. Beyond them the
// oldest entries are dropped; each dropped entry costs one delivery with the full history.
const (
	maxStickyWorkersOfRun = 32
	maxStickyWorkers      = 50_000
)

// stickyRuns records which workers have which runs in their sticky caches, and up to which event, so that a task
// contains only the events that its worker has not seen. An entry may be outdated: a worker that evicted the run reads
// its history from the beginning. Each app has its own memory of this.
type stickyRuns struct {
	mu   sync.Mutex                             // guards the fields below
	runs *simplelru.LRU[string, []stickyWorker] // workers of each run; the worker of the latest workflow task first
	size int                                    // number of workers of all runs
}

// stickyWorker is a worker with a run in its sticky cache. seen is the last event that the cached run has applied.
type stickyWorker struct {
	store.Process
	seen int64
}

// recordSticky records that the worker of a workflow task has the run in its sticky cache. It runs before the outcome
// is committed, since the commit may dispatch the next task.
func (b *Broker) recordSticky(run string, in protocol.CompleteItem) {
	p := b.processOf(in)
	switch {
	case len(in.Commands) > 0 && in.Commands[len(in.Commands)-1].Type.Terminal():
		b.sticky.forget(run, p) // other workers are notified when the run has closed
	case in.Kept > 0 && p.Incarnation != "":
		b.sticky.add(run, stickyWorker{p, in.Kept})
	case in.Failure == nil: // a failed task may leave the run in the cache
		b.sticky.forget(run, p)
	}
}

// forgetSticky reverts recordSticky after an outcome was refused, because the worker then evicts the run.
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
		k.runs, _ = simplelru.NewLRU[string, []stickyWorker](maxStickyWorkers+1, nil)
	}
	// An older process of the worker has ended, and its cache with it.
	workers := k.without(run, func(o stickyWorker) bool { return o.Worker == by.Worker })
	workers = slices.Insert(workers, 0, by)
	k.set(run, workers[:min(len(workers), maxStickyWorkersOfRun)])
	for k.size > maxStickyWorkers {
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

// runIDs returns the runs that are in the cache of any worker.
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

// drop removes a run that has closed.
func (k *stickyRuns) drop(run string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs != nil {
		k.set(run, nil)
	}
}

// without returns a copy of the workers of a run, except those for which gone returns true. The caller must hold mu and
// owns the slice.
func (k *stickyRuns) without(run string, gone func(stickyWorker) bool) []stickyWorker {
	workers, _ := k.runs.Peek(run)
	return slices.DeleteFunc(slices.Clone(workers), gone)
}

// set replaces the workers of a run, and removes the run if there are none. The caller must hold mu.
func (k *stickyRuns) set(run string, workers []stickyWorker) {
	before, _ := k.runs.Peek(run)
	k.size += len(workers) - len(before)
	if len(workers) == 0 {
		k.runs.Remove(run)
		return
	}
	k.runs.Add(run, workers)
}

// lastEvent returns the last event of the run that this process has in its sticky cache, or 0.
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

// stickyWorkers returns the processes to which a task of the run should be dispatched before other polls, the best
// first. It omits workers that drain, were superseded, are behind the release gate, or missed two heartbeats.
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
