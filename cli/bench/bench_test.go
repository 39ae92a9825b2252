package bench

import (
	"math"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/sojourn-run/sojourn/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Main(Executor)
	goleak.VerifyTestMain(m)
}

// Every case is measured in each runtime at each level there is, or says why not.
func TestSandboxMeasuresEveryCase(t *testing.T) {
	steps := 0
	progress := func(_, all int, _ string) {
		if steps++; steps > all {
			t.Errorf("step %d of %d", steps, all)
		}
	}
	got, err := RunSandbox(t.Context(), SandboxOptions{Quick: true, Log: zerolog.Nop(), Progress: progress})
	if err != nil {
		t.Fatal(err)
	}
	if want := (1 + 3*2) * len(sandboxCases()); len(got) != want || steps != want {
		t.Errorf("%d results in %d steps, want %d", len(got), steps, want)
	}
	for _, r := range got {
		if r.Skipped == "" && (r.N == 0 || r.P50 <= 0 || r.P99 < r.P50 || r.CPU <= 0) {
			t.Errorf("got %+v", r)
		}
		always := r.Runtime == bare || r.Runtime == sandbox.RuntimeNative && r.Level == string(sandbox.LevelProcess)
		if r.Skipped != "" && always {
			t.Errorf("%s was not measured: %s", r.Runtime, r.Skipped)
		}
	}
	if len(sandbox.Native) > 0 {
		t.Error("a worker would offer what was measured")
	}
}

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
