package cli

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// completing returns the completions of a typed prefix. It requests them from the app of the command; without a
// response there are none.
type completing = func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective)

// first returns completions for the first argument only.
func first(offer func(c *cobra.Command, typed string) []string) completing {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return beginning(offer(c, typed), typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// flagOf returns completions for the value of a flag.
func flagOf(offer func(c *cobra.Command, typed string) []string) completing {
	return func(c *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return beginning(offer(c, typed), typed), cobra.ShellCompDirectiveNoFileComp
	}
}

func beginning(all []string, typed string) []string {
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == "" || !strings.HasPrefix(s, typed) })
}

// ids returns a member of the items of a list.
func (p *program) ids(path, list, member string, search bool) func(c *cobra.Command, typed string) []string {
	return func(c *cobra.Command, typed string) (found []string) {
		q := url.Values{"page_size": {"100"}}
		if search && typed != "" {
			q.Set("query", typed)
		}
		if path == "/api/workflows" {
			q.Set("values", string(protocol.ValuesNone))
		}
		var page map[string]json.RawMessage
		var items []map[string]json.RawMessage
		if p.call(c, http.MethodGet, path+"?"+q.Encode(), nil, &page) != nil || json.Unmarshal(page[list], &items) != nil {
			return nil
		}
		for _, item := range items {
			var id string
			if json.Unmarshal(item[member], &id) == nil {
				found = append(found, id)
			}
		}
		return found
	}
}

func (p *program) workflowIDs() completing {
	return first(p.ids("/api/workflows", "workflows", "workflow_id", true))
}

// workflowTypes completes the workflow types that workers of the namespace have registered.
func (p *program) workflowTypes(c *cobra.Command, _ string) []string {
	return p.registered(c, func(w protocol.WorkerView) []string { return w.WorkflowTypes })
}

// activityTypes completes the activity types that workers of the namespace have registered.
func (p *program) activityTypes(c *cobra.Command, _ string) []string {
	return p.registered(c, func(w protocol.WorkerView) []string { return w.ActivityTypes })
}

func (p *program) registered(c *cobra.Command, by func(protocol.WorkerView) []string) (types []string) {
	var page struct {
		Workers []protocol.WorkerView `json:"workers"`
	}
	if p.call(c, http.MethodGet, "/api/workers", nil, &page) != nil {
		return nil
	}
	for _, w := range page.Workers {
		types = append(types, by(w)...)
	}
	return types
}

// offerIDs lets all commands of a group that name one object complete its ID.
func offerIDs(group *cobra.Command, offer completing) *cobra.Command {
	for _, sub := range group.Commands() {
		use := strings.Fields(sub.Use)
		if len(use) < 2 || sub.ValidArgsFunction != nil || sub.Name() == "create" {
			continue
		}
		if what, _, _ := strings.Cut(use[1], "|"); what == "ID" || what == "NAME" {
			sub.ValidArgsFunction = offer
		}
	}
	return group
}

// offerFlag lets a flag complete its value.
func offerFlag(c *cobra.Command, flag string, offer completing) {
	if err := c.RegisterFlagCompletionFunc(flag, offer); err != nil {
		panic(err) // there is no such flag: an error in this program
	}
}
