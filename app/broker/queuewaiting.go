package broker

import (
	"context"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// waitingShown is how many waiting tasks of each kind a queue gives reasons for. Each costs the reading of its run.
const waitingShown = 3

// queueWaiting says of the ready tasks that wait for longest, of each kind, why nobody has them. One that got a worker
// meanwhile is left out.
func (b *Broker) queueWaiting(ctx context.Context, k engine.QueueKey) ([]protocol.TaskWhy, error) {
	var oldest []store.TaskRef
	err := b.store.View(ctx, func(r store.Reader) error {
		for _, kind := range []protocol.TaskKind{protocol.KindWorkflow, protocol.KindActivity} {
			some, err := r.OldestReady(ctx, k, kind, waitingShown)
			if err != nil {
				return err
			}
			oldest = append(oldest, some...)
		}
		return nil
	})
	list := []protocol.TaskWhy{}
	for _, t := range oldest {
		v, err := b.Describe(ctx, protocol.Target{Namespace: k.Namespace, RunID: t.Run})
		if protocol.ReasonOf(err) == protocol.ReasonRunNotFound {
			continue
		}
		if err != nil {
			return list, err
		}
		id := engine.StepID(t.Run, t.Seq)
		if t.Kind == protocol.KindWorkflow && v.Pending != nil && v.Pending.Task != nil {
			id = v.Pending.Task.TaskID
		}
		if w, err := taskWhy(&v, id, t.Kind == protocol.KindWorkflow); err == nil && w.State == string(engine.Ready) {
			list = append(list, w)
		}
	}
	return list, err
}
