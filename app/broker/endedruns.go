package broker

import (
	"context"
	"sync"
	"time"

	"github.com/sojourn-run/sojourn/app/dispatch"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A worker caches the code of a run, with its goroutines, until the run's next task. If a run is terminated, times out
// or is completed by another worker, no task follows, so the worker would cache it until newer runs evict it. The app
// knows which processes cache a run and notifies them when it closes.

const (
	// endedListTime is how long the responses to heartbeats also list a closed run: notices may be lost, and HTTP
	// workers receive none.
	endedListTime = 30 * time.Second
	// maxEndedRuns is the maximum number of closed runs that are stored for the next heartbeat of a worker.
	maxEndedRuns = 2000
	// endedCheckBatch is the number of runs that one read checks after notifications of commits were lost.
	endedCheckBatch = 500
	// memorySweepInterval is how often entries of ended processes and polls are removed from memory.
	memorySweepInterval = time.Minute
)

// endedRuns holds closed runs that are in the sticky caches of workers, for the responses to their heartbeats.
type endedRuns struct {
	mu sync.Mutex // guards of
	of map[engine.WorkerKey][]endedRun
}

type endedRun struct {
	run string
	at  time.Time
}

func (e *endedRuns) add(k engine.WorkerKey, runs []string, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of == nil {
		e.of = map[engine.WorkerKey][]endedRun{}
	}
	list := e.of[k]
	for _, run := range runs {
		list = append(list, endedRun{run, now})
	}
	e.of[k] = list[max(0, len(list)-maxEndedRuns):]
}

// pending returns the closed runs that the response to a worker's heartbeat must list.
func (e *endedRuns) pending(k engine.WorkerKey) (runs []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, r := range e.of[k] {
		runs = append(runs, r.run)
	}
	return runs
}

// sweep removes entries that are older than endedListTime.
func (e *endedRuns) sweep(now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, list := range e.of {
		i := 0
		for i < len(list) && now.Sub(list[i].at) >= endedListTime {
			i++
		}
		if i == len(list) {
			delete(e.of, k)
		} else {
			e.of[k] = append([]endedRun(nil), list[i:]...)
		}
	}
}

// watchClosedRuns notifies workers of closed runs in their sticky caches until ctx ends. It also removes entries of
// ended processes and polls, which would otherwise stay until new entries replace them.
func (b *Broker) watchClosedRuns(ctx context.Context) {
	w := b.dispatch.Watch(dispatch.TopicEnded)
	defer w.Close()
	sweep := time.NewTicker(memorySweepInterval)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-sweep.C:
			b.ended.sweep(time.Now())
			b.polls.sweep(time.Now())
			b.sticky.sweep(func(p store.Process) bool { return b.workers.IsRegistered(p.Worker, p.Incarnation) })
			continue
		case <-w.C:
		}
		changed, overflow := w.Take()
		var runs []string
		for i := range changed.Runs {
			if changed.Runs[i].Closed {
				runs = append(runs, changed.Runs[i].RunID)
			}
		}
		if overflow {
			ended, err := b.closedRuns(ctx, b.sticky.runIDs())
			if err != nil {
				store.Warn(&b.log, err).Msg(
					"failed to look up which runs in sticky caches have ended; their workers evict them later",
				)
			}
			runs = append(runs, ended...)
		}
		b.evictClosedRuns(runs)
	}
}

// evictClosedRuns notifies the workers that have closed runs in their sticky caches.
func (b *Broker) evictClosedRuns(runs []string) {
	by := map[engine.WorkerKey][]string{}
	for _, run := range runs {
		b.prefetch.drop(run)
		for _, k := range b.sticky.workersOf(run) {
			by[k.Worker] = append(by[k.Worker], run)
		}
		b.sticky.drop(run)
	}
	now := time.Now()
	for k, runs := range by {
		b.ended.add(k, runs, now)
		if n := b.notices.Load(); n != nil {
			(*n).EvictRuns(k.Namespace, k.ID, protocol.EvictNotice{Runs: runs})
		}
	}
}

// closedRuns returns the runs in a list that are closed.
func (b *Broker) closedRuns(ctx context.Context, runs []string) (ended []string, err error) {
	for len(runs) > 0 {
		some := runs[:min(len(runs), endedCheckBatch)]
		runs = runs[len(some):]
		var open map[string]*engine.Run
		err := b.store.View(ctx, func(r store.Reader) (err error) {
			open, err = r.OpenRuns(ctx, some)
			return err
		})
		if err != nil {
			return ended, err
		}
		for _, run := range some {
			if open[run] == nil {
				ended = append(ended, run)
			}
		}
	}
	return ended, nil
}

// recordStickyCache records the sticky cache of a worker that is new to this app, and returns the runs in it that have
// closed.
func (b *Broker) recordStickyCache(
	ctx context.Context, w *engine.Worker, runs []protocol.CachedRun,
) (ended []string, err error) {
	if len(runs) == 0 {
		return nil, nil
	}
	runs = runs[:min(len(runs), protocol.MaxCachedRuns)]
	ids := make([]string, len(runs))
	for i, r := range runs {
		ids[i] = r.RunID
	}
	p := store.Process{Worker: w.Key(), Incarnation: w.Incarnation}
	var open map[string]*engine.Run
	err = b.store.View(ctx, func(r store.Reader) (err error) {
		open, err = r.OpenRuns(ctx, ids)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		switch run := open[r.RunID]; {
		case run == nil || run.Namespace != w.Namespace:
			ended = append(ended, r.RunID)
		case b.sticky.lastEvent(r.RunID, p) == 0 && r.Seen > 0:
			b.sticky.add(r.RunID, stickyWorker{p, min(r.Seen, run.LastSeq)})
		}
	}
	return ended, nil
}
