package cli

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

const namespaceArg = "namespace name"

func (p *program) namespacesCommand() *cobra.Command {
	path := func(name string) string { return "/api/namespaces/" + url.PathEscape(name) }
	row := func(v protocol.NamespaceView) table.Row {
		return table.Row{v.Name, v.Status, v.RetentionDays, v.Description, stamp(v.CreatedAt)}
	}
	write := func(use, short, outcome string, send func(
		c *cobra.Command, in protocol.NamespaceRequest, show func(protocol.NamespaceView) error,
	) error,
	) *cobra.Command {
		var about string
		var days int
		var quotas quotaFlags
		var endpoint string
		c := &cobra.Command{
			Use: use + " NAME", Short: short, Args: oneArg(namespaceArg),
			RunE: func(c *cobra.Command, args []string) error {
				in := protocol.NamespaceRequest{Name: args[0]}
				if c.Flags().Changed("description") {
					in.Description = &about
				}
				if c.Flags().Changed("retention-days") {
					in.RetentionDays = &days
				}
				in.Quotas = quotas.values(c)
				if c.Flags().Changed("codec-endpoint") {
					in.CodecEndpoint = &endpoint
				}
				return send(c, in, func(v protocol.NamespaceView) error {
					return p.printf("%s %s, closed runs are kept for %d days", outcome, v.Name, v.RetentionDays)
				})
			},
		}
		c.Flags().StringVar(&about, "description", "", "description of the namespace")
		quotas.add(c)
		c.Flags().StringVar(&endpoint, "codec-endpoint", "",
			"URL of the service that decodes payloads for viewers: https, or http for a loopback address; empty: none")
		c.Flags().IntVar(&days, "retention-days", 30, "retention of closed runs in days, 1 to 365")
		return c
	}
	type show = func(protocol.NamespaceView) error
	return p.group("namespaces", "List, create, change and delete namespaces",
		func(c *cobra.Command, _ []string) error {
			return list(p, c, listing{path: "/api/namespaces", member: "namespaces"},
				table.Row{"namespace", "status", "retention days", "description", "created"}, row)
		},
		write("create", "Create a namespace", "created", func(c *cobra.Command, in protocol.NamespaceRequest, s show) error {
			return send(p, c, http.MethodPost, "/api/namespaces", in, s)
		}),
		write("update", "Change a namespace; values without a flag are kept", "updated", func(
			c *cobra.Command, in protocol.NamespaceRequest, s show,
		) error {
			return send(p, c, http.MethodPut, path(in.Name), in, s)
		}),
		p.describeNamespace(path),
		p.deleteNamespace(path),
	)
}

// quotaFlags are the values of the quota flags, in the order of protocol.Quotas.
type quotaFlags [4]int64

func quotaFlag(q protocol.Quota) string { return "quota-" + strings.ReplaceAll(string(q), "_", "-") }

func (f *quotaFlags) add(c *cobra.Command) {
	for i, q := range protocol.Quotas {
		c.Flags().Int64Var(&f[i], quotaFlag(q), -1, quotaHelp[q]+"; -1: the app's setting "+quotaFlag(q))
	}
}

var quotaHelp = map[protocol.Quota]string{
	protocol.QuotaOpenRuns:    "limit of open runs",
	protocol.QuotaStarts:      "limit of runs started per second",
	protocol.QuotaStoredBytes: "limit of the bytes of all histories",
	protocol.QuotaSchedules:   "limit of schedules",
}

// values returns the quotas whose flags are set; nil: none.
func (f *quotaFlags) values(c *cobra.Command) (v *protocol.QuotaValues) {
	for i, q := range protocol.Quotas {
		if !c.Flags().Changed(quotaFlag(q)) {
			continue
		}
		if v == nil {
			v = &protocol.QuotaValues{}
		}
		*v.Field(q) = &f[i]
	}
	return v
}

func (p *program) describeNamespace(path func(string) string) *cobra.Command {
	return &cobra.Command{
		Use: "describe NAME", Short: "Show a namespace: retention, quotas and their usage", Args: oneArg(namespaceArg),
		RunE: func(c *cobra.Command, args []string) error {
			return send(p, c, http.MethodGet, path(args[0]), nil, func(v protocol.NamespaceView) error {
				t := table.NewWriter()
				t.SetTitle(v.Name)
				t.AppendHeader(table.Row{"quota", "used", "limit", "from", "held"})
				for _, q := range v.Quotas {
					held := ""
					if q.Held > 0 {
						held = fmt.Sprintf("%d child workflows", q.Held)
					}
					t.AppendRow(table.Row{q.Quota, q.Used, q.Limit, q.From, held})
				}
				endpoint := ""
				if v.CodecEndpoint != "" {
					endpoint = "\ncodec endpoint: " + v.CodecEndpoint
				}
				return p.printf("%s\n%s, closed runs are kept for %d days. %s%s",
					t.Render(), v.Status, v.RetentionDays, v.Description, endpoint)
			})
		},
	}
}

func (p *program) deleteNamespace(path func(string) string) *cobra.Command {
	var sure bool
	c := &cobra.Command{
		Use: "delete NAME", Short: "Delete a namespace with everything in it", Args: oneArg(namespaceArg),
		RunE: func(c *cobra.Command, args []string) error {
			if !sure {
				var v protocol.NamespaceView
				if err := p.call(c, http.MethodGet, path(args[0]), nil, &v); err != nil {
					return err
				}
				used := map[protocol.Quota]int64{}
				for _, q := range v.Quotas {
					used[q.Quota] = q.Used
				}
				fmt.Fprintf(
					p.err,
					"Namespace %s: %d open runs, %d bytes of histories of open and closed runs, %d schedules.\n"+
						"All its runs, histories, sessions, workers and schedules will be removed; this cannot be undone.\n"+
						"Type the name of the namespace to continue: ",
					v.Name, used[protocol.QuotaOpenRuns], used[protocol.QuotaStoredBytes], used[protocol.QuotaSchedules],
				)
				typed, _ := bufio.NewReader(c.InOrStdin()).ReadString('\n') // no input counts as no
				if !strings.HasSuffix(typed, "\n") {
					fmt.Fprintln(p.err)
				}
				if strings.TrimSpace(typed) != args[0] {
					return usageError{errors.New("nothing was deleted: type the name to confirm, or pass --yes")}
				}
			}
			return send(p, c, http.MethodDelete, path(args[0]), nil, func(v protocol.NamespaceRemoval) error {
				return p.printf("deleted %s", v.Name)
			})
		},
	}
	c.Flags().BoolVar(&sure, "yes", false, "do not ask for confirmation")
	return c
}
