package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/cli/bench"
	"github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/internal/release"
	"github.com/sojourn-run/sojourn/sandbox"
)

func (p *program) benchCommand() *cobra.Command {
	var o bench.Options
	asJSON := false
	long := "Measure Sojourn on this machine: client, app and database together, durable writes, payloads of 1 KB.\n\nScenarios:\n"
	for _, s := range bench.Scenarios() {
		long += fmt.Sprintf("  %-11s %s\n", s[0], s[1])
	}
	c := &cobra.Command{
		Use: "bench [SCENARIO…]", Short: "Measure performance on this machine", Long: long,
		Example: "  sojourn bench P1 P5\n  sojourn bench P4 P5 --store sqlite,postgres --runs 5 --json",
		RunE: func(c *cobra.Command, args []string) error {
			for _, a := range args {
				id := strings.ToUpper(a)
				if !slices.ContainsFunc(bench.Scenarios(), func(s [2]string) bool { return s[0] == id }) {
					return usageError{fmt.Errorf("unknown scenario %q; --help lists them", a)}
				}
				o.Scenarios = append(o.Scenarios, id)
			}
			o.Version, _ = release.Current(release.Source{Stamp: release.Stamp, Embedded: release.Embedded})
			if o.Postgres == "" {
				o.Postgres = os.Getenv("SOJOURN_TEST_POSTGRES")
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			o.Program = []string{self, "app"}
			step, finish := p.progressBar()
			o.Progress = step
			o.Figure = func(r bench.Result) {
				fmt.Fprintf(
					p.err, "%s %s, %d %s, %s: %s %s (run %d), %s ms CPU each\n", r.Scenario, r.Store, r.Size, r.SizeOf,
					r.Transport, round(r.Runs[len(r.Runs)-1]), r.Unit, len(r.Runs), round(r.CPU),
				)
			}
			results, err := bench.Run(c.Context(), o)
			finish()
			if asJSON {
				return orFirst(err, p.writeJSON(results))
			}
			fmt.Fprintln(p.out, benchTable(results))
			return err
		},
	}
	c.Flags().StringSliceVar(&o.Stores, "store", []string{"sqlite"}, "databases: sqlite, postgres")
	c.Flags().StringVar(
		&o.Postgres, "postgres", "",
		"URL of a PostgreSQL server on which databases may be created; default: SOJOURN_TEST_POSTGRES",
	)
	c.Flags().IntVar(&o.Runs, "runs", 5, "number of runs per scenario; the median is shown")
	c.Flags().BoolVar(&o.Quick, "quick", false, "one small run per scenario, within 40 s")
	c.Flags().StringVar(
		&o.Profile, "profile", "", "directory for a CPU profile of each scenario except P16 and the growth scenarios",
	)
	c.Flags().BoolVar(&o.Large, "large", false, "also measure the largest sizes; takes up to an hour")
	c.Flags().IntSliceVar(&o.Sizes, "size", nil, "sizes to measure instead of the scenario's own")
	c.Flags().StringVar(
		&o.Data, "data", "", "directory for the filled databases of LISTINGS and the -RETAINED scenarios; the next run reuses them",
	)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON array instead of a table")
	c.AddCommand(p.benchSandboxCommand())
	return c
}

func (p *program) benchSandboxCommand() *cobra.Command {
	o := bench.SandboxOptions{}
	asJSON := false
	c := &cobra.Command{
		Use: "sandbox", Short: "Measure the cost of calls to executors", Args: noArgs,
		Long: "Measure duration and worker CPU time of calls to executors, in each runtime at each level: a call that starts\n" +
			"an executor, a call of 100 bytes in a running executor, and calls of 64 KB and 1 MB of records. The rows \"frames\" are\n" +
			"the baseline: a process that echoes the same bytes over the same kind of socket, also after 100 µs of work.",
		RunE: func(c *cobra.Command, _ []string) error {
			known := map[string][]string{
				"runtime": {sandbox.RuntimeNative, sandbox.RuntimeNode, sandbox.RuntimePython},
				"level":   {string(sandbox.LevelProcess), string(sandbox.LevelConfined)},

				"executor-cgroup": {sandbox.CgroupAuto, sandbox.CgroupNone},
			}
			for flag, given := range map[string][]string{
				"runtime": o.Runtimes, "level": o.Levels, "executor-cgroup": {o.Cgroup},
			} {
				for _, name := range given {
					if !slices.Contains(known[flag], name) {
						return usageErr(c, fmt.Errorf("unknown %s %q; allowed: %s", flag, name, strings.Join(known[flag], ", ")))
					}
				}
			}
			step, finish := p.progressBar()
			o.Progress = step
			results, err := bench.RunSandbox(c.Context(), o)
			finish()
			if asJSON {
				return orFirst(err, p.writeJSON(results))
			}
			fmt.Fprintln(p.out, sandboxTable(results))
			return err
		},
	}
	c.Flags().StringSliceVar(&o.Runtimes, "runtime", nil, "runtimes: native, node, python; default: all")
	c.Flags().StringSliceVar(&o.Levels, "level", nil, "levels: process, confined; default: both")
	c.Flags().StringVar(&o.Cgroup, "executor-cgroup", sandbox.CgroupAuto, "cgroups for executors: auto, none")
	c.Flags().BoolVar(&o.Quick, "quick", false, "only a few calls of each kind")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON array instead of a table")
	return c
}

// progressBar returns a bar on a terminal, and otherwise prints nothing.
func (p *program) progressBar() (step func(done, all int, what string), finish func()) {
	bar := progressbar.NewOptions(
		-1, progressbar.OptionSetWriter(p.err), progressbar.OptionSetVisibility(process.Terminal(p.err)),
		progressbar.OptionClearOnFinish(),
	)
	return func(done, all int, what string) {
		bar.ChangeMax(all)
		bar.Describe(what)
		_ = bar.Set(done) // a bar that cannot be drawn is no reason to stop
	}, func() { _ = bar.Finish() }
}

func orFirst(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

func (p *program) writeJSON(v any) error {
	e := json.NewEncoder(p.out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

func benchTable(results []bench.Result) string {
	t := table.NewWriter()
	t.AppendHeader(table.Row{
		"scenario", "store", "transport", "median", "min – max", "unit", "p50 ms", "p99 ms", "cpu ms/op", "commits/s limit",
		"of limit",
	})
	for _, r := range results {
		if r.Size > 0 {
			r.Scenario += fmt.Sprintf(", %d %s", r.Size, r.SizeOf)
		}
		t.AppendRow(table.Row{
			r.Scenario, r.Store, r.Transport, round(r.Median), round(r.Min) + " – " + round(r.Max), r.Unit, round(r.P50),
			round(r.P99),
			round(r.CPU), round(r.Limit.Commits), fmt.Sprintf("%.2f", r.OfLimit),
		})
	}
	t.SetColumnConfigs(rightAligned(4, 5, 7, 8, 9, 10, 11))
	return t.Render()
}

func sandboxTable(results []bench.SandboxResult) string {
	t := table.NewWriter()
	t.AppendHeader(table.Row{"runtime", "level", "call", "p50 ms", "p99 ms", "worker cpu ms"})
	for _, r := range results {
		row := table.Row{r.Runtime, r.Level, r.Case}
		if r.Skipped != "" {
			row = append(row, r.Skipped)
		} else {
			row = append(row, fmt.Sprintf("%.3f", r.P50), fmt.Sprintf("%.3f", r.P99), fmt.Sprintf("%.3f", r.CPU))
		}
		t.AppendRow(row)
	}
	t.SetColumnConfigs(rightAligned(4, 5, 6))
	return t.Render()
}

func rightAligned(columns ...int) []table.ColumnConfig {
	all := make([]table.ColumnConfig, len(columns))
	for i, n := range columns {
		all[i] = table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight}
	}
	return all
}

// round formats a number with about three digits.
func round(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
