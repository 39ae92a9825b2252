package broker

import (
	"context"
	"strings"

	"github.com/sojourn-run/sojourn/app/change"
	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Route has the workers of a group alone get the tasks of a queue, or, without a queue, of all of a namespace whose
// queues name none themselves. Neither the queue nor a worker of the group need be there: the tasks wait for one.
func (b *Broker) Route(ctx context.Context, in protocol.RouteRequest) (protocol.RouteState, error) {
	if len(in.Group) > 255 || strings.ContainsRune(in.Group, 0) {
		return protocol.RouteState{}, protocol.Invalid("group", "must have at most 255 bytes, none of them NUL")
	}
	key, action := engine.QueueKey{Namespace: change.Namespace(in.Namespace), Name: in.Queue}, "task_queue.route"
	if key.Name == "" {
		action = "namespace.route"
	}
	detail := "to group " + in.Group
	if in.Group == "" {
		detail = "to all workers"
	}
	_, err := b.decideQueue(ctx, key, engine.RouteQueue{Group: in.Group}, store.Audit{
		Identity: in.Identity, Action: action, Detail: detail,
	})
	if err != nil {
		return protocol.RouteState{}, err
	}
	return b.Routed(ctx, key.Namespace, key.Name)
}

// Routed is where the tasks of a queue go, or of a namespace.
func (b *Broker) Routed(ctx context.Context, ns, name string) (protocol.RouteState, error) {
	v := protocol.RouteState{Namespace: change.Namespace(ns), Queue: name}
	decided, err := b.decided(ctx, v.Namespace)
	if err != nil {
		return v, err
	}
	v.Group, v.FromNamespace = routed(decided, name)
	if own := decided[name]; own != nil {
		v.UpdatedAt = own.UpdatedAt
	}
	if v.Group == "" {
		return v, nil
	}
	workers, err := b.Workers(ctx, ns, name, "")
	for _, w := range workers {
		if w.Group == v.Group && w.Status == protocol.WorkerActive {
			v.Workers++
		}
	}
	return v, err
}

// routed is the group that a queue of a namespace is routed to, and whether it is the namespace's.
func routed(decided map[string]*engine.Queue, name string) (group string, inherited bool) {
	if q := decided[name]; q != nil && q.Group != "" {
		return q.Group, false
	}
	if all := decided[""]; all != nil && name != "" {
		return all.Group, all.Group != ""
	}
	return "", false
}

// elsewhere says whether a queue's tasks are for the workers of another group.
func (b *Broker) elsewhere(w *engine.Worker, queue string) bool {
	return b.store.Queue(engine.QueueKey{Namespace: w.Namespace, Name: queue}).Elsewhere(w.Group)
}
