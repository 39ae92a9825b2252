package app

import "github.com/prometheus/client_golang/prometheus"

// measured returns the metrics of connections.
func (a *App) measured() []prometheus.Collector {
	counter := func(name, help string, of func() int64) prometheus.Collector {
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 {
			return float64(of())
		})
	}
	return []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sojourn_connections_unauthenticated", Help: "Connections whose callers have not authenticated.",
		}, func() float64 {
			used, _ := a.connections.Count()
			return float64(used)
		}),
		counter("sojourn_connections_unauthenticated_closed_total",
			"Unauthenticated connections closed because others needed their places.", func() int64 {
				_, closed := a.connections.Count()
				return closed
			}),
		counter("sojourn_connections_reserved_total",
			"Connections that were accepted in the reserve of file descriptors and served health probes only.",
			func() int64 { return a.connections.DescriptorStats().Reserved }),
		counter("sojourn_connections_descriptors_closed_total",
			"Connections closed to free their file descriptors.",
			func() int64 { return a.connections.DescriptorStats().Closed }),
	}
}
