package bench

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"reflect"
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

// Every case is measured in each runtime at each available level, or reports why it is not.
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
	if want := len(echoCases()) + 3*2*len(sandboxCases()); len(got) != want || steps != want {
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

// Every scenario runs in tests, so that a broken scenario is found before its figure is needed. Scenarios that measure
// both databases run on one of them here, in turn; "make bench" runs all.
func TestEveryScenarioMeasuresEachOperation(t *testing.T) {
	const ops = 6
	server := os.Getenv("SOJOURN_TEST_POSTGRES")
	stores := []string{"sqlite"}
	if server != "" {
		stores = append(stores, "postgres")
	}
	for i, s := range scenarios() {
		if s.id == "P12" {
			continue // it starts the sojourn program, so the tests of the command in internal/cli cover it
		}
		kinds := on(s.only, stores)
		if len(kinds) > 0 {
			kind := kinds[i%len(kinds)]
			t.Run(s.id+" "+kind+" "+s.transport+" "+s.unit, func(t *testing.T) {
				o := Options{Postgres: server, Quick: true, Log: zerolog.Nop()}
				got, _, _, err := once(t.Context(), s, kind, o, ops, &profiles{})
				if err != nil {
					t.Fatal(err)
				}
				if s.rests {
					if got.elapsed < ops*atRest(true).tick || got.resident < 1<<20 {
						t.Errorf("got %+v", got)
					}
					return
				}
				if len(got.each) != ops || slices.Contains(got.each, 0) || slices.Contains(got.without, 0) {
					t.Errorf("got %+v", got)
				}
				// Scenarios that only read commit nothing except the counters of quotas, once a second.
				if reads := s.id == "P14"; reads && got.commits > 2 || !reads && got.commits == 0 {
					t.Errorf("%d commits", got.commits)
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
}

func TestListedScenariosExist(t *testing.T) {
	var there []string
	for _, s := range scenarios() {
		there = append(there, s.id)
	}
	there = append(there, isolated)
	for _, g := range growths() {
		for _, p := range g.parts {
			there = append(there, p.id)
		}
	}
	listed := Scenarios()
	for _, id := range there {
		if !slices.ContainsFunc(listed, func(l [2]string) bool { return l[0] == id }) {
			t.Errorf("%s is not listed", id)
		}
	}
	for _, l := range listed {
		if !slices.Contains(there, l[0]) {
			t.Errorf("%s is listed and not there", l[0])
		}
	}
}

// Each growth scenario is measured at all its sizes in one run of the tool.
func TestGrowthScenariosAreMeasuredAtEachSize(t *testing.T) {
	for _, g := range growths() {
		kind, server := "sqlite", ""
		if g.only == "postgres" {
			if kind, server = g.only, os.Getenv("SOJOURN_TEST_POSTGRES"); server == "" {
				continue
			}
		}
		o := Options{Stores: []string{kind}, Postgres: server, Quick: true, Log: zerolog.Nop()}
		for _, p := range g.parts {
			o.Scenarios = append(o.Scenarios, p.id)
		}
		t.Run(g.of, func(t *testing.T) {
			steps := 0
			var lines []string
			o.Progress = func(done, all int, what string) { steps, lines = done-all, append(lines, what) }
			var figures []Result
			o.Figure = func(r Result) { figures = append(figures, r) }
			got, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			byName := func(x, y Result) int {
				return cmp.Or(cmp.Compare(x.Scenario+x.Transport, y.Scenario+y.Transport), cmp.Compare(x.Size, y.Size))
			}
			sorted := func(list []Result) []Result { return slices.SortedFunc(slices.Values(list), byName) }
			if !reflect.DeepEqual(sorted(got), sorted(figures)) {
				t.Errorf("on the way it told %+v, and at the end %+v", figures, got)
			}
			size := g.quick[len(g.quick)-1]
			if there := fmt.Sprintf("preparing %s: %d of %d %s", kind, size, size, g.of); g.large > 0 &&
				!slices.Contains(lines, there) {
				t.Errorf("the progress lines lack %q: %q", there, lines)
			}
			if len(got) != len(g.parts)*len(g.quick) || steps != 0 {
				t.Fatalf("%d results, want %d of %d parts; %d steps too many", len(got), len(g.quick), len(g.parts), steps)
			}
			for i, r := range got {
				p := g.parts[i/len(g.quick)]
				if r.Scenario != p.id || r.Size != g.quick[i%len(g.quick)] || r.SizeOf != g.of || r.Median <= 0 || r.CPU <= 0 {
					t.Errorf("result %d is %+v", i, r)
				}
			}
		})
	}
}
