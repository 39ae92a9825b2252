package broker

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sojourn-run/sojourn/app/engine"
	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// Evicted sessions are counted by reason. Sessions that are acquired again soon after their eviction are counted
// separately.
func TestEvictionsAndThrashingAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	for _, e := range []protocol.SessionEvent{
		{What: "released", Worker: "a", Why: engine.ReasonEvictedCap},
		{What: "released", Worker: "b", Why: engine.ReasonEvictedCap},
		{What: "released", Worker: "a", Why: engine.ReasonEvictedPressure},
		{What: "released", Worker: "a", Why: engine.ReasonShutdown},
		{What: "reclaimed", Why: engine.ReasonEvictedCap + " 12 s before"},
		{What: "reclaimed"},
	} {
		m.countSessionMove(store.SessionMove{SessionEvent: e})
	}
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, family := range all {
		if strings.HasPrefix(family.GetName(), "sojourn_session") {
			for _, one := range family.GetMetric() {
				name := family.GetName()
				for _, l := range one.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = one.GetCounter().GetValue()
			}
		}
	}
	for name, want := range map[string]float64{
		"sojourn_session_evictions_total cap": 2, "sojourn_session_evictions_total pressure": 1,
		"sojourn_sessions_thrashed_total":     1,
		"sojourn_session_ends_total released": 4, "sojourn_session_claims_total reclaim": 2,
	} {
		if got[name] != want {
			t.Errorf("%s is %v, want %v", name, got[name], want)
		}
	}
}
