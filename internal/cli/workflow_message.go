package cli

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (p *program) startWorkflow() *cobra.Command {
	var shared starting
	var input string
	var times startTimes
	var cron, zone string
	var wait bool
	c := &cobra.Command{
		Use: "start TYPE", Short: "Start a workflow", Args: oneArg("workflow type"),
		ValidArgsFunction: first(p.workflowTypes),
		Example: "  sojourn workflow start greet --id g1 --input '[\"Ada\"]' --wait\n" +
			"  sojourn workflow start report --cron '0 7 * * 1-5' --cron-timezone Europe/Berlin",
		RunE: func(c *cobra.Command, args []string) error {
			if wait && cron != "" {
				return usageError{fmt.Errorf("--wait cannot be combined with --cron, which creates a schedule instead of a run")}
			}
			in, err := shared.read(p, c)
			if err != nil {
				return err
			}
			in.WorkflowType, in.Cron, in.CronTimezone = args[0], cron, zone
			if err := times.read(&in); err != nil {
				return err
			}
			if in.Input, err = p.arguments(c, input); err != nil {
				return err
			}
			if !wait {
				return send(p, c, http.MethodPost, "/api/workflows", in, func(v protocol.StartResponse) error {
					if v.ScheduleID != "" {
						return p.printf("%s %s", v.Outcome, v.ScheduleID)
					}
					return p.printf("%s %s, run %s", v.Outcome, v.WorkflowID, v.RunID)
				})
			}
			app, err := p.client(c)
			if err != nil {
				return err
			}
			v, target, err := apiclient.StartAndWait[protocol.RunView](c.Context(), app, in)
			return p.printResult(c, v, target, err)
		},
	}
	shared.flags(c)
	f := c.Flags()
	f.StringVar(&input, "input", "", inputHelp)
	times.flags(c)
	f.StringVar(&cron, "cron", "", "cron expression; creates a schedule with this ID instead of a run")
	f.StringVar(&zone, "cron-timezone", "", "time zone of --cron; default: UTC")
	f.BoolVar(&wait, "wait", false, "wait for the result and print it")
	return c
}

// seconds converts a duration to whole seconds; it refuses fractions instead of rounding them.
func seconds(flag string, d time.Duration) (int64, error) {
	if d < 0 || d%time.Second != 0 {
		return 0, usageError{fmt.Errorf("--%s must be a whole number of seconds, such as 90s or 2h", flag)}
	}
	return int64(d / time.Second), nil
}

func (p *program) signalWorkflow() *cobra.Command {
	var run, input, request string
	var given []string
	c := runFlag(&cobra.Command{
		Use: "signal ID NAME", Short: "Send a signal", Args: exactArgs(workflowIDArg, "signal name"),
		RunE: func(c *cobra.Command, args []string) error {
			raw, err := p.arguments(c, input)
			if err != nil {
				return err
			}
			in := protocol.SignalRequest{SignalName: args[1], Input: raw, RequestID: requestID(request)}
			if in.Headers, err = headers(given); err != nil {
				return err
			}
			return send(p, c, http.MethodPost, runPath(args[0], run)+"/signal/"+url.PathEscape(args[1]), in, p.printReceipt)
		},
	}, &run)
	c.Flags().StringVar(&input, "input", "", inputHelp)
	headerFlag(c, &given)
	c.Flags().StringVar(&request, "request-id", "", "idempotency key: a repeated request with the same ID has no further effect")
	return p.orBatch(c, []string{"signal name"}, func(args []string) (protocol.BatchJobRequest, error) {
		raw, err := p.arguments(c, input)
		return protocol.BatchJobRequest{Action: protocol.BatchSignal, SignalName: args[0], Input: raw}, err
	})
}

func (p *program) printReceipt(r protocol.CommandReceipt) error {
	return p.printf("%s %s, run %s", r.Outcome, r.WorkflowID, r.RunID)
}

func (p *program) queryWorkflow() *cobra.Command {
	var run, input string
	var given []string
	c := runFlag(&cobra.Command{
		Use: "query ID NAME", Short: "Query a run and print the result",
		Args: exactArgs(workflowIDArg, "query name"),
		RunE: func(c *cobra.Command, args []string) error {
			raw, err := p.arguments(c, input)
			if err != nil {
				return err
			}
			in := protocol.QueryRequest{QueryName: args[1], Input: raw}
			if in.Headers, err = headers(given); err != nil {
				return err
			}
			return send(p, c, http.MethodPost, runPath(args[0], run)+"/query/"+
				url.PathEscape(args[1]), in, func(a protocol.QueryResponse) error {
				return p.printJSON(a.Result)
			})
		},
	}, &run)
	c.Flags().StringVar(&input, "input", "", inputHelp)
	headerFlag(c, &given)
	return c
}

func (p *program) updateWorkflow() *cobra.Command {
	var run, input, request, until string
	var given []string
	var most time.Duration
	c := runFlag(&cobra.Command{
		Use: "update ID NAME", Short: "Send an update, wait for its result and print it",
		Args: exactArgs(workflowIDArg, "update name"),
		RunE: func(c *cobra.Command, args []string) error {
			raw, err := p.arguments(c, input)
			if err != nil {
				return err
			}
			wait, err := seconds("wait-timeout", most)
			if err != nil {
				return err
			}
			in := protocol.UpdateRequest{
				UpdateName: args[1], Input: raw, RequestID: requestID(request), WaitFor: until, WaitTimeout: &wait,
			}
			if in.Headers, err = headers(given); err != nil {
				return err
			}
			return send(p, c, http.MethodPost, runPath(args[0], run)+"/update/"+
				url.PathEscape(args[1]), in, func(a protocol.UpdateResponse) error {
				return p.printUpdate(a)
			})
		},
	}, &run)
	c.Flags().StringVar(&input, "input", "", inputHelp)
	headerFlag(c, &given)
	c.Flags().StringVar(&request, "request-id", "", "idempotency key: a repeated request with the same ID returns the first update")
	c.Flags().StringVar(&until, "wait-for", protocol.WaitCompleted, "stage to wait for: accepted or completed")
	c.Flags().DurationVar(&most, "wait-timeout", 30*time.Second, "maximum time to wait, at most 60s")
	return c
}

// printUpdate prints the result of an update, or its state if the command does not wait for the result.
func (p *program) printUpdate(a protocol.UpdateResponse) error {
	switch {
	case a.UpdateStatus == protocol.WaitCompleted:
		return p.printJSON(a.Result)
	case a.WaitTimedOut && a.WaitFor == protocol.WaitCompleted:
		return fmt.Errorf("update %s was accepted but did not complete within %d s", a.UpdateID, a.WaitTimeout)
	}
	return p.printf("%s %s", a.Outcome, a.UpdateID)
}

// cancelWorkflow requests cancellation, or cancels at once.
func (p *program) cancelWorkflow() *cobra.Command {
	var f endFlags
	var now bool
	c := f.add(&cobra.Command{
		Use: "cancel ID", Short: "Request cancellation of a run; its code can clean up",
		Args: oneArg(workflowIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			if now {
				return p.endRun(c, args[0], "cancel", f)
			}
			err := p.endRun(c, args[0], "request-cancellation", f)
			switch protocol.ReasonOf(err) {
			case protocol.ReasonActivityRun: // an activity run has no workflow code
				return p.endRun(c, args[0], "cancel", f)
			case protocol.ReasonCancelNotSupported:
				return fmt.Errorf("%w; to end the run immediately run: sojourn workflow cancel %s --now", err, args[0])
			}
			return err
		},
	})
	c.Flags().BoolVar(&now, "now", false, "close the run immediately, without running its code again")
	return p.orBatch(c, nil, func([]string) (protocol.BatchJobRequest, error) {
		if now {
			return protocol.BatchJobRequest{Action: protocol.BatchCancel, Reason: f.reason}, nil
		}
		return protocol.BatchJobRequest{Action: protocol.BatchRequestCancellation, Reason: f.reason}, nil
	})
}

// endWorkflow returns a command that sends a reason to the route verb of a run.
func (p *program) endWorkflow(verb, short string) *cobra.Command {
	var f endFlags
	c := f.add(&cobra.Command{
		Use: verb + " ID", Short: short, Args: oneArg(workflowIDArg),
		RunE: func(c *cobra.Command, args []string) error { return p.endRun(c, args[0], verb, f) },
	})
	return p.orBatch(c, nil, func([]string) (protocol.BatchJobRequest, error) {
		action := protocol.BatchAction(strings.ReplaceAll(verb, "-", "_"))
		return protocol.BatchJobRequest{Action: action, Reason: f.reason}, nil
	})
}

// endFlags are the flags of commands that end a run or change its state.
type endFlags struct{ run, reason string }

func (f *endFlags) add(c *cobra.Command) *cobra.Command {
	c.Flags().StringVar(&f.run, "run", "", "run ID; the request is refused if it is not the current run")
	c.Flags().StringVar(&f.reason, "reason", "", "reason, shown to other operators")
	return c
}

// endRun sends a reason to a route that ends a run, and prints the receipt.
func (p *program) endRun(c *cobra.Command, id, verb string, f endFlags) error {
	in := protocol.EndRequest{Reason: f.reason, RequestID: requestID("")}
	return send(p, c, http.MethodPost, runPath(id, f.run)+"/"+verb, in, p.printReceipt)
}

// redriveWorkflow returns the command that continues a failed run. The route requires a run ID, by default the current
// run's.
func (p *program) redriveWorkflow() *cobra.Command {
	var run, request string
	c := runFlag(&cobra.Command{
		Use: "redrive ID", Short: "Continue a failed run as a new run: completed activities keep their results",
		Args: oneArg(workflowIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			run, err := p.currentRun(c, args[0], run)
			if err != nil {
				return err
			}
			in := protocol.RedriveRequest{RequestID: requestID(request)}
			return send(p, c, http.MethodPost, runPath(args[0], run)+"/redrive", in, func(v protocol.RedriveReceipt) error {
				return p.printf(
					"redriven %s: run %s continues run %s at command %d", v.WorkflowID, v.RunID, v.ContinuedFrom,
					v.ResumeSequence,
				)
			})
		},
	}, &run)
	c.Flags().StringVar(&request, "request-id", "", "ID of the request: the same ID again returns the first response")
	return p.orBatch(c, nil, func([]string) (protocol.BatchJobRequest, error) {
		return protocol.BatchJobRequest{Action: protocol.BatchRedrive}, nil
	})
}

// deleteWorkflow returns the command that deletes one run. The route requires a run ID, by default the current run's.
func (p *program) deleteWorkflow() *cobra.Command {
	var run, reason string
	c := runFlag(&cobra.Command{
		Use: "delete ID", Short: "Delete one closed run with all its data; this cannot be undone", Args: oneArg(workflowIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			run, err := p.currentRun(c, args[0], run)
			if err != nil {
				return err
			}
			path := runPath(args[0], run)
			if reason != "" {
				path += "?" + url.Values{"reason": {reason}}.Encode()
			}
			return send(p, c, http.MethodDelete, path, nil, func(v protocol.DeletedRun) error {
				return p.printf("deleted %s, run %s: %d events, %d sessions", v.WorkflowID, v.RunID, v.HistoryLength, v.Sessions)
			})
		},
	}, &run)
	c.Flags().StringVar(&reason, "reason", "", "reason, for the audit log")
	return p.orBatch(c, nil, func([]string) (protocol.BatchJobRequest, error) {
		return protocol.BatchJobRequest{Action: protocol.BatchDelete, Reason: reason}, nil
	})
}

func (p *program) resultOfWorkflow() *cobra.Command {
	var run string
	return runFlag(&cobra.Command{
		Use: "result ID", Short: "Wait until a workflow closes and print its result; exits with an error if it failed",
		Args: oneArg(workflowIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			run, err := p.currentRun(c, args[0], run)
			if err != nil {
				return err
			}
			return p.result(c, args[0], run)
		},
	}, &run)
}

// result waits for the end of a run and of the runs that it continues as, and prints the last result.
func (p *program) result(c *cobra.Command, id, run string) error {
	app, err := p.client(c)
	if err != nil {
		return err
	}
	target := protocol.Target{WorkflowID: id, RunID: run}
	v, err := apiclient.Wait[protocol.RunView](c.Context(), app, target)
	return p.printResult(c, v, target, err)
}

// printResult prints the result of a closed run, or the error of the wait for the end of the run.
func (p *program) printResult(c *cobra.Command, v protocol.RunView, t protocol.Target, err error) error {
	id := t.WorkflowID
	switch {
	case err != nil && id == "":
		return withHint(err)
	case errors.Is(err, process.ErrStopped) && t.RunID == "":
		return fmt.Errorf("%w; workflow %s continues if the app has started it", err, id)
	case errors.Is(err, process.ErrStopped):
		return fmt.Errorf("%w; run %s of %s continues", err, t.RunID, id)
	case err != nil && protocol.ReasonOf(err) == "":
		return fmt.Errorf("%w; to wait for the result run: sojourn workflow result %s", withHint(err), id)
	case err != nil:
		return withHint(err)
	case asJSON(c):
		err = p.printJSON(v)
	case v.Status == "completed":
		return p.printJSON(v.Output)
	}
	if err != nil || v.Status == "completed" {
		return err
	}
	why := v.Reason
	if f := v.Failed(); f.Message != "" {
		why = f.Text()
	}
	err = errors.New(apiclient.NotCompleted(v.Target(), v.Status, why))
	if v.Status == "failed" {
		err = fmt.Errorf("%w; for details run: sojourn workflow debug %s", err, id)
	}
	return err
}
