package view

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/store"
)

// suspectGauge counts the open tasks that are suspects of the loss of a worker process. Its reads use the two partial
// indexes of suspects.
type suspectGauge struct {
	store reads
	desc  *prometheus.Desc
}

// SuspectGauge is the gauge sojourn_suspects, by namespace and queue.
func (v *View) SuspectGauge() prometheus.Collector {
	return &suspectGauge{v.store, prometheus.NewDesc(
		"sojourn_suspects", "Open tasks that are suspects of the loss of a worker process, blamed ones among them.",
		[]string{"namespace", "queue"}, nil,
	)}
}

func (g *suspectGauge) Describe(c chan<- *prometheus.Desc) { c <- g.desc }

func (g *suspectGauge) Collect(c chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	type key struct{ namespace, queue string }
	counts := map[key]int{}
	err := g.store.View(ctx, func(r store.Reader) error {
		list, err := r.Suspects(ctx, "")
		for i := range list {
			counts[key{list[i].Namespace, list[i].Queue}]++
		}
		return err
	})
	if err != nil {
		c <- prometheus.NewInvalidMetric(g.desc, err)
		return
	}
	for k, n := range counts {
		c <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(n), k.namespace, k.queue)
	}
}
