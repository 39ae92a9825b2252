package httpapi

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Responses of both transports are counted in one place by operation, not by path: paths contain IDs, and a series per
// ID would exhaust the memory of Prometheus.

// Metrics counts the responses of both HTTP transports, and the unknown members of worker requests.
type Metrics struct {
	answers *prometheus.CounterVec
	seconds *prometheus.HistogramVec
	unknown *prometheus.CounterVec
}

// NewMetrics registers the metrics with r.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		answers: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sojourn_http_answers_total", Help: "Answers over HTTP, by operation and status.",
		}, []string{"operation", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "sojourn_http_seconds", Help: "How long requests took, in seconds; polls are held on purpose.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 30},
		}, []string{"operation"}),
		unknown: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sojourn_worker_unknown_members_total",
			Help: "Unknown members of worker requests over HTTP and Socket.IO. The app ignored them.",
		}, []string{"operation"}),
	}
	r.MustRegister(m.answers, m.seconds, m.unknown)
	return m
}

// Unknown counts the unknown members of a worker request.
func (m *Metrics) Unknown(operation string, members int) {
	m.unknown.WithLabelValues(operation).Add(float64(members))
}

// Observe counts one response; status 499 means that the caller has disconnected.
func (m *Metrics) Observe(operation string, status int, took time.Duration) {
	m.answers.WithLabelValues(operation, strconv.Itoa(status)).Inc()
	m.seconds.WithLabelValues(operation).Observe(took.Seconds())
}
