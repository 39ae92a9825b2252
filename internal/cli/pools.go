package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (p *program) poolsCommand() *cobra.Command {
	return p.group("pools", "Show and set pools of sessions that workflows borrow", p.listPools,
		&cobra.Command{
			Use: "describe POOL", Short: "Show a pool: settings, members, waiting workflows", Args: onePool,
			RunE: func(c *cobra.Command, args []string) error {
				return send(p, c, http.MethodGet, poolPath(args[0]), nil, p.showPool)
			},
		},
		p.setPoolCommand(),
		&cobra.Command{
			Use: "delete POOL", Short: "Delete a pool: free members end, loans continue", Args: onePool,
			RunE: func(c *cobra.Command, args []string) error {
				return send(p, c, http.MethodDelete, poolPath(args[0]), nil, func(out protocol.PoolDeleted) error {
					return p.printf("pool %s deleted", out.Name)
				})
			},
		},
	)
}

var onePool = oneArg("pool name")

func poolPath(name string) string { return "/api/sojourn/pools/" + url.PathEscape(name) }

func (p *program) listPools(c *cobra.Command, _ []string) error {
	return send(p, c, http.MethodGet, "/api/sojourn/pools", nil, func(out protocol.PoolList) error {
		t := table.NewWriter()
		t.AppendHeader(table.Row{"pool", "definition", "queue", "size", "warm", "free", "lent", "set up", "waiting"})
		for _, v := range out.Pools {
			t.AppendRow(table.Row{
				v.Name, v.Definition, v.Queue, v.Size, v.Warm, v.Free, v.Lent, v.SettingUp, v.Waiting,
			})
		}
		return p.render(t)
	})
}

func (p *program) showPool(v protocol.PoolView) error {
	uses := "no limit"
	if v.MaxUses > 0 {
		uses = strconv.Itoa(v.MaxUses)
	}
	settings := table.NewWriter()
	settings.SetTitle(v.Name)
	settings.AppendHeader(table.Row{"definition", "queue", "size", "warm", "max uses", "free", "lent", "waiting"})
	settings.AppendRow(table.Row{v.Definition, v.Queue, v.Size, v.Warm, uses, v.Free, v.Lent, v.Waiting})
	members := table.NewWriter()
	members.AppendHeader(table.Row{"session", "state", "worker", "uses", "workflow", "loan expires"})
	for _, m := range v.Members {
		members.AppendRow(table.Row{
			m.SessionID, m.State, m.WorkerID, m.Uses, m.WorkflowID, stamp(m.LoanExpiresAt),
		})
	}
	waiters := table.NewWriter()
	waiters.AppendHeader(table.Row{"position", "workflow", "priority", "fairness key", "since"})
	for _, w := range v.Waiters {
		waiters.AppendRow(table.Row{
			w.Position, w.WorkflowID, w.Priority, cmp.Or(w.FairnessKey, "(none)"), stamp(w.Since),
		})
	}
	return p.printf("%s\n%s\n%s", settings.Render(), members.Render(), waiters.Render())
}

func (p *program) setPoolCommand() *cobra.Command {
	var in protocol.PoolRequest
	warm := 0
	c := &cobra.Command{
		Use: "set POOL", Short: "Create a pool or replace its settings", Args: onePool,
		Long: `Create a pool or replace its settings. Workers of the task queue set the members up by the session definition, which
they must have registered with the hand-over prepare. Members that do not fit new settings are replaced when no workflow
has borrowed them.`,
		RunE: func(c *cobra.Command, args []string) error {
			for _, name := range []string{"definition", "queue", "size"} {
				if !c.Flags().Changed(name) {
					return usageError{fmt.Errorf("%s requires --definition, --queue and --size", c.CommandPath())}
				}
			}
			if c.Flags().Changed("warm") {
				in.Warm = &warm
			}
			return send(p, c, http.MethodPut, poolPath(args[0]), in, p.showPool)
		},
	}
	c.Flags().StringVar(&in.Definition, "definition", "", "session definition of the members (required)")
	c.Flags().StringVar(&in.Queue, "queue", "", "task queue of the workers that hold the members (required)")
	c.Flags().IntVar(&in.Size, "size", 0, "maximum number of members, 1 to 1000 (required)")
	c.Flags().IntVar(&warm, "warm", 0, "number of free members that are set up ahead (default: the size)")
	c.Flags().IntVar(&in.MaxUses, "max-uses", 0, "number of loans after which a member is replaced; 0: no limit")
	return c
}
