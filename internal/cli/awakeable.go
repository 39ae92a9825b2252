package cli

import (
	"fmt"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

const awakeableIDArg = "awakeable ID"

func (p *program) awakeableCommand() *cobra.Command {
	return p.group("awakeable", "Complete and fail awakeables of workflows", nil, p.completeAwakeable(), p.failAwakeable())
}

func (p *program) completeAwakeable() *cobra.Command {
	var result string
	c := &cobra.Command{
		Use: "complete ID", Short: "Deliver the result of an awakeable to its workflow", Args: oneArg(awakeableIDArg),
		Example: "  sojourn awakeable complete 01M7Z3C6QEMJX94H9XJ62VYFPB-4 --result '{\"approved\": true}'",
		RunE: func(c *cobra.Command, args []string) (err error) {
			var in protocol.AwakeableRequest
			if in.Result, err = p.readJSON(c, "--result", result); err != nil {
				return err
			}
			return p.resolveAwakeable(c, args[0], "complete", in)
		},
	}
	c.Flags().StringVar(
		&result, "result", "", "result as a JSON value; @FILE reads a file, - standard input; default: null",
	)
	return c
}

func (p *program) failAwakeable() *cobra.Command {
	f := &protocol.Failure{}
	var details string
	c := &cobra.Command{
		Use: "fail ID", Short: "Fail an awakeable: its workflow receives an error", Args: oneArg(awakeableIDArg),
		Example: "  sojourn awakeable fail 01M7Z3C6QEMJX94H9XJ62VYFPB-4 --message 'the budget is used up' --type Rejected",
		RunE: func(c *cobra.Command, args []string) (err error) {
			if f.Message == "" {
				return usageError{fmt.Errorf("--message must not be empty")}
			}
			if f.Details, err = p.readJSON(c, "--details", details); err != nil {
				return err
			}
			return p.resolveAwakeable(c, args[0], "fail", protocol.AwakeableRequest{
				ExternalOutcome: protocol.ExternalOutcome{Failure: f},
			})
		},
	}
	c.Flags().StringVar(&f.Message, "message", "", "message of the error; required")
	c.Flags().StringVar(&f.Type, "type", "", "type of the error")
	c.Flags().StringVar(&details, "details", "", "details of the error as a JSON value; @FILE reads a file, - standard input")
	return c
}

func (p *program) resolveAwakeable(c *cobra.Command, id, verb string, in protocol.AwakeableRequest) error {
	path := "/api/sojourn/awakeables/" + url.PathEscape(id) + "/" + verb
	return send(p, c, http.MethodPost, path, in, func(v protocol.AwakeableReceipt) error {
		return p.printf("%s awakeable %s of workflow %s", v.Outcome, v.AwakeableID, v.WorkflowID)
	})
}
