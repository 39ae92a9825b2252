package server

import (
	"github.com/prometheus/client_golang/prometheus"
)

// channelCollector exports the metrics of the channel; each scrape reads the channel's state once.
type channelCollector struct{ server *Server }

var (
	connectionsDesc = prometheus.NewDesc(
		"sojourn_channel_connections", "Connections of workers and browsers that are open.", nil, nil,
	)
	socketsDesc = prometheus.NewDesc(
		"sojourn_channel_sockets", "Sockets that are joined, by namespace: / workers, /dashboard browsers.",
		[]string{"namespace"}, nil,
	)
	cutsDesc = prometheus.NewDesc(
		"sojourn_channel_cuts_total", "Connections the app ended for what the peer did, by cause.", []string{"cause"}, nil,
	)
	channelDesc = prometheus.NewDesc(
		"sojourn_channel_refusals_total", "What came over the channel and was refused before any verb, by cause.",
		[]string{"cause"}, nil,
	)
	undoneDesc = prometheus.NewDesc(
		"sojourn_channel_undone_polls_total", "Polls whose answer was lost, so that their tasks went back at once.", nil, nil,
	)
	lateDesc = prometheus.NewDesc(
		"sojourn_channel_stale_completions_total", "Outcomes that came too late and changed nothing.", nil, nil,
	)
	unackedDesc = prometheus.NewDesc(
		"sojourn_channel_unconfirmed_notices_total", "Notices that a worker did not confirm in time.", nil, nil,
	)
	malformedDesc = prometheus.NewDesc(
		"sojourn_channel_malformed_machines_total", "Settings fetched with telemetry that is none.", nil, nil,
	)
	failuresDesc = prometheus.NewDesc(
		"sojourn_channel_failures_total", "Handlers that panicked or acked what cannot be written.", nil, nil,
	)
)

// Describe implements prometheus.Collector.
func (c channelCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		connectionsDesc, socketsDesc, cutsDesc, channelDesc, undoneDesc, lateDesc, unackedDesc, malformedDesc, failuresDesc,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c channelCollector) Collect(out chan<- prometheus.Metric) {
	s, among := c.server.channel.Stats(), c.server.connections.Stats()
	count := func(d *prometheus.Desc, n int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	out <- prometheus.MustNewConstMetric(connectionsDesc, prometheus.GaugeValue, float64(s.Socket.Connections))
	for namespace, n := range s.Socket.Sockets {
		out <- prometheus.MustNewConstMetric(socketsDesc, prometheus.GaugeValue, float64(n), namespace)
	}
	count(cutsDesc, s.Socket.CutSlow, "slow")
	count(cutsDesc, s.Socket.CutSilent, "silent")
	count(cutsDesc, s.Socket.CutProtocol, "protocol")
	count(cutsDesc, s.Socket.CutTooLarge, "too_large")
	count(cutsDesc, s.Socket.CutLate, "late")
	count(channelDesc, s.Socket.RefusedConnects, "connect")
	count(channelDesc, s.Socket.UnknownNamespaces, "unknown_namespace")
	count(channelDesc, s.Socket.RefusedBusy, "busy")
	count(channelDesc, s.EarlyCalls, "settings_required")
	count(undoneDesc, s.Undone)
	count(lateDesc, among.StaleCompletions)
	count(unackedDesc, among.Unconfirmed)
	count(malformedDesc, s.MalformedMachines)
	count(failuresDesc, s.Socket.Failures)
}
