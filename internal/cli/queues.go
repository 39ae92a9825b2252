package cli

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (p *program) queuesCommand() *cobra.Command {
	return p.group("queues", "Show task queues, roll out builds, set limits", p.listQueues,
		&cobra.Command{
			Use: "describe QUEUE", Short: "Show a queue: tasks, limits, builds, workers", Args: oneQueue,
			RunE: p.describeQueue,
		},
		p.limitCommand(), p.routeCommand(),
		p.buildCommand(protocol.BuildDrain, "Drain the workers of a build: stop dispatching to them; running tasks finish"),
		p.buildCommand(protocol.BuildResume, "End the drain of a build"),
		p.buildCommand(protocol.BuildPromote, "Pin new runs to a build"),
	)
}

var oneQueue = oneArg("queue name")

func queuePath(name string) string { return "/api/task-queues/" + url.PathEscape(name) }

// unversioned is the displayed build ID of workers without one.
const unversioned = "(none)"

func buildName(id *string) string {
	if id == nil {
		return unversioned
	}
	return *id
}

// newRuns returns the build that new runs are pinned to.
func newRuns(id *string) string {
	if id == nil {
		return "any build"
	}
	return *id
}

func (p *program) listQueues(c *cobra.Command, _ []string) error {
	return list(p, c, listing{path: "/api/task-queues", member: "task_queues", page: 1000},
		table.Row{"queue", "ready", "oldest", "leased", "workers", "workflow tasks", "activities", "new runs", "group"},
		func(q protocol.QueueState) table.Row {
			return table.Row{
				q.Name, q.Stats.Backlog, stringOf(q.Stats.BacklogAge), q.Stats.Workflow.Leased + q.Stats.Activity.Leased,
				q.Stats.Pollers.Active,
				q.Admission.Workflow.Status, q.Admission.Activity.Status, newRuns(q.Promoted), q.Group,
			}
		})
}

func (p *program) describeQueue(c *cobra.Command, args []string) error {
	return send(p, c, http.MethodGet, queuePath(args[0]), nil, p.showQueue)
}

func (p *program) showQueue(q protocol.QueueState) error {
	tasks := table.NewWriter()
	tasks.SetTitle(q.Name)
	tasks.AppendHeader(table.Row{"tasks", "ready", "leased", "delayed", "lease limit", "per minute", "admission"})
	for _, l := range []struct {
		name  string
		tally protocol.TaskTally
		a     protocol.TaskAdmission
	}{{"workflow", q.Stats.Workflow, q.Admission.Workflow}, {"activity", q.Stats.Activity, q.Admission.Activity}} {
		tasks.AppendRow(table.Row{
			l.name, l.tally.Ready, l.tally.Leased, l.tally.Delayed, usageOfLimit(l.a.LeaseCount, l.a.MaxLeases),
			usageOfLimit(l.a.DispatchCount, l.a.MaxDispatches),
			cmp.Or(waitReason(l.a.Wait, l.a.WaitReason), l.a.Status),
		})
	}
	builds := table.NewWriter()
	builds.AppendHeader(table.Row{"build", "status", "workers", "draining", "stale", "runtimes", "new runs"})
	for _, b := range q.BuildIDs {
		selected := ""
		if b.Selected {
			selected = "yes"
		}
		builds.AppendRow(table.Row{
			buildName(b.BuildID), b.Rollout, b.ActiveWorkers, b.DrainingWorkers, b.StaleWorkers, strings.Join(b.Runtimes, " "),
			selected,
		})
	}
	workers := table.NewWriter()
	workers.AppendHeader(table.Row{"worker", "status", "build", "runtime"})
	for _, w := range q.Pollers {
		workers.AppendRow(table.Row{
			w.WorkerID, w.Status, buildName(w.BuildID), strings.TrimSpace(w.Runtime + " " + w.SDKVersion),
		})
	}
	return p.printf("%s\n%s\n%s", tasks.Render(), builds.Render(), workers.Render())
}

// usageOfLimit describes the used part of a limit.
func usageOfLimit(used int, most *int) string {
	if most == nil {
		return "no limit"
	}
	return fmt.Sprintf("%d of %d", used, *most)
}

func (p *program) buildCommand(verb, short string) *cobra.Command {
	none := false
	c := &cobra.Command{
		Use: verb + " QUEUE [BUILD]", Short: short,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 || none == (len(args) == 2) {
				return usageError{
					fmt.Errorf(
						"%s requires a queue name and either a build ID or --unversioned", c.CommandPath(),
					),
				}
			}
			return nonEmptyArgs(c, args, "queue name", "build ID")
		},
		RunE: func(c *cobra.Command, args []string) error {
			body := map[string]*string{"build_id": nil}
			if !none {
				body["build_id"] = &args[1]
			}
			return send(p, c, http.MethodPost, queuePath(args[0])+"/build-ids/"+verb, body, func(out protocol.BuildState) error {
				if out.Warning != "" {
					fmt.Fprintln(p.err, "warning:", out.Warning)
				}
				state := "is active"
				if out.Intent == protocol.IntentDraining {
					state = "is draining"
				}
				if out.Selected {
					state += ", new runs are pinned to it"
					if out.BuildID == nil {
						state = "is active, new runs are pinned to no build"
					}
				}
				return p.printf("build %s of queue %s %s", buildName(out.BuildID), out.Queue, state)
			})
		},
	}
	c.Flags().BoolVar(&none, "unversioned", false, "workers that registered without a build ID")
	return c
}

func (p *program) limitCommand() *cobra.Command {
	var workflow, activity struct{ leases, minute string }
	c := &cobra.Command{
		Use: "limit [QUEUE]", Short: "Set the limits of a queue, or without a name of all queues of the namespace together",
		Long: "Set the limits of a queue, or without a name of all queues of the namespace together.\n\n" +
			"A flag changes its limit; \"none\" removes the limit. Without flags the current limits are shown.",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("%s accepts at most one queue name (arguments given: %d)", c.CommandPath(), len(args))}
			}
			return nonEmptyArgs(c, args, "queue name")
		},
		RunE: func(c *cobra.Command, args []string) error {
			s, err := p.settings(c)
			if err != nil {
				return err
			}
			path := "/api/namespaces/" + url.PathEscape(s.Namespace) + "/limits"
			if len(args) == 1 {
				path = queuePath(args[0]) + "/limits"
			}
			var now protocol.LimitState
			if err := p.call(c, http.MethodGet, path, nil, &now); err != nil {
				return err
			}
			in, changed := protocol.LimitRequest{}, false
			for _, f := range []struct {
				name string
				text string
				own  *protocol.Budget
				set  **protocol.Budget
				to   func(*protocol.Budget, *int)
			}{
				{"workflow-leases", workflow.leases, &now.Workflow, &in.Workflow, func(b *protocol.Budget, n *int) {
					b.MaxLeases = n
				}},
				{"workflow-per-minute", workflow.minute, &now.Workflow, &in.Workflow, func(b *protocol.Budget, n *int) {
					b.MaxPerMinute = n
				}},
				{"activity-leases", activity.leases, &now.Activity, &in.Activity, func(b *protocol.Budget, n *int) {
					b.MaxLeases = n
				}},
				{"activity-per-minute", activity.minute, &now.Activity, &in.Activity, func(b *protocol.Budget, n *int) {
					b.MaxPerMinute = n
				}},
			} {
				if !c.Flags().Changed(f.name) {
					continue
				}
				n, err := budgetOf(f.name, f.text)
				if err != nil {
					return err
				}
				f.to(f.own, n)
				*f.set, changed = f.own, true
			}
			if changed {
				if err := p.call(c, http.MethodPut, path, in, &now); err != nil {
					return err
				}
			}
			if asJSON(c) {
				return p.printJSON(now)
			}
			t := table.NewWriter()
			t.AppendHeader(table.Row{"tasks", "lease limit", "dispatches per minute"})
			t.AppendRow(table.Row{"workflow", limitText(now.Workflow.MaxLeases), limitText(now.Workflow.MaxPerMinute)})
			t.AppendRow(table.Row{"activity", limitText(now.Activity.MaxLeases), limitText(now.Activity.MaxPerMinute)})
			return p.render(t)
		},
	}
	c.Flags().StringVar(&workflow.leases, "workflow-leases", "", "maximum number of leased workflow tasks, or none")
	c.Flags().StringVar(&workflow.minute, "workflow-per-minute", "", "maximum number of workflow tasks dispatched per minute, or none")
	c.Flags().StringVar(&activity.leases, "activity-leases", "", "maximum number of leased activities, or none")
	c.Flags().StringVar(&activity.minute, "activity-per-minute", "", "maximum number of activities dispatched per minute, or none")
	return c
}

func budgetOf(flag, text string) (*int, error) {
	if text == "none" {
		return nil, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return nil, usageError{fmt.Errorf("--%s must be a number above 0, or none", flag)}
	}
	return &n, nil
}

func limitText(n *int) string {
	if n == nil {
		return "no limit"
	}
	return strconv.Itoa(*n)
}

func (p *program) routeCommand() *cobra.Command {
	group := ""
	c := &cobra.Command{
		Use: "route [QUEUE]", Short: "Restrict a queue, or without a name all queues of the namespace, to the workers of a group",
		Long: "Restrict a queue, or without a name all queues of the namespace without a group, to the workers of a group.\n\n" +
			"A worker's group is the group of its token. --group \"\" removes the restriction. Without --group the current one is shown.",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usageError{fmt.Errorf("%s accepts at most one queue name (arguments given: %d)", c.CommandPath(), len(args))}
			}
			return nonEmptyArgs(c, args, "queue name")
		},
		RunE: func(c *cobra.Command, args []string) error {
			s, err := p.settings(c)
			if err != nil {
				return err
			}
			path := "/api/namespaces/" + url.PathEscape(s.Namespace) + "/route"
			if len(args) == 1 {
				path = queuePath(args[0]) + "/route"
			}
			method, in := http.MethodGet, any(nil)
			if c.Flags().Changed("group") {
				method, in = http.MethodPut, protocol.RouteRequest{Group: group}
			}
			return send(p, c, method, path, in, func(r protocol.RouteState) error {
				what := "queue " + r.Queue
				if r.Queue == "" {
					what = "namespace " + r.Namespace
				}
				if r.Group == "" {
					return p.printf("%s: dispatched to all workers that poll it", what)
				}
				from := ""
				if r.FromNamespace {
					from = " (set for the namespace)"
				}
				return p.printf("%s: dispatched only to group %s%s; %d of its workers poll it", what, r.Group, from, r.Workers)
			})
		},
	}
	c.Flags().StringVar(&group, "group", "", "group in the tokens of the workers; \"\": any")
	return c
}
