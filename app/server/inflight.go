package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/internal/budget"
)

// These are the metrics of the bytes in flight.
var (
	inFlightBytes = prometheus.NewDesc(
		"sojourn_inflight_bytes", "Bytes that requests and responses in flight count with.", nil, nil)
	inFlightCapacity = prometheus.NewDesc(
		"sojourn_inflight_capacity_bytes", "Bytes that may be in flight at once.", nil, nil)
	inFlightWaiting = prometheus.NewDesc(
		"sojourn_inflight_waiting", "Requests that wait for bytes.", nil, nil)
	inFlightRefusals = prometheus.NewDesc(
		"sojourn_inflight_refusals_total",
		"Requests whose bytes did not become free in time: ordinary ones, reserved ones (outcomes, heartbeats, renewals, "+
			"session verbs), and polls for whose tasks there were none.", []string{"kind"}, nil)
	inFlightCuts = prometheus.NewDesc(
		"sojourn_inflight_cuts_total", "Slow requests and responses that were ended for callers with fewer bytes.", nil, nil)
	admissionWaiting = prometheus.NewDesc(
		"sojourn_admission_waiting", "Requests that wait because their namespace has many in progress.", nil, nil)
	admissionRefusals = prometheus.NewDesc(
		"sojourn_admission_refusals_total", "Requests rejected after that wait, or because too many waited.", nil, nil)
)

type inFlightCollector struct{ p *Server }

func (c inFlightCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		inFlightBytes, inFlightCapacity, inFlightWaiting, inFlightRefusals, inFlightCuts, admissionWaiting,
		admissionRefusals,
	} {
		to <- d
	}
}

func (c inFlightCollector) Collect(to chan<- prometheus.Metric) {
	s := c.p.budget.Stats()
	gauge := func(d *prometheus.Desc, v int64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v))
	}
	gauge(inFlightBytes, s.Used)
	gauge(inFlightCapacity, s.Total)
	gauge(inFlightWaiting, s.Waiting)
	for kind, n := range map[string]int64{
		"ordinary": s.Refused[budget.Ordinary], "reserved": s.Refused[budget.Reserved],
		"poll": c.p.dispatch.Counts().NoMemory,
	} {
		to <- prometheus.MustNewConstMetric(inFlightRefusals, prometheus.CounterValue, float64(n), kind)
	}
	to <- prometheus.MustNewConstMetric(inFlightCuts, prometheus.CounterValue, float64(s.Cut))
	admitted := c.p.admission.Stats()
	gauge(admissionWaiting, admitted.Waiting)
	to <- prometheus.MustNewConstMetric(admissionRefusals, prometheus.CounterValue, float64(admitted.Refused))
}
