package view

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// UnservedRoutingKeys returns the routing keys with ready tasks that no live worker may lease. It applies the rules of
// dispatch once per routing key.
func (v *View) UnservedRoutingKeys(ctx context.Context) (list []store.UnservedRoutingKey, err error) {
	now, err := v.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	err = v.store.View(ctx, func(r store.Reader) error {
		keys, err := r.ReadyRoutingKeys(ctx)
		if err != nil {
			return err
		}
		sessions := map[string]bool{} // by namespace: whether it has routing keys of tasks in sessions
		for _, l := range keys {
			sessions[l.Namespace] = sessions[l.Namespace] || l.InSession
		}
		around := map[string]*engine.WaitContext{}
		for ns, counted := range sessions {
			if around[ns], err = v.waitContext(ctx, r, ns, counted, now); err != nil {
				return err
			}
		}
		for _, l := range keys {
			w := around[l.Namespace].Unserved(l.Queue, engine.TaskRequirements{
				Kind: l.Kind, Type: l.Key.Type, BuildID: l.Key.BuildID, Requirements: l.Key.Requirements,
			}, l.InSession)
			if w == nil {
				continue
			}
			place := w.Reason == protocol.WaitWorkerSessionsFull || w.Reason == protocol.WaitSessionResources
			after := engine.StuckUnserved
			if place {
				after = engine.StuckPlace
			}
			list = append(list, store.UnservedRoutingKey{
				ReadyRoutingKey: l, Place: place, Before: now.Add(-after), Reason: w.Reason, Message: w.Message,
			})
		}
		return nil
	})
	return list, err
}

// StuckGauge returns the gauge sojourn_stuck_runs, by namespace and reason. Its reads use the index of stuck runs.
func (v *View) StuckGauge() prometheus.Collector {
	desc := prometheus.NewDesc(
		"sojourn_stuck_runs", "Open runs that make no progress and need a person, by wait reason.",
		[]string{"namespace", "reason"}, nil,
	)
	return &storeGauge{v.store, desc, func(ctx context.Context, r store.Reader, set func(int, ...string)) error {
		list, err := r.StuckCounts(ctx)
		for _, s := range list {
			set(s.Runs, s.Namespace, string(s.Reason))
		}
		return err
	}}
}
