package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/cli/config"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (p *program) workflowCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "workflow", Short: "List, debug, archive, export and import workflows", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	for _, sub := range []*cobra.Command{p.listWorkflows(), p.debugWorkflow(), p.archiveWorkflow(), p.exportWorkflow(), p.importWorkflow()} {
		config.Register(sub.Flags(), config.Client)
		c.AddCommand(sub)
	}
	return c
}

// one wants exactly one argument.
func one(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageError{fmt.Errorf("%s takes %s", c.CommandPath(), what)}
		}
		return nil
	}
}

func (p *program) listWorkflows() *cobra.Command {
	var filter, status, kind string
	var limit int
	c := &cobra.Command{
		Use: "list", Short: "List runs, newest start first", Args: noArgs,
		Example: "  sojourn workflow list --filter \"WorkflowType = 'order' AND Amount > 100 AND StartTime > '2026-01-01'\"",
		RunE: func(c *cobra.Command, _ []string) error {
			t := table.NewWriter()
			t.AppendHeader(table.Row{"workflow id", "run", "type", "status", "queue", "started", "closed"})
			q := url.Values{}
			for name, v := range map[string]string{"query": filter, "status": status, "workflow_type": kind} {
				if v != "" {
					q.Set(name, v)
				}
			}
			for left := limit; left > 0; {
				q.Set("page_size", strconv.Itoa(min(left, 200)))
				var page protocol.ListAnswer
				if err := p.call(c, http.MethodGet, "/api/workflows?"+q.Encode(), nil, &page); err != nil {
					return err
				}
				for _, v := range page.Workflows {
					closed := ""
					if v.Terminal {
						closed = v.ClosedAt.Format(time.RFC3339)
					}
					t.AppendRow(table.Row{v.WorkflowID, v.RunID, v.WorkflowType, v.Status, v.TaskQueue, v.StartedAt.Format(time.RFC3339), closed})
				}
				if left -= len(page.Workflows); page.NextPageToken == nil {
					break
				}
				q.Set("next_page_token", *page.NextPageToken)
			}
			_, err := fmt.Fprintln(p.out, t.Render())
			return err
		},
	}
	c.Flags().StringVar(&filter, "filter", "", "conditions joined by AND, or a part of the workflow id or business key")
	c.Flags().StringVar(&status, "status", "", "running, completed, failed, cancelled, terminated, timed_out, continued")
	c.Flags().StringVar(&kind, "type", "", "only this workflow type")
	c.Flags().IntVar(&limit, "limit", 50, "at most this many")
	return c
}

// runPath is the path of a workflow, or of one run of it.
func runPath(id, run string) string {
	path := "/api/workflows/" + url.PathEscape(id)
	if run != "" {
		path += "/runs/" + url.PathEscape(run)
	}
	return path
}

func (p *program) debugWorkflow() *cobra.Command {
	var run string
	c := &cobra.Command{
		Use: "debug ID", Short: "Say why a run is where it is", Args: one("the id of one workflow"),
		RunE: func(c *cobra.Command, args []string) error {
			var v protocol.DebugView
			if err := p.call(c, http.MethodGet, runPath(args[0], run)+"/debug", nil, &v); err != nil {
				return err
			}
			fmt.Fprintf(p.out, "%s, run %s of type %s: %s\n", v.WorkflowID, v.RunID, v.WorkflowType, v.Diagnosis)
			if v.WaitReason != nil {
				fmt.Fprintf(p.out, "  %s\n", *v.WaitReason)
			}
			fmt.Fprintf(p.out, "  %d events, the last %s at %s\n", v.HistorySize, v.LastEvent.Type, v.LastEvent.At.Format(time.RFC3339))
			for _, q := range v.Queues {
				fmt.Fprintf(p.out, "  queue %s: %d live workers\n", q.Name, q.Workers)
			}
			for _, f := range v.Findings {
				fmt.Fprintf(p.out, "  %s %s %s: %s\n", f.Severity, f.Code, f.Subject, f.Message)
			}
			return nil
		},
	}
	c.Flags().StringVar(&run, "run", "", "this run, not the current one")
	return c
}

func (p *program) archiveWorkflow() *cobra.Command {
	var run, reason string
	c := &cobra.Command{
		Use: "archive ID", Short: "Mark a closed run as dealt with", Args: one("the id of one workflow"),
		RunE: func(c *cobra.Command, args []string) error {
			var out protocol.CommandReceipt
			if err := p.call(c, http.MethodPost, runPath(args[0], run)+"/archive", protocol.EndRequest{Reason: reason}, &out); err != nil {
				return err
			}
			fmt.Fprintln(p.out, out.Outcome, out.RunID)
			return nil
		},
	}
	c.Flags().StringVar(&run, "run", "", "only if this is the current run")
	c.Flags().StringVar(&reason, "reason", "", "why, for others")
	return c
}

func (p *program) exportWorkflow() *cobra.Command {
	var run, file string
	c := &cobra.Command{
		Use: "export ID", Short: "Write a run's history as one document", Args: one("the id of one workflow"),
		RunE: func(c *cobra.Command, args []string) error {
			if run == "" {
				var v protocol.RunView
				if err := p.call(c, http.MethodGet, runPath(args[0], ""), nil, &v); err != nil {
					return err
				}
				run = v.RunID
			}
			var bundle json.RawMessage
			if err := p.call(c, http.MethodGet, runPath(args[0], run)+"/history/export", nil, &bundle); err != nil {
				return err
			}
			if file == "" {
				_, err := fmt.Fprintln(p.out, string(bundle))
				return err
			}
			return os.WriteFile(file, bundle, 0o600)
		},
	}
	c.Flags().StringVar(&run, "run", "", "this run, not the current one")
	c.Flags().StringVarP(&file, "output", "o", "", "write to this file")
	return c
}

func (p *program) importWorkflow() *cobra.Command {
	return &cobra.Command{
		Use: "import FILE", Short: "Take a closed run back in from its export; - reads standard input", Args: one("one file, or -"),
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
			var out protocol.ImportAnswer
			if err := p.call(c, http.MethodPost, "/api/workflows/import/bundle", bundle, &out); err != nil {
				return err
			}
			fmt.Fprintf(p.out, "%s %s, run %s: %s with %d events\n", out.Outcome, out.WorkflowID, out.RunID, out.Status, out.Events)
			return nil
		},
	}
}
