package broker

import (
	"context"
	"strings"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// A route applies only to future leases: a worker outside the group finishes its running tasks. The commit ends the
// polls of the namespace's workers, which then poll again under the new route.

// Route dispatches the tasks of a queue only to workers of one group. Without a queue it applies to all queues of the
// namespace without a group. Neither the queue nor a worker of the group needs to exist: tasks wait for a worker.
func (b *Broker) Route(ctx context.Context, in protocol.RouteRequest) (protocol.RouteState, error) {
	if err := protocol.CheckLimits(in); err != nil {
		return protocol.RouteState{}, err
	}
	if strings.ContainsRune(in.Group, 0) {
		return protocol.RouteState{}, protocol.Invalid("group", "must not contain NUL")
	}
	key := engine.QueueKey{Namespace: transaction.NamespaceOrDefault(in.Namespace), Name: in.Queue}
	action := "task_queue.route"
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
	return b.view.Routed(ctx, key.Namespace, key.Name)
}

// routedElsewhere reports whether a queue is routed to a group other than the worker's.
func (b *Broker) routedElsewhere(w *engine.Worker, queue string) bool {
	return b.store.Queue(engine.QueueKey{Namespace: w.Namespace, Name: queue}).Elsewhere(w.Group)
}
