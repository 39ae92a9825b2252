package worker

import (
	"slices"
	"sync"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// fleetWide holds the settings that an operator set for all workers at run time.
type fleetWide struct {
	mu  sync.Mutex // guards the fields of the group set
	set protocol.WorkerSettings
}

func (f *fleetWide) get() protocol.WorkerSettings {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set
}

// settings applies settings that an operator set for all workers. The app sends them. The link then registers the
// worker again, which reports the applied settings to the app.
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
}

// concurrency returns the maximum number of concurrent activities. The operator's setting does not apply to a worker
// that is configured to run no activities.
func (w *Worker) concurrency() int {
	if n := w.fleet.get().Concurrency; n > 0 && w.opt.Concurrency > 0 {
		return n
	}
	return w.opt.Concurrency
}

// offered returns the activity types that this worker registers. If the isolation is below the required minimum, it
// omits activities that need an executor.
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
