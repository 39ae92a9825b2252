package bench

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/sojourn-run/sojourn/sandbox"
)

// isolated is the id of the scenario that measures calls of isolated code. It needs no app and no database.
const isolated = "P16"

// isolatedSteps returns the number of progress steps of a run: each kind of call in each runtime, and the echo of
// frames.
func isolatedSteps() int { return len(echoCases()) + len(isolatedRuntimes())*len(sandboxCases()) }

func isolatedRuntimes() []string {
	return []string{sandbox.RuntimeNative, sandbox.RuntimeNode, sandbox.RuntimePython}
}

// measureIsolated measures each kind of call in each runtime at the level process, which every machine supports. It
// omits missing runtimes. "sojourn bench sandbox" measures more.
func measureIsolated(ctx context.Context, o Options, step func(what string)) (results []Result, err error) {
	at := map[string]int{}
	for range o.Runs {
		some, err := RunSandbox(ctx, SandboxOptions{
			Runtimes: isolatedRuntimes(), Levels: []string{string(sandbox.LevelProcess)}, Quick: o.Quick, Log: o.Log,
			Progress: func(_, _ int, what string) { step(what) },
		})
		if err != nil {
			return results, err
		}
		for _, c := range some {
			if c.Runtime == bare || c.Skipped != "" {
				continue
			}
			name := c.Runtime + ", " + c.Case
			i, known := at[name]
			if !known {
				i = len(results)
				at[name] = i
				results = append(results, Result{
					Scenario: isolated, Description: describe(isolated),
					Store: "none", Transport: c.Runtime, Unit: "ms, " + c.Case, N: c.N,
					Cores: runtime.NumCPU(), Go: runtime.Version(), Version: o.Version,
					Date: time.Now().UTC().Format(time.DateOnly),
				})
			}
			r := &results[i]
			r.Runs = append(r.Runs, c.P50)
			// median and 99th percentile of each run, averaged over the runs
			r.P50, r.P99, r.CPU = r.P50+c.P50/float64(o.Runs), r.P99+c.P99/float64(o.Runs), r.CPU+c.CPU/float64(o.Runs)
		}
	}
	for i := range results {
		results[i].middle()
	}
	if len(results) == 0 {
		return nil, fmt.Errorf("no runtime is available at level %s", sandbox.LevelProcess)
	}
	return results, nil
}

// middle fills in the median, minimum and maximum of the runs.
func (r *Result) middle() {
	sorted := slices.Sorted(slices.Values(r.Runs))
	r.Median, r.Min, r.Max = sorted[len(sorted)/2], sorted[0], sorted[len(sorted)-1]
}
