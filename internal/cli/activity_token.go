package cli

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

const activityTokenArg = "activity token"

func (p *program) completeActivity() *cobra.Command {
	var result string
	c := &cobra.Command{
		Use: "complete TOKEN", Short: "Report the result of a pending activity", Args: oneArg(activityTokenArg),
		Long: "Report the result of a pending activity, whose code returned without an outcome.\n\n" +
			"TOKEN is the token that the code received; workflow describe prints it as part of the wait reason.",
		Example: "  sojourn activity complete 01M7Z3C6QEMJX94H9XJ62VYFPB-4-1 --result '{\"charged\": 100}'",
		RunE: func(c *cobra.Command, args []string) (err error) {
			var in protocol.ExternalOutcome
			if in.Result, err = p.readJSON(c, "--result", result); err != nil {
				return err
			}
			return p.resolveActivity(c, args[0], "complete", in)
		},
	}
	c.Flags().StringVar(
		&result, "result", "", "result as a JSON value; @FILE reads a file, - standard input; default: null",
	)
	return c
}

func (p *program) failActivity() *cobra.Command {
	f := &protocol.Failure{}
	var details string
	c := &cobra.Command{
		Use: "fail TOKEN", Short: "Fail the attempt of a pending activity; its retry policy decides what follows",
		Args:    oneArg(activityTokenArg),
		Example: "  sojourn activity fail 01M7Z3C6QEMJX94H9XJ62VYFPB-4-1 --message 'the bank does not answer'",
		RunE: func(c *cobra.Command, args []string) (err error) {
			if f.Message == "" {
				return usageError{fmt.Errorf("--message must not be empty")}
			}
			if f.Details, err = p.readJSON(c, "--details", details); err != nil {
				return err
			}
			return p.resolveActivity(c, args[0], "fail", protocol.ExternalOutcome{Failure: f})
		},
	}
	c.Flags().StringVar(&f.Message, "message", "", "message of the failure; required")
	c.Flags().StringVar(&f.Type, "type", "", "type of the failure")
	c.Flags().BoolVar(
		&f.NonRetryable, "non-retryable", false, "fail the activity even if its retry policy allows further attempts",
	)
	c.Flags().BoolVar(
		&f.Cancelled, "cancelled", false, "report that the attempt stopped because its workflow asked it to",
	)
	c.Flags().StringVar(
		&details, "details", "", "details of the failure as a JSON value; @FILE reads a file, - standard input",
	)
	return c
}

func (p *program) resolveActivity(c *cobra.Command, token, verb string, in protocol.ExternalOutcome) error {
	return send(p, c, http.MethodPost, activityTokenPath(token, verb), in, func(v protocol.ActivityReceipt) error {
		next := ""
		if v.Retry {
			next = "; another attempt follows"
		}
		return p.printf(
			"%s attempt %s of activity %s of workflow %s%s", v.Outcome, v.Token, v.ActivityType, v.WorkflowID, next,
		)
	})
}

func (p *program) heartbeatActivity() *cobra.Command {
	var in protocol.HeartbeatMembers
	var details string
	c := &cobra.Command{
		Use: "heartbeat TOKEN", Short: "Send a heartbeat of a pending activity", Args: oneArg(activityTokenArg),
		Long: "Send a heartbeat of a pending activity: restart its heartbeat timeout and store details for the next\n" +
			"attempt. If the workflow has asked the activity to stop, the output says so.",
		Example: "  sojourn activity heartbeat 01M7Z3C6QEMJX94H9XJ62VYFPB-4-1 --details '{\"page\": 50}'",
		RunE: func(c *cobra.Command, args []string) (err error) {
			if in.Details, err = p.readJSON(c, "--details", details); err != nil {
				return err
			}
			path := activityTokenPath(args[0], "heartbeat")
			return send(p, c, http.MethodPost, path, in, func(v protocol.ActivityHeartbeatReceipt) error {
				stop := ""
				if v.CancelRequested {
					stop = "; the workflow asks the activity to stop"
				}
				return p.printf("heartbeat of attempt %s of activity %s recorded%s", v.Token, v.ActivityType, stop)
			})
		},
	}
	c.Flags().StringVar(&details, "details", "", "details as a JSON value; @FILE reads a file, - standard input")
	return c
}

func activityTokenPath(token, verb string) string {
	return "/api/sojourn/activities/" + url.PathEscape(token) + "/" + verb
}
