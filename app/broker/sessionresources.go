package broker

import (
	"cmp"
	"context"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// workersFor returns the live workers of a namespace if a command needs resources of workers. Most completions need
// none and no lookup.
func (b *Broker) workersFor(
	ctx context.Context, ns string, commands []protocol.Command,
) (list []*engine.Worker, err error) {
	if !slices.ContainsFunc(commands, func(c protocol.Command) bool { return engine.NeedsResources(&c) }) {
		return nil, nil
	}
	now := b.storeTime().Time
	err = b.store.View(ctx, func(r store.Reader) error {
		known, err := b.workers.Roster(ctx, r, transaction.NamespaceOrDefault(ns))
		for _, h := range known {
			if b.workers.Alive(h, now) {
				list = append(list, h.Worker)
			}
		}
		return err
	})
	slices.SortFunc(list, func(x, y *engine.Worker) int { return cmp.Compare(x.ID, y.ID) })
	return list, err
}

// lesseeOf returns a worker with only the fields that decide which worker has room for a session.
func lesseeOf(w *protocol.WorkerView) engine.Lessee {
	l := engine.Lessee{
		Worker:   &engine.Worker{ID: w.WorkerID, Resources: protocol.Resources{}, SessionResources: w.SessionResources},
		Sessions: w.Sessions, Used: engine.Amounts{},
	}
	for name, r := range w.Resources {
		l.Worker.Resources[name], l.Used[name] = r.Total, r.Used.Thousandths()
	}
	return l
}
