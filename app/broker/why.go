package broker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Surroundings is what the tasks of a namespace wait among. A session's tasks wait for a worker with room for it, so
// what workers hold is counted when sessions says so.
func (b *Broker) Surroundings(
	ctx context.Context, r store.Reader, ns string, sessions bool, now time.Time,
) (*engine.Surroundings, error) {
	known, err := b.fleet(ctx, r, ns)
	if err != nil {
		return nil, err
	}
	return b.among(ctx, r, known, ns, sessions, now)
}

// Served are the queues that registered workers serve.
func (b *Broker) Served() []engine.QueueKey { return b.workers.Served() }

// among is the same of workers that are known already.
func (b *Broker) among(
	ctx context.Context, r store.Reader, known fleet, ns string, sessions bool, now time.Time,
) (a *engine.Surroundings, err error) {
	var held map[string]store.Holding
	if sessions {
		if held, err = r.Holdings(ctx, ns); err != nil {
			return nil, err
		}
	}
	budgets := &throttles{b: b, ns: ns, now: now}
	a = &engine.Surroundings{
		Now: now, Release: b.opt.Release, Sessions: map[string]*engine.Session{},
		Settings: func(queue string) *engine.Queue { return b.store.Queue(engine.QueueKey{Namespace: ns, Name: queue}) },
		Throttle: func(queue string, kind protocol.TaskKind) engine.Throttle { return budgets.of(ctx, r, queue, kind) },
	}
	for _, k := range slices.SortedFunc(maps.Keys(known), func(x, y engine.WorkerKey) int {
		return cmp.Compare(x.ID, y.ID)
	}) {
		h := known[k]
		a.Workers = append(a.Workers, engine.Candidate{
			Worker: h.Worker, Alive: b.workers.Alive(h, now), Draining: b.stopped(&h), Gate: h.Gate,
			Sessions: held[k.ID].Sessions, Full: h.Full(),
		})
	}
	return a, nil
}
