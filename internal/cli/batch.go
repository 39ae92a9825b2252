package cli

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

const (
	batchPath  = "/api/sojourn/batch-jobs"
	batchIDArg = "batch job ID"
	// batchPoll is the interval between two requests for the progress of a batch job.
	batchPoll = time.Second
)

func batchJobPath(id string) string { return batchPath + "/" + url.PathEscape(id) }

// batchActions are the actions of batch jobs, in the order of the help.
var batchActions = []protocol.BatchAction{
	protocol.BatchRequestCancellation, protocol.BatchCancel, protocol.BatchTerminate, protocol.BatchSignal,
	protocol.BatchRepair, protocol.BatchRedrive, protocol.BatchReset, protocol.BatchArchive, protocol.BatchDelete,
}

func (p *program) batchCommand() *cobra.Command {
	return offerIDs(p.group("batch", "Apply an action to all runs that match a filter", p.listBatchJobs,
		p.startBatch(),
		&cobra.Command{Use: "list", Short: "List batch jobs, newest first", Args: noArgs, RunE: p.listBatchJobs},
		&cobra.Command{
			Use: "describe ID", Short: "Show a batch job with its progress", Args: oneArg(batchIDArg),
			RunE: func(c *cobra.Command, args []string) error {
				return send(p, c, http.MethodGet, batchJobPath(args[0]), nil, p.printBatchJob)
			},
		},
		p.batchResults(), p.stopBatch(),
	), first(p.ids(batchPath, "batch_jobs", "job_id", false)))
}

func (p *program) listBatchJobs(c *cobra.Command, _ []string) error {
	return list(p, c, listing{path: batchPath, member: "batch_jobs", page: 200},
		table.Row{"batch job", "action", "state", "runs", "done", "refused", "created", "by", "query"},
		func(v protocol.BatchJobView) table.Row {
			return table.Row{
				v.JobID, v.Action, v.State, v.Runs, v.Done, v.Refused, stamp(v.CreatedAt), v.CreatedBy, inOneLine(v.Query),
			}
		})
}

func (p *program) printBatchJob(v protocol.BatchJobView) error {
	return p.facts(
		fact{"batch job", v.JobID},
		fact{"action", strings.TrimSpace(string(v.Action) + " " + v.SignalName)},
		fact{"query", v.Query},
		fact{"state", string(v.State)},
		fact{"progress", batchProgress(v)},
		fact{"limit", fmt.Sprintf("%d runs, %d per second", v.Limit, v.RatePerSecond)},
		fact{"reason", v.Reason},
		fact{"created", stamp(v.CreatedAt) + " by " + v.CreatedBy},
		fact{"closed", strings.TrimSpace(stampOf(v.ClosedAt) + " " + v.EndedBy)},
		fact{"end reason", v.EndReason},
	)
}

// batchProgress describes the progress of a batch job in a few words.
func batchProgress(v protocol.BatchJobView) string {
	return fmt.Sprintf("%d of %d runs done, %d refused", v.Done, v.Runs, v.Refused)
}

func (p *program) batchResults() *cobra.Command {
	var state string
	var limit int
	c := &cobra.Command{
		Use: "results ID", Short: "List the runs of a batch job with their results", Args: oneArg(batchIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			q := url.Values{}
			if state != "" {
				q.Set("state", state)
			}
			if limit < 1 {
				return usageError{errors.New("--limit must be at least 1")}
			}
			return list(p, c, listing{
				path: batchJobPath(args[0]) + "/results", member: "results", query: q, page: 1000, limit: limit,
			}, table.Row{"workflow id", "run", "state", "at", "refusal"}, func(v protocol.BatchResult) table.Row {
				refusal := stringOf(v.Reason)
				if v.Message != nil {
					refusal += ": " + inOneLine(*v.Message)
				}
				return table.Row{v.WorkflowID, v.RunID, v.State, stampOf(v.At), refusal}
			})
		},
	}
	c.Flags().StringVar(&state, "state", "", "only runs in this state: pending, done or refused")
	c.Flags().IntVar(&limit, "limit", 1000, "maximum number of results")
	return c
}

func (p *program) stopBatch() *cobra.Command {
	var reason string
	c := &cobra.Command{
		Use: "stop ID", Short: "Stop a batch job; runs without a result do not change", Args: oneArg(batchIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			in := protocol.BatchStopRequest{Reason: reason}
			return send(p, c, http.MethodPost, batchJobPath(args[0])+"/stop", in, func(v protocol.BatchJobView) error {
				return p.printf("stopped %s: %s", v.JobID, batchProgress(v))
			})
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "reason, shown to other operators")
	return c
}

// batchFlags are the flags of commands that create a batch job.
type batchFlags struct {
	query       string
	limit, rate int
	sure        bool
	detach      bool
}

func (f *batchFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.query, "query", "", "filter of the runs, as for workflow list --filter; creates a batch job")
	c.Flags().IntVar(&f.limit, "limit", protocol.DefaultBatchRuns, "maximum number of runs of the batch job")
	c.Flags().IntVar(&f.rate, "rate", protocol.DefaultBatchRate, "runs per second of the batch job")
	c.Flags().BoolVar(&f.sure, "yes", false, "do not ask for confirmation of the batch job")
	c.Flags().BoolVar(&f.detach, "no-wait", false, "do not wait for the end of the batch job")
}

func (p *program) startBatch() *cobra.Command {
	var f batchFlags
	var signal, input, reason string
	var point resetFlags
	names := make([]string, len(batchActions))
	for i, a := range batchActions {
		names[i] = string(a)
	}
	c := &cobra.Command{
		Use: "start ACTION --query QUERY", Short: "Create a batch job and show its progress", Args: oneArg("action"),
		Long: "Create a batch job and show its progress. Actions: " + strings.Join(names, ", ") +
			". redrive concerns failed runs, reset open and closed runs, archive and delete closed runs, the others open runs.",
		Example: "  sojourn batch start cancel --query \"WorkflowType = 'order' AND StartTime < '2026-01-01'\" --rate 50",
		ValidArgsFunction: first(func(*cobra.Command, string) []string {
			return slices.Clone(names)
		}),
		RunE: func(c *cobra.Command, args []string) error {
			raw, err := p.arguments(c, input)
			if err != nil {
				return err
			}
			in := protocol.BatchJobRequest{
				Action: protocol.BatchAction(args[0]), Reason: reason, SignalName: signal, Input: raw,
			}
			if in.Action == protocol.BatchReset {
				if in, err = point.batchJob(reason); err != nil {
					return err
				}
			}
			return p.runBatch(c, &f, in)
		},
	}
	f.register(c)
	c.Flags().StringVar(&signal, "signal", "", "name of the signal, for the action signal")
	c.Flags().StringVar(&input, "input", "", inputHelp)
	c.Flags().StringVar(&reason, "reason", "", "reason, shown to other operators")
	point.register(c)
	return c
}

// orBatch adds --query to a command for one run. With it, the command has one argument less, and creates a batch job
// with the request that make returns.
func (p *program) orBatch(
	c *cobra.Command, names []string, make func(args []string) (protocol.BatchJobRequest, error),
) *cobra.Command {
	var f batchFlags
	f.register(c)
	args, single := c.Args, c.RunE
	c.Args = func(c *cobra.Command, given []string) error {
		if f.query == "" {
			return args(c, given)
		}
		if len(names) == 0 {
			return noArgs(c, given)
		}
		return exactArgs(names...)(c, given)
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if f.query == "" {
			for _, name := range []string{"limit", "rate", "yes", "no-wait"} {
				if c.Flags().Changed(name) {
					return usageError{fmt.Errorf("--%s requires --query", name)}
				}
			}
			return single(c, args)
		}
		for _, name := range []string{"run", "request-id", "header"} {
			if flag := c.Flags().Lookup(name); flag != nil && flag.Changed {
				return usageError{fmt.Errorf("--%s cannot be combined with --query", name)}
			}
		}
		in, err := make(args)
		if err != nil {
			return err
		}
		return p.runBatch(c, &f, in)
	}
	c.Use = strings.Replace(c.Use, " ID", " ID|--query QUERY", 1)
	return c
}

// runBatch creates a batch job after a confirmation, and shows its progress until it has closed.
func (p *program) runBatch(c *cobra.Command, f *batchFlags, in protocol.BatchJobRequest) error {
	if f.query == "" {
		return usageError{errors.New("--query is required")}
	}
	in.Query, in.Limit, in.RatePerSecond, in.RequestID = f.query, f.limit, f.rate, requestID("")
	if !f.sure {
		if err := p.confirmBatch(c, in); err != nil {
			return err
		}
	}
	var raw json.RawMessage
	if err := p.call(c, http.MethodPost, batchPath, in, &raw); err != nil {
		return err
	}
	v, err := p.followBatch(c, f, &raw)
	if err != nil {
		return err
	}
	if asJSON(c) {
		err = p.printJSON(raw)
	} else {
		err = p.printf("%s %s: %s", v.State, v.JobID, batchProgress(v))
	}
	switch {
	case err != nil:
		return err
	case v.State == protocol.BatchStopped || v.State == protocol.BatchFailed:
		return fmt.Errorf("batch job %s has not applied its action to all runs: %s %s", v.JobID, v.State, v.EndReason)
	case v.Refused > 0:
		fmt.Fprintf(p.err, "to list the refusals, run: sojourn batch results %s --state refused\n", v.JobID)
	}
	return nil
}

// confirmBatch shows the number of runs and asks for a confirmation.
func (p *program) confirmBatch(c *cobra.Command, in protocol.BatchJobRequest) error {
	var n protocol.BatchPreview
	q := url.Values{"query": {in.Query}, "action": {string(in.Action)}}
	if err := p.call(c, http.MethodGet, "/api/sojourn/batch-preview?"+q.Encode(), nil, &n); err != nil {
		return err
	}
	count := fmt.Sprint(n.Runs)
	if !n.Complete {
		count = "at least " + count
	}
	fmt.Fprintf(p.err, "%s: %s runs match %s; the limit is %d.\nType yes to continue: ", in.Action, count, in.Query, in.Limit)
	typed, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n') // no input counts as no
	if !strings.HasSuffix(typed, "\n") {
		fmt.Fprintln(p.err)
	}
	if strings.TrimSpace(typed) != "yes" {
		return usageError{errors.New("no batch job was created: type yes to confirm, or pass --yes")}
	}
	return nil
}

// followBatch prints the progress of a batch job to standard error until it has closed. raw is the last response.
func (p *program) followBatch(
	c *cobra.Command, f *batchFlags, raw *json.RawMessage,
) (v protocol.BatchJobView, err error) {
	for shown := ""; ; {
		v = protocol.BatchJobView{}
		if err := json.Unmarshal(*raw, &v); err != nil {
			return v, fmt.Errorf("read the response: %w", err)
		}
		if f.detach || v.ClosedAt != nil {
			return v, nil
		}
		if line := fmt.Sprintf("%s %s: %s", v.State, v.JobID, batchProgress(v)); line != shown {
			fmt.Fprintln(p.err, line)
			shown = line
		}
		select {
		case <-time.After(batchPoll):
		case <-c.Context().Done():
			return v, fmt.Errorf("batch job %s continues; to stop it, run: sojourn batch stop %s", v.JobID, v.JobID)
		}
		if err := p.call(c, http.MethodGet, batchJobPath(v.JobID), nil, raw); err != nil {
			return v, err
		}
	}
}
