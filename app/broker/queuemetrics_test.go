package broker_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// The age of a queue's oldest task rises while the task is not leased, and ignores leased tasks. For an empty queue it
// is exported as 0, because an autoscaler would keep using the last value of a missing series.
func TestAQueuesOldestTaskIsMeasured(t *testing.T) {
	inBubble(t, "gauges", func(o *harness) {
		t := o.t
		a, _ := o.app("a", false)
		registry := prometheus.NewRegistry()
		registry.MustRegister(a.QueueGauges())
		gauges := func() map[string]float64 {
			t.Helper()
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			all := map[string]float64{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					labels := m.GetLabel()
					all[f.GetName()+" "+labels[0].GetValue()+"/"+labels[1].GetValue()] = m.GetGauge().GetValue()
				}
			}
			return all
		}
		const oldest, ready = "sojourn_queue_oldest_seconds default/default", "sojourn_queue_ready default/default"
		if all := gauges(); len(all) != 0 {
			t.Errorf("of nothing: %v", all)
		}
		o.hired(a, "w", nil)
		if all := gauges(); all[oldest] != 0 || len(all) != 2 {
			t.Errorf("a queue that is served and empty: %v", all)
		}
		a.start("one")
		time.Sleep(70 * time.Second)
		a.start("two")
		time.Sleep(5 * time.Second)
		if all := gauges(); all[oldest] < 75 || all[oldest] > 76 || all[ready] != 2 {
			t.Errorf("two wait, the first for 75 s: %v", all)
		}
		o.hired(a, "w", nil)
		first := a.poll("w", protocol.KindWorkflow, 0)
		if all := gauges(); all[oldest] < 5 || all[oldest] > 6 || all[ready] != 1 {
			t.Errorf("one is leased, one waits for 5 s: %v", all)
		}
		a.taken(a.decide(first, done()))
		a.taken(a.decide(a.poll("w", protocol.KindWorkflow, 0), done()))
		must[protocol.DeregisterResponse](t)(a.Fleet().RemoveWorker(t.Context(), "default", "w"))
		if all := gauges(); all[oldest] != 0 || all[ready] != 0 || len(all) != 2 {
			t.Errorf("an empty queue without workers: %v", all)
		}
	})
}
