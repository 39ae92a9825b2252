package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/sandbox"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

const (
	workerIDArg  = "worker ID"
	sessionIDArg = "session ID"
)

func (p *program) workersCommand() *cobra.Command {
	path := func(id string) string { return "/api/workers/" + url.PathEscape(id) }
	return sortable(offerIDs(p.group("workers", "List, show, drain and remove workers", p.listWorkers,
		&cobra.Command{
			Use: "describe ID", Short: "Show a worker", Args: oneArg(workerIDArg),
			RunE: func(c *cobra.Command, args []string) error {
				return send(p, c, http.MethodGet, path(args[0]), nil, p.showWorker)
			},
		},
		&cobra.Command{
			Use: "remove ID", Short: "Remove the registration of a worker; its tasks are requeued when their leases expire",
			Args: oneArg(workerIDArg),
			RunE: func(c *cobra.Command, args []string) error {
				return send(p, c, http.MethodDelete, path(args[0]), nil, func(struct{}) error {
					return p.printf("deregistered %s", args[0])
				})
			},
		},
		p.fleetCommand(protocol.FleetDrain, "Drain workers: stop dispatching to them; running tasks finish, the processes stay up",
			"Sessions are released when their last activity ends. The drain also applies to new workers of the group, build or release, until resume."),
		p.fleetCommand(protocol.FleetResume, "End a drain: dispatch to the workers again", "Released sessions stay released."),
		p.fleetCommand(protocol.FleetEvict, "Drain workers and shut their processes down",
			"Running tasks get the worker's drain timeout; then they are returned, and the processes end."),
		p.drainsCommand(), p.fleetSettingsCommand(),
	), first(p.ids("/api/workers", "workers", "worker_id", false))))
}

func (p *program) listWorkers(c *cobra.Command, _ []string) error {
	return list(p, c, listing{path: "/api/workers", member: "workers"},
		table.Row{"worker", "status", "queues", "build", "runtime", "leases", "sessions", "last heartbeat"},
		func(w protocol.WorkerView) table.Row {
			return table.Row{
				w.WorkerID, w.Status, strings.Join(w.TaskQueues, " "), buildName(w.BuildID),
				strings.TrimSpace(w.Runtime + " " + w.SDKVersion),
				w.Leases, w.Sessions, stamp(w.LastHeartbeatAt),
			}
		})
}

func (p *program) showWorker(w protocol.WorkerView) error {
	return p.facts(
		fact{"worker", w.WorkerID},
		fact{"status", string(w.Status)},
		fact{"not dispatched", w.Gate},
		fact{"drained", drainedBy(w.Drain)},
		fact{"group", w.Group},
		fact{"settings", revision(w.Settings)},
		fact{"queues", strings.Join(w.TaskQueues, " ")},
		fact{"build", buildName(w.BuildID)},
		fact{"release", w.Release},
		fact{"runtime", strings.TrimSpace(w.Runtime + " " + w.SDKVersion)},
		fact{"capabilities", strings.Join(w.Capabilities, " ")},
		fact{"workflows", strings.Join(w.WorkflowTypes, " ")},
		fact{"activities", strings.Join(w.ActivityTypes, " ")},
		fact{"code differs", otherCode(w.Differs)},
		fact{
			"slots",
			fmt.Sprintf("%d workflow tasks, %d activities, %d sessions", w.WorkflowSlots, w.ActivitySlots, w.MaxSessions),
		},
		fact{"resources", resourceUse(w.Resources)},
		fact{"executors", executors(w.Machine, time.Now())},
		fact{"packages", packages(w.Machine, time.Now())},
		fact{"in use", fmt.Sprintf("%d leases, %d sessions", w.Leases, w.Sessions)},
		fact{"registered", stamp(w.RegisteredAt)},
		fact{"last heartbeat", stamp(w.LastHeartbeatAt)},
	)
}

// resourceUse lists how much of each resource of a worker its sessions use.
func resourceUse(of map[string]protocol.ResourceUse) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		list = append(list, fmt.Sprintf("%s: %s of %s used", name, of[name].Used, of[name].Total))
	}
	return strings.Join(list, ", ")
}

// executors lists the executors in a worker's last heartbeat, separated by semicolons.
func executors(machine json.RawMessage, now time.Time) string {
	var m protocol.MachineInformation
	if len(machine) == 0 || json.Unmarshal(machine, &m) != nil {
		return ""
	}
	var lines []string
	for _, e := range m.Sandboxes {
		state := "idle"
		if e.Busy {
			state = "busy"
		}
		calls := "1 call"
		if e.Calls != 1 {
			calls = fmt.Sprint(e.Calls, " calls")
		}
		line := fmt.Sprintf("%s, %s, %d MiB, %s", cmp.Or(e.Runtime, e.SandboxID), state, e.Memory>>20, calls)
		if !e.Since.IsZero() {
			line += fmt.Sprintf(", %s old", now.Sub(e.Since.Time).Round(time.Second))
		}
		if e.SessionID != "" {
			line += fmt.Sprintf(", session %s epoch %d", e.SessionID, e.Epoch)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// packages lists the state of handler packages in a worker's last heartbeat by runtime, separated by semicolons.
func packages(machine json.RawMessage, now time.Time) string {
	var m protocol.MachineInformation
	if len(machine) == 0 || json.Unmarshal(machine, &m) != nil {
		return ""
	}
	var lines []string
	for _, p := range m.Packages {
		lines = append(lines, p.Runtime+", "+packagesText(p, now))
	}
	return strings.Join(lines, "; ")
}

// packagesText describes the state of packages.
func packagesText(p protocol.PackagesInfo, now time.Time) string {
	span := func(d time.Duration) string { return max(0, d).Round(time.Second).String() }
	text := strings.Join(p.Files, ", ") + ": "
	switch p.State {
	case string(sandbox.PackagesInstalled):
		text += "installed"
		if !p.Since.IsZero() {
			text += fmt.Sprintf(" %s ago, %d KiB", span(now.Sub(p.Since.Time)), (p.Bytes+1<<10-1)>>10)
		}
		return text + ", " + p.Path
	case string(sandbox.PackagesInstalling):
		text += "installing"
		if !p.Since.IsZero() {
			text += " for " + span(now.Sub(p.Since.Time))
		}
	case string(sandbox.PackagesFailed):
		text += "installation failed"
		if !p.Since.IsZero() {
			text += " " + span(now.Sub(p.Since.Time)) + " ago"
		}
		if !p.RetryAt.IsZero() {
			text += ", next attempt in " + span(p.RetryAt.Sub(now))
		}
	case string(sandbox.PackagesPending):
		return text + "not installed yet; a worker installs them when it starts"
	default:
		return text + p.Detail
	}
	if p.Detail != "" {
		text += ": " + p.Detail
	}
	return text
}

// otherCode lists workers of the same release with different code, by activity type.
func otherCode(all []protocol.CodeDifference) string {
	var parts []string
	for _, d := range all {
		parts = append(parts, fmt.Sprintf("%s of worker %s", d.ActivityType, d.WorkerID))
	}
	return strings.Join(parts, ", ")
}

// revision describes the revision of the operators' settings that a worker runs with.
func revision(n *int64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf("revision %d", *n)
}

// drainedBy returns why a worker is drained.
func drainedBy(d *protocol.WorkerDrain) string {
	if d == nil {
		return ""
	}
	text := fmt.Sprintf("%s since %s", d.Text(), stamp(d.Since))
	if d.By != "" {
		text += " by " + d.By
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return text
}

const sessionsPath = "/api/worker-sessions"

// sessionResponse is the response of the routes of one session.
type sessionResponse struct {
	Outcome string               `json:"outcome"`
	Session protocol.SessionView `json:"session"`
}

func (p *program) sessionsCommand() *cobra.Command {
	path := func(id string) string { return sessionsPath + "/" + url.PathEscape(id) }
	operate := func(verb, short string, flags func(*cobra.Command, *protocol.SessionOperation)) *cobra.Command {
		var in protocol.SessionOperation
		c := &cobra.Command{
			Use: verb + " ID", Short: short, Args: oneArg(sessionIDArg),
			RunE: func(c *cobra.Command, args []string) error {
				return send(p, c, http.MethodPost, path(args[0])+"/"+verb, in, func(a sessionResponse) error {
					return p.printf("%s %s", a.Outcome, a.Session.SessionID)
				})
			},
		}
		c.Flags().StringVar(&in.Reason, "reason", "", "reason, shown to other operators")
		if flags != nil {
			flags(c, &in)
		}
		return c
	}
	c := sortable(offerIDs(p.group("sessions", "List, show, close, migrate and forget worker sessions", p.listSessions,
		&cobra.Command{
			Use: "describe ID", Short: "Show a session and its timeline", Args: oneArg(sessionIDArg),
			RunE: func(c *cobra.Command, args []string) error {
				return send(p, c, http.MethodGet, path(args[0]), nil, p.showSession)
			},
		},
		&cobra.Command{
			Use: "attempts ID", Short: "List the activity attempts of a session, newest first", Args: oneArg(sessionIDArg),
			RunE: func(c *cobra.Command, args []string) error {
				n := epochs{}
				if !asJSON(c) {
					timeline, err := p.wholeTimeline(c, path(args[0]))
					if err == nil {
						n, err = p.epochsAt(c, path(args[0]), timeline)
					}
					if err != nil {
						return err
					}
				}
				return list(p, c, listing{path: path(args[0]) + "/attempts", member: "attempts", page: 200},
					table.Row{
						"epoch", "activity", "attempt", "workflow", "worker", "outcome", "started", "ended", "took",
						"last heartbeat", "why",
					},
					func(a protocol.SessionAttempt) table.Row {
						return table.Row{
							n.name(a.Epoch), a.ActivityType, a.Attempt, a.WorkflowID, a.Worker, a.Outcome, stamp(a.StartedAt),
							stamp(a.EndedAt), durationBetween(a.StartedAt, a.EndedAt), lastHeartbeat(a.Heartbeat, a.HeartbeatDetails), a.Why,
						}
					})
			},
		},
		&cobra.Command{
			Use: "timeline ID", Short: "List the owners of a session over time, also after the session ended",
			Args: oneArg(sessionIDArg),
			RunE: func(c *cobra.Command, args []string) error { return p.sessionTimeline(c, path(args[0])) },
		},
		operate("close", "Close a session", nil),
		operate("forget", "Make the ID of an ended session usable again", func(
			c *cobra.Command, in *protocol.SessionOperation,
		) {
			c.Flags().BoolVar(&in.Force, "force", false, "even if activities run in it or its lease has not expired")
		}),
		operate("migrate", "Migrate a session to another worker", func(c *cobra.Command, in *protocol.SessionOperation) {
			c.Flags().StringVar(&in.To, "to", "", "target worker; default: any worker that may acquire the session")
			c.Flags().BoolVar(&in.Force, "force", false, "at once, without waiting for running activities")
		}),
	), first(p.ids(sessionsPath, "sessions", "session_id", true))))
	// The command opens the database, so it has the flags of an app and not those of a client.
	c.AddCommand(p.releaseSessions())
	return c
}

func (p *program) listSessions(c *cobra.Command, _ []string) error {
	return list(p, c, listing{path: sessionsPath, member: "sessions", page: 200},
		table.Row{"session", "status", "origin", "owner", "epoch", "running", "ready", "lease expires", "waiting"},
		func(v protocol.SessionView) table.Row {
			return table.Row{
				v.SessionID, v.Status, v.Origin, stringOf(v.LeaseOwner), claimOf(v), v.Active, v.Ready, leaseEnd(v),
				waitReason(v.Wait, v.Waiting),
			}
		})
}

// leaseEnd returns the expiry of the lease of an active session. It is empty for an ended session, since its last lease
// is irrelevant.
func leaseEnd(v protocol.SessionView) string {
	if v.Status != protocol.SessionActive {
		return ""
	}
	return stamp(v.LeaseExpiresAt)
}

// affinity describes a session's affinity if it is not the default.
func affinity(v protocol.SessionView) string {
	if v.FallbackAfter == 0 {
		return ""
	}
	return fmt.Sprintf("%s; other workers may acquire it after %d s", v.Affinity, v.FallbackAfter)
}

// takeover describes the leases of a fail-fast session.
func takeover(v protocol.SessionView) string {
	if !v.FailFast {
		return ""
	}
	return fmt.Sprintf("fail-fast: leases of at most %s, renewed every %s", protocol.FailFastLease, protocol.FailFastRenewal)
}

// neededResources lists the resources of a session: those it uses at its owner, or else those it needs.
func neededResources(v protocol.SessionView) string {
	if len(v.Used) > 0 {
		return v.Used.String()
	}
	return v.Resources.String()
}

// successor describes the worker that prepares the session during a hand-over.
func successor(v protocol.SessionView) string {
	s := v.Successor
	if s == nil {
		return ""
	}
	why := ""
	if s.Why == protocol.EndedRebalanced {
		why = "; holds fewer sessions than the owner"
	}
	switch {
	case !s.PreparedAt.IsZero():
		return fmt.Sprintf(
			"%s, prepared since %s; waits for %d running activities%s", s.WorkerID, stamp(s.PreparedAt), v.Active, why,
		)
	case s.StartedAt.IsZero():
		return s.WorkerID + ", preparing" + why
	}
	return fmt.Sprintf("%s, preparing since %s%s", s.WorkerID, stamp(s.StartedAt), why)
}

func (p *program) showSession(a sessionResponse) error {
	v := a.Session
	err := p.facts(
		fact{"session", v.SessionID},
		fact{"status", string(v.Status)},
		fact{"origin", v.Origin},
		fact{"owner", stringOf(v.LeaseOwner)},
		fact{"epoch", claimOf(v)},
		fact{"queue", stringOf(v.Queue)},
		fact{"resources", neededResources(v)},
		fact{"requirements", strings.Join(v.Requirements, " ")},
		fact{"activities", fmt.Sprintf("%d running, %d ready, at most %d at once", v.Active, v.Ready, v.MaxActivities)},
		fact{"lease expires", leaseEnd(v)},
		fact{"successor", successor(v)},
		fact{"takeover", takeover(v)},
		fact{"session expires", stamp(v.TTLExpiresAt)},
		fact{"affinity", affinity(v)},
		fact{"ended", v.EndedReason},
		fact{"waiting", waitReason(v.Wait, v.Waiting)},
	)
	if err != nil || len(v.Timeline) == 0 {
		return err
	}
	if v.TimelineToken != nil {
		if err := p.printf("for older entries run: sojourn sessions timeline %s", v.SessionID); err != nil {
			return err
		}
	}
	return p.showTimeline(v.Timeline, epochsOf(v.Timeline, v.Claims))
}

func (p *program) showTimeline(timeline []protocol.SessionEvent, n epochs) error {
	events := table.NewWriter()
	events.AppendHeader(table.Row{"at", "what", "worker", "epoch", "by", "why"})
	for _, e := range timeline {
		events.AppendRow(table.Row{stamp(e.At), eventText(e), e.Worker, n.name(e.Epoch), e.By, e.Why})
	}
	return p.render(events)
}

// eventText returns the kind of an entry of a timeline. The entries of a hand-over say what their worker does, because
// it is not the owner.
func eventText(e protocol.SessionEvent) string {
	switch e.What {
	case protocol.SessionPreparing:
		return "preparing (set-up by successor)"
	case protocol.SessionPrepared:
		return fmt.Sprintf("prepared (set-up by successor ended after %s s)", strconv.FormatFloat(e.Seconds, 'f', 1, 64))
	case protocol.SessionPreparationEnded:
		return "preparation ended (by successor)"
	}
	return e.What
}

// sessionTimeline shows all of a session's timeline.
func (p *program) sessionTimeline(c *cobra.Command, path string) error {
	all, err := p.wholeTimeline(c, path)
	switch {
	case err != nil:
		return err
	case asJSON(c):
		return p.printJSON(all)
	}
	n, err := p.epochsAt(c, path, all)
	if err != nil {
		return err
	}
	return p.showTimeline(all, n)
}
