package cli

import (
	"fmt"
	"net/url"
	"regexp"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/docs"
	"github.com/sojourn-run/sojourn/internal/cli/conformance"
	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/internal/process"
)

// errNonconforming makes the command fail after it has printed the results.
var errNonconforming = fmt.Errorf("the server does not conform")

func (p *program) conformanceCommand() *cobra.Command {
	var filter, only string
	var with []string
	var asJSON, list bool
	c := &cobra.Command{
		Use: "conformance URL", Short: "Test any server against the contract of the HTTP API",
		Long: "Test any server against the contract of the HTTP API.\n\n" +
			"The cases are the files of docs/conformance, which are part of this binary. Cases of the part \"contract\" apply to every server\n" +
			"that published clients can use; cases of the part \"sojourn\" cover Sojourn's additional API. The cases create workflows, workers\n" +
			"and schedules with new names and do not delete them, so use a test server. The token (--token or SOJOURN_TOKEN) needs the role\n" +
			"admin. The exit status is 1 if a case fails.",
		Example: "  sojourn conformance http://127.0.0.1:7700\n  sojourn conformance https://other.example --only contract --filter '^tasks/' --json",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 1 || list && len(args) == 0 {
				return nil
			}
			return usageError{fmt.Errorf("%s requires the URL of a server", c.CommandPath())}
		},
		RunE: func(c *cobra.Command, args []string) error {
			o := conformance.Options{Only: only, With: with}
			if only != "" && only != conformance.Contract && only != conformance.Sojourn {
				return usageError{fmt.Errorf("--only must be %s or %s, not %q", conformance.Contract, conformance.Sojourn, only)}
			}
			if filter != "" {
				var err error
				if o.Filter, err = regexp.Compile(filter); err != nil {
					return usageError{fmt.Errorf("--filter: %w", err)}
				}
			}
			cases, err := conformance.Load(docs.Conformance, "conformance")
			if err != nil {
				return err
			}
			if cases = conformance.Selected(cases, o.Only, o.Filter); len(cases) == 0 {
				return usageError{fmt.Errorf("no case matches --only and --filter; --list shows all cases")}
			}
			if list {
				return p.listCases(cases, asJSON)
			}
			if o.URL = args[0]; !absolute(o.URL) {
				return usageError{fmt.Errorf("%q is not the URL of a server, such as http://127.0.0.1:7700", o.URL)}
			}
			s, err := p.settings(c)
			if err != nil {
				return err
			}
			o.Token = s.Token
			return p.conform(c, cases, o, asJSON)
		},
	}
	c.Flags().StringVar(&filter, "filter", "", "only cases whose suite/name matches this regular expression")
	c.Flags().StringVar(&only, "only", "", "only this part of the cases: contract, sojourn")
	c.Flags().StringSliceVar(&with, "with", nil, "a setting of the server that some cases require: max-polls=1")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON array of results")
	c.Flags().BoolVar(&list, "list", false, "list the cases without running them")
	config.Register(c.Flags(), config.Client)
	return c
}

func absolute(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func (p *program) conform(c *cobra.Command, cases []conformance.Case, o conformance.Options, asJSON bool) error {
	bar := progressbar.NewOptions(len(cases), progressbar.OptionSetWriter(p.err), progressbar.OptionSetVisibility(
		process.Terminal(p.err),
	),
		progressbar.OptionClearOnFinish())
	count := map[string]int{}
	o.Done = func(r conformance.Result) {
		count[r.Outcome]++
		bar.Describe(r.Case)
		_ = bar.Add(1) // a bar that cannot be drawn is no reason to stop
		if r.Outcome != conformance.Passed && !asJSON {
			_ = bar.Clear()
			fmt.Fprintf(p.out, "%s %s\n    %s\n", r.Outcome, r.Case, r.Why)
		}
	}
	results, err := conformance.Run(c.Context(), cases, o)
	_ = bar.Finish()
	if asJSON && results != nil {
		err = orFirst(err, p.writeJSON(results))
	} else if err == nil {
		fmt.Fprintf(
			p.out, "%d cases: %d passed, %d failed, %d skipped\n", len(results), count[conformance.Passed],
			count[conformance.Failed], count[conformance.Skipped],
		)
	}
	if err == nil && count[conformance.Failed] > 0 {
		return errNonconforming
	}
	return err
}

func (p *program) listCases(cases []conformance.Case, asJSON bool) error {
	if asJSON {
		names := make([]map[string]string, len(cases))
		for i, c := range cases {
			names[i] = map[string]string{"case": c.ID(), "part": c.Part}
		}
		return p.writeJSON(names)
	}
	t := table.NewWriter()
	t.AppendHeader(table.Row{"part", "case"})
	for _, c := range cases {
		t.AppendRow(table.Row{c.Part, c.ID()})
	}
	_, err := fmt.Fprintln(p.out, t.Render())
	return err
}
