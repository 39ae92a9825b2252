// Package cli is the command line: it starts an app, a worker or both, or calls an app.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/apiclient"
	"github.com/sojourn-run/sojourn/internal/cli/bench"
	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/internal/process"
	"github.com/sojourn-run/sojourn/internal/suggest"
	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/protocol"
	"github.com/sojourn-run/sojourn/worker"
)

// usageError is an error of the caller: an invalid setting or argument.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// usageErr returns a usageError that refers to the help of the command. For an unknown flag it suggests the
// nearest one.
func usageErr(c *cobra.Command, err error) error {
	return usageError{fmt.Errorf("%w; see %s --help", suggest.Flag(c.Flags(), err), c.CommandPath())}
}

// program is one run of the command line.
type program struct {
	registry     *worker.Registry
	environ      []string
	out, err     io.Writer
	sharedClient *apiclient.Client // client of the first call, which later calls reuse

	warnings sync.Mutex      // guards warned
	warned   map[string]bool // texts of the warnings printed
}

// Main runs the command line of this process and returns its exit code. A process that was started as an executor or
// its supervisor becomes that and does not return.
func Main(register func(*worker.Registry)) int {
	registry := worker.NewRegistry()
	register(registry)
	bench.Executor(sandbox.Native)
	worker.RunExecutor(registry)
	process.Tune()
	ctx, stop := process.Interrupts()
	defer stop()
	p := &program{registry: registry, environ: os.Environ(), out: os.Stdout, err: os.Stderr, warned: map[string]bool{}}
	return p.run(ctx, os.Args[1:])
}

func (p *program) run(ctx context.Context, args []string) int {
	root := p.root()
	root.SetArgs(args)
	root.SetOut(p.out)
	root.SetErr(p.err)
	err := root.ExecuteContext(ctx)
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(p.err, "sojourn:", err)
		return process.ExitUsage
	}
	fmt.Fprintln(p.err, "sojourn:", errorText(err))
	return process.ExitFailed
}

// errorText returns the message of an error of the app before its reason code, and the text of any other error.
func errorText(err error) string {
	refused, ok := err.(*protocol.Error) //nolint:errorlint // a wrapped one has a text of its own
	if !ok || refused.Message == "" {
		return err.Error()
	}
	return fmt.Sprintf("%s (%s)", refused.Message, refused.Reason)
}

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sojourn",
		Short: "Durable workflows whose steps can stay with a worker",
		Long: "Durable workflows whose steps can stay with a worker.\n\n" +
			"Without a subcommand, SOJOURN_CONTAINER_TYPE sets the role of the process: APP, WORKER or WORKER_AND_APP.",
		SilenceUsage: true, SilenceErrors: true, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.settings(c)
			if err != nil {
				return err
			}
			return p.serve(c.Context(), s)
		},
	}
	root.SetFlagErrorFunc(usageErr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetHelpCommand(helpCommand(root))
	config.Register(root.Flags(), config.Any)
	root.AddCommand(
		p.roleCommand("app", config.App, "Run a control plane: API, worker protocol, socket and dashboard"),
		p.roleCommand("worker", config.Worker, "Run a worker that polls an app for tasks"),
		p.workflowCommand(), p.activityCommand(), p.awakeableCommand(), p.schedulesCommand(),
		p.queuesCommand(), p.poolsCommand(), p.workersCommand(),
		p.sessionsCommand(), p.namespacesCommand(),
		p.attributesCommand(), p.tokenCommand(), p.conformanceCommand(),
		p.devCommand(), p.migrateCommand(), p.configCommand(), p.versionCommand(), p.doctorCommand(), p.benchCommand(),
		p.typesCommand(), clientCommand(p.replayCommand()), p.batchCommand(), p.findCommand(),
	)
	return root
}

// helpCommand returns help [COMMAND], which refuses unknown commands.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{Use: "help [COMMAND]", Short: "Help about any command", RunE: func(
		c *cobra.Command, args []string,
	) error {
		about, rest, err := root.Find(args)
		if err == nil && len(rest) > 0 {
			err = noArgs(about, rest)
		}
		if err != nil {
			return usageError{err}
		}
		about.InitDefaultHelpFlag()
		return about.Help()
	}}
}

func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		c.SuggestionsMinimumDistance = 2
		near := suggest.Ending(strings.Join(c.SuggestionsFor(args[0]), " or "))
		return usageErr(c, fmt.Errorf("unknown command or argument %q for %q%s", args[0], c.CommandPath(), near))
	}
	return nil
}

// roleCommand runs a process of one role.
func (p *program) roleCommand(name string, role config.Role, short string) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		s, err := p.settings(c)
		if err != nil {
			return err
		}
		return p.serve(c.Context(), s)
	}}
	config.Register(c.Flags(), role)
	return c
}
