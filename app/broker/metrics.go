package broker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Counters are told by the verbs and not by the store, since a refusal changes nothing that a commit could be counted
// by. Whoever runs without metrics has a nil here, so no verb asks first.

// Metrics counts what the verbs did. A nil *Metrics counts nothing.
type Metrics struct {
	outcomes *prometheus.CounterVec
	refusals *prometheus.CounterVec
	returns  *prometheus.CounterVec
	sessions sessionCounters
}

// NewMetrics registers the broker's counters.
func NewMetrics(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		outcomes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sojourn_task_outcomes_total", Help: "Outcomes of tasks that were recorded, by kind and outcome.",
		}, []string{"kind", "outcome"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sojourn_refusals_total", Help: "Reports and polls that were refused and changed nothing, by reason.",
		}, []string{"reason"}),
		returns: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sojourn_tasks_unstarted_total",
			Help: "Returns of tasks without a start, from the third in a row on, by kind.",
		}, []string{"kind"}),
	}
	r.MustRegister(m.outcomes, m.refusals, m.returns)
	m.sessions = newSessionCounters(r)
	return m
}

func (m *Metrics) completed(kind protocol.TaskKind, outcome string) {
	if m != nil {
		m.outcomes.WithLabelValues(string(kind), outcome).Inc()
	}
}

func (m *Metrics) unstarted(kind protocol.TaskKind) {
	if m != nil {
		m.returns.WithLabelValues(string(kind)).Inc()
	}
}

func (m *Metrics) refused(reason string) {
	if m != nil {
		m.refusals.WithLabelValues(reason).Inc()
	}
}
