package cli

import (
	"net/http"
	"net/url"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (p *program) findCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "find ID",
		Short: "Find runs, sessions, workers, schedules and activities by ID",
		Long: `Find runs, sessions, workers, schedules and activities by an exact ID: a workflow ID, run ID, business key, session,
worker or schedule, or a step of a run (RUN-SEQUENCE). Without an exact match, the list shows objects whose IDs begin
with the text, at most five of each kind. The search does not become slower with the number of runs.`,
		Args: oneArg("ID"),
		RunE: func(c *cobra.Command, args []string) error {
			path := "/api/sojourn/find?" + url.Values{"id": args}.Encode()
			return send(p, c, http.MethodGet, path, nil, p.printFound)
		},
	}
	return clientCommand(c)
}

func (p *program) printFound(v protocol.FindResponse) error {
	found := v.Matches
	if len(found) == 0 {
		found = v.Prefixes
	}
	if len(found) == 0 {
		return p.printf("none")
	}
	t := table.NewWriter()
	t.AppendHeader(table.Row{"kind", "id", "status", "workflow id", "run", "at"})
	for _, f := range found {
		t.AppendRow(table.Row{f.Kind, f.ID, f.Status, f.WorkflowID, f.RunID, stampOf(f.At)})
	}
	return p.render(t)
}
