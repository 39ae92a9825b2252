package view

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/store"
)

// SuspectGauge returns the gauge sojourn_suspects, by namespace and queue. Its reads use the partial indexes of
// suspects.
func (v *View) SuspectGauge() prometheus.Collector {
	desc := prometheus.NewDesc(
		"sojourn_suspects", "Open tasks that are suspects of the loss of a worker process, blamed ones among them.",
		[]string{"namespace", "queue"}, nil,
	)
	type key struct{ namespace, queue string }
	return &storeGauge{v.store, desc, func(ctx context.Context, r store.Reader, set func(int, ...string)) error {
		list, err := r.Suspects(ctx, "")
		counts := map[key]int{}
		for i := range list {
			counts[key{list[i].Namespace, list[i].Queue}]++
		}
		for k, n := range counts {
			set(n, k.namespace, k.queue)
		}
		return err
	}}
}
