package view

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// UnservedLanes are the lanes with ready tasks that no live worker may lease, judged once per lane by the rules by
// which tasks are dispatched.
func (v *View) UnservedLanes(ctx context.Context) (list []store.UnservedLane, err error) {
	now, err := v.store.Now(ctx)
	if err != nil {
		return nil, err
	}
	err = v.store.View(ctx, func(r store.Reader) error {
		lanes, err := r.ReadyLanes(ctx)
		if err != nil {
			return err
		}
		sessions := map[string]bool{} // by namespace: whether some of its lanes are of sessions
		for _, l := range lanes {
			sessions[l.Namespace] = sessions[l.Namespace] || l.InSession
		}
		around := map[string]*engine.Surroundings{}
		for ns, counted := range sessions {
			if around[ns], err = v.surroundings(ctx, r, ns, counted, now); err != nil {
				return err
			}
		}
		for _, l := range lanes {
			w := around[l.Namespace].UnservedLane(l.Queue, engine.Wanted{
				Kind: l.Kind, Type: l.Lane.Type, BuildID: l.Lane.BuildID, Requirements: l.Lane.Requirements,
			}, l.InSession)
			if w == nil {
				continue
			}
			place := w.Reason == protocol.WaitWorkerSessionsFull
			after := engine.StuckUnserved
			if place {
				after = engine.StuckPlace
			}
			list = append(list, store.UnservedLane{
				ReadyLane: l, Place: place, Before: now.Add(-after), Reason: w.Reason, Message: w.Message,
			})
		}
		return nil
	})
	return list, err
}

// stuckGauge counts stuck runs, by the index that holds no others.
type stuckGauge struct {
	store reads
	desc  *prometheus.Desc
}

// StuckGauge is the gauge sojourn_stuck_runs, by namespace and reason.
func (v *View) StuckGauge() prometheus.Collector {
	return &stuckGauge{v.store, prometheus.NewDesc(
		"sojourn_stuck_runs", "Open runs that make no progress and need a person, by wait reason.",
		[]string{"namespace", "reason"}, nil,
	)}
}

func (g *stuckGauge) Describe(c chan<- *prometheus.Desc) { c <- g.desc }

func (g *stuckGauge) Collect(c chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := g.store.View(ctx, func(r store.Reader) error {
		list, err := r.StuckCounts(ctx)
		for _, s := range list {
			c <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(s.Runs), s.Namespace, string(s.Reason))
		}
		return err
	})
	if err != nil {
		c <- prometheus.NewInvalidMetric(g.desc, err)
	}
}
