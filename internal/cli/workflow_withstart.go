package cli

import (
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// withStart holds the flags that the commands signal-with-start and update-with-start have in common.
type withStart struct {
	shared                    starting
	times                     startTimes
	name, input, messageInput string
}

// command adds the flags to a command. message is signal or update.
func (w *withStart) command(p *program, c *cobra.Command, message string) *cobra.Command {
	c.Args, c.ValidArgsFunction = oneArg("workflow type"), first(p.workflowTypes)
	w.shared.flags(c)
	w.times.flags(c)
	f := c.Flags()
	f.Lookup("conflict-policy").Usage = "what to do if a run with this ID is open: use-existing or terminate-existing; default: use-existing"
	f.StringVar(&w.input, "input", "", inputHelp)
	f.StringVar(&w.name, message, "", "name of the "+message+"; required")
	f.StringVar(&w.messageInput, message+"-input", "", "arguments of the "+message+", in the form of --input")
	return c
}

// read returns the start, the arguments of the message, and the path of the route below the workflow ID.
func (w *withStart) read(
	p *program, c *cobra.Command, workflow, message string,
) (in protocol.StartRequest, args []byte, path string, err error) {
	if w.name == "" {
		return in, nil, "", usageErr(c, errors.New("--"+message+" is required"))
	}
	if in, err = w.shared.read(p, c); err != nil {
		return in, nil, "", err
	}
	if err = w.times.read(&in); err != nil {
		return in, nil, "", err
	}
	in.WorkflowType = workflow
	if in.Input, err = p.arguments(c, w.input); err != nil {
		return in, nil, "", err
	}
	args, err = p.arguments(c, w.messageInput)
	return in, args, "/api/sojourn/workflows/" + url.PathEscape(in.WorkflowID) + "/" + message + "-with-start", err
}

func (p *program) signalWithStart() *cobra.Command {
	var w withStart
	return w.command(p, &cobra.Command{
		Use: "signal-with-start TYPE", Short: "Send a signal to the open run of a workflow ID, or start a run with it",
		Example: "  sojourn workflow signal-with-start cart --id cart-ada --signal add --signal-input '[\"tea\"]' " +
			"--reuse-policy allow",
		RunE: func(c *cobra.Command, args []string) error {
			in, input, path, err := w.read(p, c, args[0], "signal")
			if err != nil {
				return err
			}
			request := protocol.SignalWithStartRequest{StartRequest: in, SignalName: w.name, SignalInput: input}
			return send(p, c, http.MethodPost, path, request, func(v protocol.SignalWithStartResponse) error {
				return p.printf("%s, %s %s, run %s", v.StartOutcome, v.Outcome, v.WorkflowID, v.RunID)
			})
		},
	}, "signal")
}

func (p *program) updateWithStart() *cobra.Command {
	var w withStart
	var until string
	var most time.Duration
	c := w.command(p, &cobra.Command{
		Use:   "update-with-start TYPE",
		Short: "Send an update to the open run of a workflow ID, or start a run with it, and print the result",
		Example: "  sojourn workflow update-with-start cart --id cart-ada --update add --update-input '[\"tea\"]' " +
			"--reuse-policy allow",
		RunE: func(c *cobra.Command, args []string) error {
			in, input, path, err := w.read(p, c, args[0], "update")
			if err != nil {
				return err
			}
			wait, err := seconds("wait-timeout", most)
			if err != nil {
				return err
			}
			request := protocol.UpdateWithStartRequest{
				StartRequest: in, UpdateName: w.name, UpdateInput: input, WaitFor: until, WaitTimeout: &wait,
			}
			return send(p, c, http.MethodPost, path, request, func(v protocol.UpdateWithStartResponse) error {
				return p.printUpdate(v.UpdateResponse)
			})
		},
	}, "update")
	c.Flags().StringVar(&until, "wait-for", protocol.WaitCompleted, "stage to wait for: accepted or completed")
	c.Flags().DurationVar(&most, "wait-timeout", 30*time.Second, "maximum time to wait, at most 60s")
	return c
}
