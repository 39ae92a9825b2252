package cli

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

const fleetPath = "/api/sojourn/fleet/"

// fleetCommand returns a command for one worker, or for the workers of a group, a build or a release.
func (p *program) fleetCommand(verb, short, long string) *cobra.Command {
	var in protocol.FleetRequest
	var deadline time.Duration
	wait := false
	c := &cobra.Command{
		Use: verb + " ID", Short: short,
		Long: short + ".\n\n" + long + "\n\nName one worker by its ID, or several with --group, --build or --release.",
		Args: func(c *cobra.Command, args []string) error {
			named := len(args)
			for _, s := range []string{in.Group, in.BuildID, in.Release} {
				if s != "" {
					named++
				}
			}
			if named != 1 {
				return usageError{fmt.Errorf(
					"%s requires either a %s or one of --group, --build and --release", c.CommandPath(), workerIDArg,
				)}
			}
			return nonEmptyArgs(c, args, workerIDArg)
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				in.WorkerID = args[0]
			}
			if deadline < 0 || deadline%time.Second != 0 {
				return usageError{errors.New("--deadline must be a whole number of seconds, such as 90s or 10m")}
			}
			in.Deadline = int64(deadline / time.Second)
			if wait {
				return p.drainAndWait(c, verb, in)
			}
			return send(p, c, http.MethodPost, fleetPath+verb, in, func(s protocol.FleetDrainState) error {
				if verb == protocol.FleetResume {
					return p.printf("resumed dispatch to %s", s.Text())
				}
				return p.printf("%s", drainText(s))
			})
		},
	}
	f := c.Flags()
	f.StringVar(&in.Group, "group", "", "workers whose token names this group")
	f.StringVar(&in.BuildID, "build", "", "workers with this build ID, on all their queues")
	f.StringVar(&in.Release, "release", "", "workers with this release")
	if verb != protocol.FleetResume {
		f.StringVar(&in.Reason, "reason", "", "reason, shown to other operators")
		f.BoolVar(&wait, "wait", false, "follow the drain and each session until no task is left; with --json one object per line")
	}
	if verb == protocol.FleetDrain {
		f.DurationVar(&deadline, "deadline", 0, "shut down workers that still have tasks or sessions after this time, such as 10m; unset: never")
	}
	return c
}

// drainAndWait drains workers and prints the progress of the drain and of each of their sessions until it has ended.
func (p *program) drainAndWait(c *cobra.Command, verb string, in protocol.FleetRequest) error {
	d := drainProgress{p: p, c: c, target: in.FleetTarget, sessions: map[string]*drainedSession{}}
	if err := d.owned(); err != nil {
		return err
	}
	var s protocol.FleetDrainState
	if err := p.call(c, http.MethodPost, fleetPath+verb, in, &s); err != nil {
		return err
	}
	return d.follow(s)
}

// drainText describes a drain in one line.
func drainText(s protocol.FleetDrainState) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %d of %d workers drained", s.Text(), s.State, s.Drained, s.Workers)
	if s.Leases+s.Sessions > 0 {
		fmt.Fprintf(&b, "; %d tasks running, %d sessions held", s.Leases, s.Sessions)
	}
	if !s.DeadlineAt.IsZero() {
		fmt.Fprintf(&b, "; deadline %s", stamp(s.DeadlineAt))
	}
	return b.String()
}

func (p *program) drainsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "drains", Short: "List drained workers and the tasks they still run", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return list(p, c, listing{path: fleetPath + "drains", member: "drains"},
				table.Row{"drain", "state", "workers", "done", "leases", "sessions", "since", "until", "by", "reason"},
				func(s protocol.FleetDrainState) table.Row {
					state := s.State
					if s.Evict {
						state += ", evicted"
					}
					return table.Row{
						s.Text(), state, s.Workers, s.Drained, s.Leases, s.Sessions, stamp(s.Since), stamp(s.DeadlineAt), s.By,
						s.Reason,
					}
				})
		},
	}
}

// fleetSettingsCommand shows the settings of all workers, and changes the settings whose flags are set.
func (p *program) fleetSettingsCommand() *cobra.Command {
	var in protocol.FleetSettings
	wait := false
	const path = fleetPath + "settings"
	c := &cobra.Command{
		Use: "settings", Short: "Show or change the settings of all workers of the namespace while they run", Args: noArgs,
		Long: "Show or change the settings of all workers of the namespace while they run.\n\n" +
			"A flag changes its setting; \"\" or 0 restores each worker's own value. Without flags the current settings are shown.",
		RunE: func(c *cobra.Command, _ []string) error {
			var now protocol.FleetSettingsState
			if err := p.call(c, http.MethodGet, path, nil, &now); err != nil {
				return err
			}
			next := protocol.FleetSettingsRequest{FleetSettings: now.FleetSettings, Revision: &now.Revision}
			for name, set := range map[string]func(){
				"set-log-level":   func() { next.LogLevel = in.LogLevel },
				"set-concurrency": func() { next.Concurrency = in.Concurrency },
				"set-isolation":   func() { next.IsolationMin = in.IsolationMin },
				"set-fresh":       func() { next.Fresh = in.Fresh },
				"set-rebalance":   func() { next.Rebalance = in.Rebalance },
			} {
				if c.Flags().Changed(name) {
					set()
				}
			}
			if next.FleetSettings != now.FleetSettings {
				if err := p.call(c, http.MethodPut, path, next, &now); err != nil {
					return err
				}
			}
			for wait && now.Applied < now.Workers {
				select {
				case <-c.Context().Done():
					return c.Context().Err()
				case <-time.After(time.Second):
				}
				if err := p.call(c, http.MethodGet, path, nil, &now); err != nil {
					return err
				}
			}
			return send(p, c, http.MethodGet, path, nil, p.showFleetSettings)
		},
	}
	c.Flags().StringVar(&in.LogLevel, "set-log-level", "", "log level: trace, debug, info, warn or error")
	c.Flags().IntVar(&in.Concurrency, "set-concurrency", 0, "maximum number of activities per worker")
	c.Flags().StringVar(&in.IsolationMin, "set-isolation", "",
		"minimum isolation: none, process or confined; workers with weaker executors get no tasks that need executors")
	c.Flags().BoolVar(&in.Fresh, "set-fresh", false,
		"start a new executor for each handler call outside sessions; --set-fresh=false reuses executors")
	c.Flags().StringVar(&in.Rebalance, "set-rebalance", "",
		"on (the default) or off: move idle sessions with a hand-over to workers that registered less than 10 minutes ago "+
			"and hold fewer sessions")
	c.Flags().BoolVar(&wait, "wait", false, "wait until all workers that support settings have applied them")
	return c
}

func (p *program) showFleetSettings(s protocol.FleetSettingsState) error {
	own := "set by each worker"
	concurrency := own
	if s.Concurrency > 0 {
		concurrency = strconv.Itoa(s.Concurrency)
	}
	reuse := "reused between calls"
	if s.Fresh {
		reuse = "a new one per call"
	}
	unaware := ""
	if s.Unaware > 0 {
		unaware = fmt.Sprintf("%d workers", s.Unaware)
	}
	return p.facts(
		fact{"revision", strconv.FormatInt(s.Revision, 10)},
		fact{"set", stamp(s.UpdatedAt)},
		fact{"by", s.By},
		fact{"log level", cmp.Or(s.LogLevel, own)},
		fact{"concurrency", concurrency},
		fact{"isolation", cmp.Or(s.IsolationMin, own)},
		fact{"executors", reuse},
		fact{"rebalance", cmp.Or(s.Rebalance, protocol.RebalanceOn)},
		fact{"applied by", fmt.Sprintf("%d of %d workers", s.Applied, s.Workers)},
		fact{"not yet applied by", strings.Join(s.Pending, " ")},
		fact{"not supported by", unaware},
	)
}
