package broker

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/internal/quota"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// quotaGauges exports the quotas and the usage that this app has in memory. It sends no statement.
type quotaGauges struct {
	ledger             *quota.Ledger
	used, limit, count *prometheus.Desc
}

// QuotaGauges returns a collector of usage, limits and refusals by namespace.
func (b *Broker) QuotaGauges() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, append([]string{"namespace", "quota"}, labels...), nil)
	}
	return &quotaGauges{
		b.store.Quotas(),
		desc("sojourn_quota_used", "What a namespace uses of a quota, as of the last exchange between apps."),
		desc("sojourn_quota_limit", "The quotas of a namespace."),
		desc("sojourn_quota_refusals_total",
			"Requests of clients that a quota refused, and firings of schedules that it skipped, by kind.", "kind"),
	}
}

func (g *quotaGauges) Describe(c chan<- *prometheus.Desc) { c <- g.used; c <- g.limit; c <- g.count }

func (g *quotaGauges) Collect(c chan<- prometheus.Metric) {
	for _, name := range g.ledger.Namespaces() {
		s := g.ledger.Standing(name, engine.Usage{})
		for _, q := range protocol.Quotas {
			used, limit := s.Of(q)
			c <- prometheus.MustNewConstMetric(g.used, prometheus.GaugeValue, float64(used), name, string(q))
			c <- prometheus.MustNewConstMetric(g.limit, prometheus.GaugeValue, float64(limit), name, string(q))
		}
	}
	for r, n := range g.ledger.Refusals() {
		c <- prometheus.MustNewConstMetric(
			g.count, prometheus.CounterValue, float64(n), r.Namespace, string(r.Quota), r.What,
		)
	}
}
