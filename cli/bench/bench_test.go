package bench

import (
	"math"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A scenario that no longer works would be found when somebody wants its figure.
func TestEveryScenarioMeasuresEachOperation(t *testing.T) {
	const ops = 6
	for _, s := range scenarios() {
		t.Run(s.id+" "+s.transport+" "+s.unit, func(t *testing.T) {
			got, _, _, err := once(t.Context(), s, "sqlite", Options{Log: zerolog.Nop()}, ops)
			if err != nil {
				t.Fatal(err)
			}
			if len(got.each) != ops || slices.Contains(got.each, 0) || slices.Contains(got.beside, 0) || got.commits == 0 {
				t.Errorf("got %+v", got)
			}
			if s.figure == nil {
				return
			}
			if f := s.figure(got); math.IsNaN(f) || math.IsInf(f, 0) {
				t.Errorf("figure %v of %+v", f, got)
			}
		})
	}
}

func TestTheListedScenariosAreThoseThereAre(t *testing.T) {
	listed := Scenarios()
	for _, s := range scenarios() {
		if !slices.ContainsFunc(listed, func(l [2]string) bool { return l[0] == s.id }) {
			t.Errorf("%s is not listed", s.id)
		}
	}
	for _, l := range listed {
		if !slices.ContainsFunc(scenarios(), func(s scenario) bool { return s.id == l[0] }) {
			t.Errorf("%s is listed and not there", l[0])
		}
	}
}
