package worker

import (
	"slices"
	"sync"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// fleetWide is what an operator set for all workers while they run.
type fleetWide struct {
	mu  sync.Mutex // guards set
	set protocol.WorkerSettings
}

func (f *fleetWide) get() protocol.WorkerSettings {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set
}

// settings takes what the app hands out: what an operator set for all workers holds from now on. The link registers
// after it, which says so to the app.
func (w *Worker) settings(s protocol.WorkerSettings) {
	w.fleet.mu.Lock()
	was := w.fleet.set
	w.fleet.set = s
	w.fleet.mu.Unlock()
	if w.pool != nil {
		w.pool.SetFresh(s.Fresh)
	}
	if was.Revision != s.Revision {
		if w.opt.SetLogLevel != nil {
			w.opt.SetLogLevel(s.LogLevel)
		}
		w.runner.Resize(w.concurrency())
		w.log.Info().Int64("revision", s.Revision).Str("log_level", s.LogLevel).Int("worker_concurrency", s.Concurrency).
			Str("isolation_min_level", s.IsolationMin).Bool("fresh", s.Fresh).Msg("applied fleet settings")
	}
	if w.opt.OnSettings != nil {
		w.opt.OnSettings(s)
	}
}

// concurrency is how many activities run at once. A worker that runs none is given none by anybody.
func (w *Worker) concurrency() int {
	if n := w.fleet.get().Concurrency; n > 0 && w.opt.Concurrency > 0 {
		return n
	}
	return w.opt.Concurrency
}

// offered are the activities this worker takes: with executors below the floor, none that needs one.
func (w *Worker) offered() []string {
	all := w.activityTypes()
	if w.pool == nil {
		return all
	}
	floor := sandbox.Level(w.fleet.get().IsolationMin)
	if floor == "" || w.pool.Report().Level.AtLeast(floor) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool {
		def, ours := w.definitions().FindActivity(name)
		return !ours || def.Options.Isolated
	})
}
