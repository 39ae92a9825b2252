package view

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/store"
)

// storeGauge is a gauge that reads the store at each scrape. A failed read makes the scrape report an invalid metric.
type storeGauge struct {
	store reads
	desc  *prometheus.Desc
	// read must call set for each value, with its labels.
	read func(ctx context.Context, r store.Reader, set func(n int, labels ...string)) error
}

func (g *storeGauge) Describe(c chan<- *prometheus.Desc) { c <- g.desc }

func (g *storeGauge) Collect(c chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var list []prometheus.Metric
	err := g.store.View(ctx, func(r store.Reader) error {
		return g.read(ctx, r, func(n int, labels ...string) {
			list = append(list, prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(n), labels...))
		})
	})
	if err != nil {
		c <- prometheus.NewInvalidMetric(g.desc, err)
		return
	}
	for _, m := range list {
		c <- m
	}
}
