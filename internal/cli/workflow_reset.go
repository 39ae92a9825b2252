package cli

import (
	"errors"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

// resetFlags are the flags of a reset that a batch job has, too.
type resetFlags struct{ first, last, noReapply bool }

func (f *resetFlags) register(c *cobra.Command) {
	c.Flags().BoolVar(&f.first, "first-task", false, "reset to the end of the first workflow task")
	c.Flags().BoolVar(&f.last, "last-task", false, "reset to the end of the last workflow task that left the run open")
	c.Flags().BoolVar(&f.noReapply, "no-reapply", false,
		"drop signals, unanswered updates and outcomes of awakeables that a reset run received after that point")
}

// to returns the workflow task that the flags name, or an empty string.
func (f *resetFlags) to() (protocol.ResetTo, error) {
	switch {
	case f.first && f.last:
		return "", usageError{errors.New("--first-task and --last-task exclude each other")}
	case f.first:
		return protocol.ResetToFirstTask, nil
	case f.last:
		return protocol.ResetToLastTask, nil
	}
	return "", nil
}

// reapply returns the request member: nil without --no-reapply.
func (f *resetFlags) reapply() *bool {
	if !f.noReapply {
		return nil
	}
	return new(bool)
}

// batchJob returns the request for a batch job. Event numbers differ between runs, so it names a workflow task.
func (f *resetFlags) batchJob(reason string) (protocol.BatchJobRequest, error) {
	to, err := f.to()
	if err == nil && to == "" {
		err = usageError{errors.New("a reset of several runs requires --first-task or --last-task")}
	}
	return protocol.BatchJobRequest{
		Action: protocol.BatchReset, Reason: reason, ResetTo: to, Reapply: f.reapply(),
	}, err
}

// resetWorkflow returns the command that continues a run from the end of a workflow task. The route requires a run ID,
// by default the current run's.
func (p *program) resetWorkflow() *cobra.Command {
	var run, request, reason string
	var event int64
	var f resetFlags
	c := runFlag(&cobra.Command{
		Use: "reset ID", Short: "Continue a run from the end of one of its workflow tasks as a new run",
		Long: "Continue an open or closed run from the end of one of its workflow tasks as a new run.\n" +
			"An open run closes as terminated. Activities that were open at that point run again.",
		Args: oneArg(workflowIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			to, err := f.to()
			if err != nil {
				return err
			}
			if (event == 0) == (to == "") {
				return usageError{errors.New("exactly one of --event, --first-task and --last-task is required")}
			}
			run, err := p.currentRun(c, args[0], run)
			if err != nil {
				return err
			}
			in := protocol.ResetRequest{
				Event: event, To: to, Reason: reason, Reapply: f.reapply(), RequestID: requestID(request),
			}
			path := apiclient.RunPath("/api/sojourn", protocol.Target{WorkflowID: args[0], RunID: run}) + "/reset"
			return send(p, c, http.MethodPost, path, in, func(v protocol.ResetReceipt) error {
				return p.printf("reset %s to event %d: run %s continues run %s", v.WorkflowID, v.Event, v.RunID, v.ContinuedFrom)
			})
		},
	}, &run)
	f.register(c)
	c.Flags().Int64Var(&event, "event", 0, "number of the last event that a workflow task recorded")
	c.Flags().StringVar(&reason, "reason", "", "reason, shown to other operators")
	c.Flags().StringVar(&request, "request-id", "", "ID of the request: the same ID again returns the first response")
	return p.orBatch(c, nil, func([]string) (protocol.BatchJobRequest, error) {
		if event != 0 {
			return protocol.BatchJobRequest{}, usageError{errors.New("--event cannot be combined with --query")}
		}
		return f.batchJob(reason)
	})
}
