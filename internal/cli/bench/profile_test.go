package bench

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"github.com/rs/zerolog"
)

// The stored profile of a scenario names the scenario and contains the committer.
func TestAScenarioIsProfiled(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "profiles")
	o := Options{Scenarios: []string{"P5"}, Stores: []string{"sqlite"}, Quick: true, Profile: dir, Log: zerolog.Nop()}
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, transport := range []string{"in-process", "socket"} {
		name := filepath.Join(dir, "P5-sqlite-"+transport)
		raw, err := os.ReadFile(name + ".pprof")
		if err != nil {
			t.Fatal(err)
		}
		p, err := profile.ParseData(raw)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(p.Function, func(f *profile.Function) bool {
			return f.Name == "github.com/sojourn-run/sojourn/app/store/sqldb.(*Store).loop"
		}) {
			t.Errorf("the committer is not in %s", name)
		}
		if len(p.Comments) != 1 || !strings.HasPrefix(p.Comments[0], "P5 on sqlite, "+transport) {
			t.Errorf("comments of %s: %q, want one that names scenario, store and transport", name, p.Comments)
		}
	}
}

// The calls of isolated code are results like any other.
func TestCallsOfIsolatedCodeAreAScenario(t *testing.T) {
	steps := 0
	got, err := Run(t.Context(), Options{
		Scenarios: []string{isolated}, Quick: true, Log: zerolog.Nop(), Progress: func(done, all int, _ string) {
			if steps++; steps != done || done > all {
				t.Errorf("step %d is the %dth of %d", steps, done, all)
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	native := 0
	for _, r := range got {
		if r.Median <= 0 || r.CPU <= 0 || r.P99 < r.P50 || math.Abs(r.P50-r.Median) > 1e-9 {
			t.Errorf("got %+v", r)
		}
		if r.Transport == "native" {
			native++
		}
	}
	if native != len(sandboxCases()) || steps != isolatedSteps() {
		t.Errorf("%d kinds of native calls in %d steps", native, steps)
	}
}
