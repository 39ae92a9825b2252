package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// measure registers the metrics of all components.
func (p *Server) measure(r prometheus.Registerer) {
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	counter := func(name, help string, of func() int64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 {
			return float64(of())
		}))
	}
	counter("sojourn_store_statements_total", "Statements sent to the database, without BEGIN and COMMIT.", func() int64 {
		return p.store.Stats().Statements
	})
	counter("sojourn_store_commits_total", "Batches committed.", func() int64 { return p.store.Stats().Commits })
	counter("sojourn_store_changes_total", "Changes committed, many to a batch.", func() int64 {
		return p.store.Stats().Changes
	})
	counter("sojourn_store_rows_total", "Rows written.", func() int64 { return p.store.Stats().Rows })
	counter("sojourn_store_reads_total", "Reads outside of batches.", func() int64 { return p.store.Stats().Reads })
	counter("sojourn_task_handovers_total", "Tasks that reached a worker as they were made.", func() int64 {
		return p.dispatch.Counts().Handovers
	})
	counter("sojourn_task_claims_total", "Tasks that were claimed out of the backlog.", func() int64 {
		return p.dispatch.Counts().Claimed
	})
	counter("sojourn_throttled_claims_total", "Claims from which a budget withheld tasks.", func() int64 {
		return p.dispatch.Counts().Throttled
	})
	counter("sojourn_tasks_returned_total", "Tasks given back because who polled for them was gone.", func() int64 {
		return p.dispatch.Counts().Returned
	})
	r.MustRegister(channelCollector{p}, inFlightCollector{p})
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sojourn_poll_waiters", Help: "Polls that wait for work.",
	}, func() float64 { return float64(p.dispatch.Counts().Waiting) }))
}
