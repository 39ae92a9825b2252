package view

import (
	"context"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// An operator can route a queue or its namespace to a group. The response names the route that applies, since a change
// of the other one has no effect.

// Routed returns the group to which the tasks of a queue, or of a namespace, are routed.
func (v *View) Routed(ctx context.Context, ns, name string) (protocol.RouteState, error) {
	out := protocol.RouteState{Namespace: transaction.NamespaceOrDefault(ns), Queue: name}
	decided, err := v.queueSettings(ctx, out.Namespace)
	if err != nil {
		return out, err
	}
	out.Group, out.FromNamespace = routed(decided, name)
	if own := decided[name]; own != nil {
		out.UpdatedAt = own.UpdatedAt
	}
	if out.Group == "" {
		return out, nil
	}
	workers, err := v.Workers(ctx, ns, name, "")
	for _, w := range workers {
		if w.Group == out.Group && w.Status == protocol.WorkerActive {
			out.Workers++
		}
	}
	return out, err
}

// routed returns the group that a queue of a namespace is routed to, and whether it is the namespace's route.
func routed(decided map[string]*engine.Queue, name string) (group string, inherited bool) {
	if q := decided[name]; q != nil && q.Group != "" {
		return q.Group, false
	}
	if all := decided[""]; all != nil && name != "" {
		return all.Group, all.Group != ""
	}
	return "", false
}
