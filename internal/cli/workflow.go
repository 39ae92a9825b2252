package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (p *program) workflowCommand() *cobra.Command {
	return offerIDs(p.group("workflow", "Start, show, signal, query, update and end workflows", nil,
		p.startWorkflow(), p.listWorkflows(), p.describeWorkflow(), p.runsOfWorkflow(), p.historyOfWorkflow(),
		p.resultOfWorkflow(),
		p.signalWorkflow(), p.queryWorkflow(), p.updateWorkflow(), p.signalWithStart(), p.updateWithStart(),
		p.cancelWorkflow(),
		p.endWorkflow("terminate", "Terminate a run immediately, without running its code again"),
		p.endWorkflow("request-cancellation", "Request cancellation of a run; the same as cancel"),
		p.endWorkflow("repair", "Repair a quarantined run: dispatch its workflow task again"),
		p.endWorkflow("archive", "Archive a closed run (a mark for filters)"),
		p.redriveWorkflow(), p.resetWorkflow(), p.deleteWorkflow(),
		p.debugWorkflow(), p.exportWorkflow(), p.importWorkflow(),
	), p.workflowIDs())
}

// oneArg requires exactly one argument.
func oneArg(what string) cobra.PositionalArgs { return exactArgs(what) }

const workflowIDArg = "workflow ID"

func (p *program) listWorkflows() *cobra.Command {
	var filter, status, kind, typ string
	var limit int
	var stuck bool
	c := &cobra.Command{
		Use: "list", Short: "List runs, newest start first", Args: noArgs,
		Example: "  sojourn workflow list --filter \"WorkflowType = 'order' AND Amount > 100 AND StartTime > '2026-01-01'\"",
		RunE: func(c *cobra.Command, _ []string) error {
			if limit < 1 {
				return usageError{fmt.Errorf("--limit must be at least 1")}
			}
			q := url.Values{}
			for name, v := range map[string]string{
				"query": filter, "stored_status": status, "workflow_type": typ, "kind": kind,
			} {
				if v != "" {
					q.Set(name, v)
				}
			}
			if stuck {
				q.Set("stuck", "true")
			}
			if !asJSON(c) { // the table has no values
				q.Set("values", string(protocol.ValuesNone))
			}
			if filter != "" || kind != "" {
				q.Set("partial", "true") // a slow search returns partial results instead of an error
			}
			return list(p, c, listing{path: "/api/workflows", member: "workflows", query: q, page: 200, limit: limit},
				table.Row{"workflow id", "run", "type", "status", "queue", "started", "closed", "error"},
				func(v protocol.RunView) table.Row {
					return table.Row{
						v.WorkflowID, v.RunID, typeOf(v.Kind, v.WorkflowType), p.colored(statusOf(v)), v.TaskQueue,
						stamp(v.StartedAt), stamp(v.ClosedAt),
						inOneLine(cmp.Or(v.Failed().Text(), stuckText(v))),
					}
				})
		},
	}
	c.Flags().StringVar(
		&filter, "filter", "", "conditions joined by AND, OR and NOT, or a part of the workflow id or business key",
	)
	c.Flags().StringVar(&status, "status", "", strings.Join(statusNames(), ", "))
	c.Flags().StringVar(&kind, "kind", "", "kind of run: workflow, or activity for activity runs")
	c.Flags().StringVar(&typ, "type", "", "workflow type, or activity type with --kind activity")
	c.Flags().BoolVar(&stuck, "stuck", false,
		"only stuck runs: they make no progress and need an operator; the last column has the reason")
	c.Flags().IntVar(&limit, "limit", 50, "maximum number of results")
	offerFlag(c, "status", flagOf(func(*cobra.Command, string) []string { return statusNames() }))
	offerFlag(c, "kind", flagOf(func(*cobra.Command, string) []string {
		return []string{protocol.RunOfWorkflow, protocol.RunOfActivity}
	}))
	offerFlag(c, "type", flagOf(func(c *cobra.Command, typed string) []string {
		if kind == protocol.RunOfActivity {
			return p.activityTypes(c, typed)
		}
		return p.workflowTypes(c, typed)
	}))
	return sortable(c)
}

// stuckText returns since when and why a run is stuck; empty if it is not stuck.
func stuckText(v protocol.RunView) string {
	if v.Stuck == nil {
		return ""
	}
	return fmt.Sprintf("stuck since %s: %s", stamp(v.Stuck.Since), v.Stuck.Message)
}

// runPath returns the path of a workflow, or of one run of it.
func runPath(id, run string) string {
	return apiclient.RunPath("/api", protocol.Target{WorkflowID: id, RunID: run})
}

// runFlag adds the flag that selects a run other than the current one.
func runFlag(c *cobra.Command, run *string) *cobra.Command {
	c.Flags().StringVar(run, "run", "", "run ID; default: the current run")
	return c
}

// currentRun returns the run that was named, or the current run of the workflow.
func (p *program) currentRun(c *cobra.Command, id, run string) (string, error) {
	if run != "" {
		return run, nil
	}
	var v protocol.RunView
	err := p.call(c, http.MethodGet, runPath(id, "")+"?values="+string(protocol.ValuesNone), nil, &v)
	return v.RunID, err
}

func (p *program) debugWorkflow() *cobra.Command {
	var run string
	return runFlag(&cobra.Command{
		Use: "debug ID", Short: "Explain what a run waits for or why it failed", Args: oneArg(workflowIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			return send(p, c, http.MethodGet, runPath(args[0], run)+"/debug", nil, func(v protocol.DebugView) error {
				fmt.Fprintf(p.out, "%s, run %s of type %s: %s\n", v.WorkflowID, v.RunID, v.WorkflowType, v.Diagnosis)
				if wait := waitText(v.Wait, v.WaitReason); wait != "" {
					fmt.Fprintf(p.out, "  %s\n", wait)
				}
				fmt.Fprintf(
					p.out, "  %d events, the last %s at %s\n", v.HistorySize, v.LastEvent.Type, stamp(v.LastEvent.At),
				)
				for _, q := range v.Queues {
					fmt.Fprintf(p.out, "  queue %s: live workers: %d\n", q.Name, q.Workers)
				}
				for _, f := range v.Findings {
					fmt.Fprintf(p.out, "  %s %s %s: %s\n", f.Severity, f.Code, f.Subject, f.Message)
				}
				if s := v.Stack; s != nil {
					fmt.Fprintf(p.out, "\n%s failed at\n%s\n", s.Of, strings.TrimSpace(s.Trace))
				}
				return nil
			})
		},
	}, &run)
}

func (p *program) exportWorkflow() *cobra.Command {
	var run, file string
	c := runFlag(&cobra.Command{
		Use: "export ID", Short: "Export the history of a run as one document", Args: oneArg(workflowIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			run, err := p.currentRun(c, args[0], run)
			if err != nil {
				return err
			}
			var bundle json.RawMessage
			if err := p.call(c, http.MethodGet, runPath(args[0], run)+"/history/export", nil, &bundle); err != nil {
				return err
			}
			if file == "" {
				return p.printf("%s", bundle)
			}
			return os.WriteFile(file, bundle, 0o600)
		},
	}, &run)
	c.Flags().StringVarP(&file, "output", "o", "", "output file; default: standard output")
	return c
}

func (p *program) importWorkflow() *cobra.Command {
	return &cobra.Command{
		Use: "import FILE", Short: "Import a closed run from its export; - reads standard input",
		Args: oneArg("file, or -"),
		RunE: func(c *cobra.Command, args []string) error {
			var bundle json.RawMessage
			var err error
			if args[0] == "-" {
				bundle, err = io.ReadAll(c.InOrStdin())
			} else {
				bundle, err = os.ReadFile(args[0])
			}
			if err != nil {
				return err
			}
			if !json.Valid(bundle) {
				return usageError{fmt.Errorf("%s is not JSON", args[0])}
			}
			return send(p, c, http.MethodPost, "/api/workflows/import/bundle", bundle, func(out protocol.ImportResponse) error {
				return p.printf("%s %s, run %s: %s with %d events", out.Outcome, out.WorkflowID, out.RunID, out.Status, out.Events)
			})
		},
	}
}
