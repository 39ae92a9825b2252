package view

import (
	"cmp"
	"context"
	"slices"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The order of tasks is determined by numbers on their rows, which mean nothing to people. The view counts tasks by
// priority and by fairness class, up to orderShown tasks.

// orderShown is the maximum number of ready tasks that are read to determine the order, and classesShown the maximum
// number of listed classes per priority.
const (
	orderShown   = 10_000
	classesShown = 100
)

// Order returns the dispatch order of the ready tasks of a queue; concurrent callers share one computation.
func (v *View) Order(ctx context.Context, ns, name string) (protocol.QueueOrder, error) {
	ns = cmp.Or(ns, store.DefaultNamespace)
	return v.orders.get(ctx, ns+"\x00"+name, v.opt.Dispatch.Changes, func(
		ctx context.Context,
	) (protocol.QueueOrder, error) {
		return v.queueOrder(ctx, ns, name)
	})
}

func (v *View) queueOrder(ctx context.Context, ns, name string) (protocol.QueueOrder, error) {
	order := protocol.QueueOrder{
		Namespace: ns, Queue: name,
		Priority: protocol.PriorityRange{Max: 9, Default: engine.DefaultPriority, LowerFirst: true},
		Tiers:    []protocol.OrderTier{},
		Fairness: protocol.FairnessRules{
			DefaultClass: engine.DefaultClass, MaxKey: 64, MinWeight: 1, MaxWeight: engine.MaxWeight,
		},
	}
	err := v.store.View(ctx, func(r store.Reader) error {
		tasks, err := r.QueueOrder(ctx, engine.QueueKey{Namespace: ns, Name: name}, orderShown)
		for _, t := range tasks {
			order.Fairness.Enabled = order.Fairness.Enabled || t.Rank > 0 || t.Class != ""
			tier := slices.IndexFunc(order.Tiers, func(o protocol.OrderTier) bool {
				return o.Kind == t.Kind && o.Priority == t.Priority
			})
			if tier < 0 {
				tier = len(order.Tiers)
				order.Tiers = append(
					order.Tiers, protocol.OrderTier{Kind: t.Kind, Priority: t.Priority, Classes: []protocol.OrderClass{}},
				)
			}
			o := &order.Tiers[tier]
			o.Ready++
			key := cmp.Or(t.Class, engine.DefaultClass)
			class := slices.IndexFunc(o.Classes, func(c protocol.OrderClass) bool { return c.Key == key })
			if class < 0 {
				if len(o.Classes) == classesShown {
					continue
				}
				class = len(o.Classes)
				o.Classes = append(o.Classes, protocol.OrderClass{Key: key, Weight: t.Weight})
			}
			o.Classes[class].Ready++
		}
		return err
	})
	return order, err
}
