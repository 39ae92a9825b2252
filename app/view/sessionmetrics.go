package view

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Sessions are counted at each scrape and not as they change: the counts would have to be kept by every app and agree
// after each crash. All statuses are told, also those that no session has, because a series that is missing is no zero.

// gauge counts the stored sessions by status when it is asked to, in one statement.
type gauge struct {
	store reads
	desc  *prometheus.Desc
}

// SessionGauge is the gauge sojourn_sessions, by status: one read of the store for each scrape.
func (v *View) SessionGauge() prometheus.Collector {
	return &gauge{v.store, prometheus.NewDesc("sojourn_sessions", "Stored sessions, by status.", []string{"status"}, nil)}
}

func (g *gauge) Describe(c chan<- *prometheus.Desc) { c <- g.desc }

func (g *gauge) Collect(c chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var counts map[protocol.SessionStatus]int
	err := g.store.View(ctx, func(r store.Reader) (err error) {
		counts, err = r.SessionCounts(ctx, "")
		return err
	})
	if err != nil {
		c <- prometheus.NewInvalidMetric(g.desc, err)
		return
	}
	for _, s := range sessionStatuses {
		c <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, float64(counts[s]), string(s))
	}
}

// sessionStatuses are the statuses that are counted, also when no session has them.
var sessionStatuses = []protocol.SessionStatus{
	protocol.SessionActive, protocol.SessionClosed, protocol.SessionExpired, protocol.SessionFailed,
	protocol.SessionOrphaned,
}
