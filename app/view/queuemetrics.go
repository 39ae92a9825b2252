package view

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/engine"
)

// Autoscalers read these gauges and treat a missing series as a failed scrape. So a queue that was exported once is
// exported with 0 when it is empty, and the number of remembered queues is limited.

// queueGauges exports the backlog of queues as the store returned it for this scrape or shortly before.
type queueGauges struct {
	view          *View
	oldest, ready *prometheus.Desc

	mu    sync.Mutex               // guards seen
	seen  map[engine.QueueKey]bool // queues that had tasks or are served: they are exported as 0 when they are empty
	limit int
}

// maxSeenQueues is the maximum number of empty queues that are remembered.
const maxSeenQueues = 10_000

// QueueGauges returns the gauges sojourn_queue_oldest_seconds and sojourn_queue_ready. An autoscaler needs them to
// become 0, and not to disappear, when a queue is empty.
func (v *View) QueueGauges() prometheus.Collector {
	return &queueGauges{
		view: v, seen: map[engine.QueueKey]bool{}, limit: maxSeenQueues,
		oldest: prometheus.NewDesc(
			"sojourn_queue_oldest_seconds", "For how long the task has been ready that was ready first; 0: none is.",
			[]string{"namespace", "queue"}, nil,
		),
		ready: prometheus.NewDesc(
			"sojourn_queue_ready", "Tasks that are ready and wait for a worker.", []string{"namespace", "queue"}, nil,
		),
	}
}

func (g *queueGauges) Describe(c chan<- *prometheus.Desc) { c <- g.oldest; c <- g.ready }

func (g *queueGauges) Collect(c chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	counts, err := g.view.queueCounts(ctx, "")
	if err != nil {
		c <- prometheus.NewInvalidMetric(g.oldest, err)
		return
	}
	type behind struct {
		oldest float64
		ready  int
	}
	all := map[engine.QueueKey]behind{}
	for _, q := range counts.stats {
		k := engine.QueueKey{Namespace: q.Namespace, Name: q.Queue}
		is := all[k]
		is.ready += q.Ready
		if !q.OldestReady.IsZero() && q.Ready > 0 {
			is.oldest = max(is.oldest, counts.now.Sub(q.OldestReady.Time).Seconds())
		}
		all[k] = is
	}
	for _, k := range g.view.workers.Served() {
		all[k] = all[k] //nolint:staticcheck // the zero value, if nothing waits there
	}
	g.mu.Lock()
	for k := range g.seen {
		all[k] = all[k] //nolint:staticcheck // likewise
	}
	for k := range all {
		if len(g.seen) < g.limit {
			g.seen[k] = true
		}
	}
	g.mu.Unlock()
	for k, is := range all {
		c <- prometheus.MustNewConstMetric(g.oldest, prometheus.GaugeValue, is.oldest, k.Namespace, k.Name)
		c <- prometheus.MustNewConstMetric(g.ready, prometheus.GaugeValue, float64(is.ready), k.Namespace, k.Name)
	}
}
