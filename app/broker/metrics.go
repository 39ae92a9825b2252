package broker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/transaction"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The broker counts, not the store, because refused requests commit nothing. An app without metrics has a nil *Metrics,
// so callers need no check.

// Metrics counts the results of API requests. A nil *Metrics counts nothing.
type Metrics struct {
	outcomes *prometheus.CounterVec
	refusals *prometheus.CounterVec
	returns  *prometheus.CounterVec
	losses   prometheus.Counter
	verdicts *prometheus.CounterVec
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
		losses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sojourn_worker_losses_total", Help: "Worker processes that ended with tasks leased to them.",
		}),
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sojourn_suspected_tasks_total",
			Help: "Tasks that became suspects of the loss of a worker process or executor, were blamed for it, or were " +
				"cleared because another task was blamed, by verdict.",
		}, []string{"verdict"}),
	}
	for _, v := range []string{string(engine.LossSuspect), string(engine.LossBlamed), verdictCleared} {
		m.verdicts.WithLabelValues(v)
	}
	r.MustRegister(m.outcomes, m.refusals, m.returns, m.losses, m.verdicts)
	m.sessions = newSessionCounters(r)
	return m
}

func (m *Metrics) countOutcome(kind protocol.TaskKind, outcome string) {
	if m != nil {
		m.outcomes.WithLabelValues(string(kind), outcome).Inc()
	}
}

func (m *Metrics) countUnstarted(kind protocol.TaskKind) {
	if m != nil {
		m.returns.WithLabelValues(string(kind)).Inc()
	}
}

// verdictCleared counts suspects that were cleared because another task was blamed for the loss.
const verdictCleared = "cleared"

func (m *Metrics) countLostProcess(l transaction.LossResult) {
	if m == nil {
		return
	}
	m.losses.Inc()
	m.countVerdicts(string(engine.LossSuspect), l.Suspects)
	m.countVerdicts(string(engine.LossBlamed), l.Blamed)
	m.countVerdicts(verdictCleared, l.Cleared)
}

// countVerdicts counts tasks by their verdict after the loss of a worker process or an executor.
func (m *Metrics) countVerdicts(verdict string, n int) {
	switch verdict {
	case string(engine.LossSuspect), string(engine.LossBlamed), verdictCleared:
		if m != nil {
			m.verdicts.WithLabelValues(verdict).Add(float64(n))
		}
	}
}

func (m *Metrics) countRefusal(reason string) {
	if m != nil {
		m.refusals.WithLabelValues(reason).Inc()
	}
}
