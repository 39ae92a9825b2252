package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/stack"
	"github.com/sojourn-run/sojourn/shared/history"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (p *program) describeWorkflow() *cobra.Command {
	var run string
	var follow, full bool
	c := runFlag(&cobra.Command{
		Use: "describe ID", Short: "Show a run: status and what it waits for", Args: oneArg(workflowIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			path := runPath(args[0], run)
			if !full && !asJSON(c) {
				path += "?values=" + string(protocol.ValuesPreview)
			}
			if !follow {
				return send(p, c, http.MethodGet, path, nil, func(v protocol.RunView) error {
					return p.showRun(p.decodedRun(c, v))
				})
			}
			var v protocol.RunView
			if err := p.call(c, http.MethodGet, path, nil, &v); err != nil {
				return err
			}
			show := func(v protocol.RunView) error { return p.showRun(p.decodedRun(c, v)) }
			if asJSON(c) {
				show = func(v protocol.RunView) error { return p.printJSON(v) }
			}
			if err := show(v); err != nil {
				return err
			}
			return p.follow(c, followed{id: args[0], run: v.RunID, after: v.HistoryLength, chain: run == "", full: full})
		},
	}, &run)
	c.Flags().BoolVarP(&follow, "follow", "f", false, followHelp)
	c.Flags().BoolVar(&full, "full", false, fullHelp)
	return c
}

const fullHelp = "print whole values; default: the first 4 KiB of each (--json always prints whole values)"

// truncatedText returns the beginning of a value that a response does not contain whole, with its size; empty if the
// response contains it whole.
func truncatedText(values protocol.Truncated, name string) string {
	cut, ok := values[name]
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s… (%s; --full prints the value)", cut.Preview, bytesText(cut.Size))
}

// bytesText formats a number of bytes.
func bytesText(n int) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
}

func (p *program) showRun(v protocol.RunView) error {
	now, set := waitText(v.Wait, v.WaitReason), stringOf(v.Quarantined)
	if v.Wait != nil && v.Wait.Reason == protocol.WaitQuarantined { // the wait reason already contains the failure
		set = ""
	}
	stuck := strings.TrimPrefix(stuckText(v), "stuck ")
	if v.Stuck != nil && v.Wait != nil && v.Wait.Reason == v.Stuck.Reason {
		stuck = "since " + stamp(v.Stuck.Since)
	}
	err := p.facts(
		fact{"workflow id", v.WorkflowID},
		fact{"run", fmt.Sprintf("%s, %d of %d", v.RunID, v.RunNumber, v.RunCount)},
		fact{"type", typeWithKind(v.Kind, v.WorkflowType)},
		fact{"business key", stringOf(v.BusinessKey)},
		fact{"status", statusOf(v)},
		fact{"queue", v.TaskQueue},
		fact{"started", stamp(v.StartedAt)},
		fact{"closed", stamp(v.ClosedAt)},
		fact{"now", now},
		fact{"quarantined", set},
		fact{"stuck", stuck},
		fact{"input", cmp.Or(truncatedText(v.Truncated, "input"), jsonText(v.Input))},
		fact{"output", cmp.Or(truncatedText(v.Truncated, "output"), jsonText(v.Output))},
		fact{"error", v.Failed().Text()},
		fact{"failed at", stack.Place(v.Failed().Stack)},
		fact{"memo", cmp.Or(truncatedText(v.Truncated, "memo"), jsonText(v.Memo))},
		fact{
			"search attributes",
			cmp.Or(truncatedText(v.Truncated, "search_attributes"), jsonText(v.SearchAttributes)),
		},
		fact{"parent", stringOf(v.ParentWorkflowID)},
		fact{"events", fmt.Sprint(v.HistoryLength)},
	)
	if err != nil || v.Pending == nil {
		return err
	}
	open := table.NewWriter()
	open.AppendHeader(table.Row{"open", "what", "state", "attempt", "worker", "session", "progress", "why"})
	for _, a := range v.Pending.Activities {
		open.AppendRow(table.Row{
			"activity", a.ActivityType, a.State, a.Attempt, a.Worker, a.SessionID, progress(a.Progress),
			waitReason(a.Wait, a.Why),
		})
	}
	if k := v.Pending.Cancellation; k != nil {
		open.AppendRow(table.Row{"cancellation", "requested " + stamp(k.RequestedAt), "", "", "", "", "", k.Message})
	}
	if k := v.Pending.Task; k != nil {
		open.AppendRow(table.Row{"workflow task", k.TaskID, k.State, k.Attempt, k.Worker, "", "", waitReason(k.Wait, k.Why)})
	}
	timeouts := map[int64]string{} // of waits: a wait and the timer of its timeout have the same sequence
	for _, k := range v.Pending.Timers {
		if slices.ContainsFunc(v.Pending.Waits, func(w protocol.PendingWait) bool { return w.Sequence == k.Sequence }) {
			timeouts[k.Sequence] = "until " + stamp(k.FireAt)
			continue
		}
		open.AppendRow(table.Row{"timer", k.TimerID, stamp(k.FireAt), "", "", "", "", ""})
	}
	for _, k := range v.Pending.Waits {
		what := k.SignalName + k.ConditionKey + k.AwakeableID
		open.AppendRow(table.Row{k.Kind, what, timeouts[k.Sequence], "", "", "", "", ""})
	}
	for _, k := range v.Pending.Children {
		open.AppendRow(table.Row{"child", k.Type + " " + k.WorkflowID, "", k.Attempt, "", "", "", ""})
	}
	for _, k := range v.Pending.Updates {
		open.AppendRow(table.Row{"update", k.UpdateName + " " + k.UpdateID, "", "", "", "", "", ""})
	}
	if open.Length() == 0 {
		return nil
	}
	if err := p.render(open); err != nil {
		return err
	}
	if err := p.showActivityFailures(v.Pending.Activities); err != nil {
		return err
	}
	t := v.Pending.Task
	if t == nil || t.LastFailure == "" && t.Stack == "" {
		return nil
	}
	shown := strings.Contains(now, t.LastFailure)
	switch {
	case shown && t.Stack == "":
		return nil
	case shown:
		_, err = fmt.Fprintf(p.out, "\nworkflow code failed at\n%s\n", strings.TrimSpace(t.Stack))
	default:
		_, err = fmt.Fprintf(p.out, "\nworkflow code failed: %s\n", strings.TrimSpace(t.LastFailure+"\n"+t.Stack))
	}
	return err
}

// showActivityFailures prints the heartbeat details that open activities pass to their next attempts, their lost
// deliveries and their last failures.
func (p *program) showActivityFailures(list []protocol.PendingActivity) error {
	last := table.NewWriter()
	last.AppendHeader(table.Row{"activity", "of attempt", "passed to the next attempt"})
	for _, a := range list {
		if h := a.LastHeartbeat; h != nil {
			last.AppendRow(table.Row{a.ActivityType, h.Attempt, lastHeartbeat(h.At, h.Details)})
		}
	}
	if last.Length() > 0 {
		if err := p.render(last); err != nil {
			return err
		}
	}
	lost := table.NewWriter()
	lost.AppendHeader(table.Row{"lost delivery", "activity", "worker", "epoch", "took", "last heartbeat", "why"})
	for _, a := range list {
		for _, l := range a.Lost {
			lost.AppendRow(table.Row{
				l.Delivery, a.ActivityType, l.Worker, epochs(nil).name(l.Epoch), durationBetween(l.StartedAt, l.At),
				lastHeartbeat(l.HeartbeatAt, l.HeartbeatDetails), l.Why,
			})
		}
	}
	if lost.Length() > 0 {
		if err := p.render(lost); err != nil {
			return err
		}
	}
	for _, a := range list {
		if a.Stack == "" {
			continue
		}
		if _, err := fmt.Fprintf(
			p.out, "\nactivity %s, sequence %d, failed: %s\n%s\n", a.ActivityType, a.Sequence, a.LastFailure,
			strings.TrimSpace(a.Stack),
		); err != nil {
			return err
		}
	}
	return nil
}

// waitText describes a wait as a sentence with local times; older apps send only the sentence.
func waitText(w *protocol.Wait, words *string) string {
	if w == nil || w.Reason.Rule().Text == "" {
		return stringOf(words)
	}
	return w.Say(time.Local)
}

// waitReason is like waitText, without the subject of the sentence.
func waitReason(w *protocol.Wait, words string) string {
	if w == nil || w.Reason.Rule().Text == "" {
		return words
	}
	return w.Why(time.Local)
}

// jsonText returns JSON as text; null and an empty object are empty.
func jsonText(raw json.RawMessage) string {
	if s := string(raw); s != "{}" && s != "null" {
		return s
	}
	return ""
}

func (p *program) runsOfWorkflow() *cobra.Command {
	return &cobra.Command{
		Use: "runs ID", Short: "List the runs of a workflow", Args: oneArg(workflowIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			return list(p, c, listing{path: runPath(args[0], "") + "/runs", member: "runs"},
				table.Row{"number", "run", "type", "status", "queue", "started", "closed", "error"},
				func(v protocol.RunView) table.Row {
					return table.Row{
						v.RunNumber, v.RunID, typeOf(v.Kind, v.WorkflowType), p.colored(statusOf(v)), v.TaskQueue,
						stamp(v.StartedAt), stamp(v.ClosedAt), inOneLine(v.Failed().Text()),
					}
				})
		},
	}
}

func (p *program) historyOfWorkflow() *cobra.Command {
	var run string
	var follow, stacks, full bool
	c := runFlag(&cobra.Command{
		Use: "history ID", Short: "Print the events of a run, one per line", Args: oneArg(workflowIDArg),
		RunE: func(c *cobra.Command, args []string) error {
			named := run != ""
			run, err := p.currentRun(c, args[0], run)
			if err != nil {
				return err
			}
			if follow {
				return p.follow(c, followed{id: args[0], run: run, chain: !named, stacks: stacks, full: full})
			}
			events, err := p.readList(c, listing{
				path: runPath(args[0], run) + "/history", member: "events", query: shownValues(full || asJSON(c)), page: 1000,
			})
			if err != nil {
				return err
			}
			for _, raw := range events {
				if err := p.showEvent(c, raw, stacks); err != nil {
					return err
				}
			}
			return nil
		},
	}, &run)
	c.Flags().BoolVarP(&follow, "follow", "f", false, followHelp)
	c.Flags().BoolVar(&stacks, "stacks", false, "also print the stack of each failure below its event")
	c.Flags().BoolVar(&full, "full", false, fullHelp)
	return c
}

// shownValues returns the query for events with decoded values: complete, or as previews.
func shownValues(full bool) url.Values {
	q := url.Values{"decoded": {"true"}}
	if !full {
		q.Set("values", string(protocol.ValuesPreview))
	}
	return q
}

// showEvent prints an event: as one line of text, with the stack of a failure below it if stacks is set, or as one line
// of JSON.
func (p *program) showEvent(c *cobra.Command, raw json.RawMessage, stacks bool) error {
	if asJSON(c) {
		return p.printf("%s", raw)
	}
	line, trace, err := eventLine(raw)
	if err != nil {
		return err
	}
	if stacks && trace != "" {
		line += "\n    " + strings.ReplaceAll(strings.TrimSpace(trace), "\n", "\n    ")
	}
	return p.printf("%s", line)
}

// shownVersion is the displayed length of a code version, which suffices to distinguish versions.
const shownVersion = 8

// eventLine formats an event as one line: time, type, subject, failure and its location, and the version of the code
// that ended an attempt if the worker reported it. trace is the stack of a failure. F
func eventLine(raw json.RawMessage) (line, trace string, err error) {
	var e struct {
		Sequence int64           `json:"sequence"`
		Type     string          `json:"event_type"`
		At       history.Time    `json:"timestamp"`
		Payload  json.RawMessage `json:"payload"`
		Decoded  json.RawMessage `json:"decoded"`

		Truncated protocol.Truncated `json:"truncated"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return "", "", fmt.Errorf("read the response: %w", err)
	}
	about := struct {
		Activity string       `json:"activity_type"`
		Signal   string       `json:"signal_name"`
		Update   string       `json:"update_name"`
		Child    string       `json:"child_workflow_type"`
		Worker   string       `json:"worker_id"`
		Version  string       `json:"code_version"`
		FireAt   history.Time `json:"fire_at"` // of a timer
		history.Failure
	}{}
	_ = json.Unmarshal(e.Payload, &about) // an event with another form is shown without these details
	words := []string{fmt.Sprintf("%d %s %-24s", e.Sequence, stamp(e.At), e.Type)}
	place, code := stack.Place(about.Stack), ""
	if place != "" {
		place = "(" + place + ")"
	}
	if v := about.Version; v != "" {
		code = fmt.Sprintf("by %s, version %s", about.Worker, v[:min(len(v), shownVersion)])
	}
	fires := ""
	if !about.FireAt.IsZero() {
		fires = "until " + stamp(about.FireAt)
	}
	for _, s := range []string{
		about.Activity, fires, about.Signal, about.Update, about.Child, about.Text(), place, code, jsonText(e.Decoded),
	} {
		if s != "" {
			words = append(words, s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.Truncated)) {
		words = append(words, name+" "+truncatedText(e.Truncated, name))
	}
	return strings.TrimSpace(strings.Join(words, " ")), about.Stack, nil
}
