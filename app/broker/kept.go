package broker

import (
	"sync"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// mostKept is how many runs are remembered; beyond that all are forgotten, which costs each one full history.
const mostKept = 50_000

// keptRuns remembers which worker keeps which run in its memory, so that a task shows it the new events only. It may be wrong: a worker that forgot
// the run asks for the history from the beginning.
type keptRuns struct {
	mu   sync.Mutex // guards runs
	runs map[string]keeper
}

type keeper struct {
	worker, incarnation string
	seen                int64
}

// keep notes what the completion of a workflow task says its worker keeps.
func (b *Broker) keep(run string, in protocol.CompleteItem) {
	w := b.workers.get(engine.WorkerKey{Namespace: in.Namespace, ID: in.Owner})
	ends := len(in.Commands) > 0 && in.Commands[len(in.Commands)-1].Type.Terminal()
	b.kept.mu.Lock()
	defer b.kept.mu.Unlock()
	if w == nil || in.Kept <= 0 || ends {
		delete(b.kept.runs, run)
		return
	}
	if b.kept.runs == nil || len(b.kept.runs) >= mostKept {
		b.kept.runs = map[string]keeper{}
	}
	b.kept.runs[run] = keeper{w.ID, w.Incarnation, in.Kept}
}

// seen is the last event of the run that this process of the worker has in memory, 0 when it has none.
func (k *keptRuns) seen(run, worker, incarnation string) int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	if r := k.runs[run]; r.worker == worker && r.incarnation == incarnation {
		return r.seen
	}
	return 0
}
