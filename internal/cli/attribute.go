package cli

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/shared/protocol"
)

// attribute is a search attribute in a list of them.
type attribute struct {
	protocol.SearchAttribute
	Of string `json:"of"` // system, or namespace
}

func (p *program) attributesCommand() *cobra.Command {
	const path = "/api/search-attributes"
	list := &cobra.Command{
		Use: "list", Short: "List registered search attributes", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var out protocol.SearchAttributes
			if err := p.call(c, http.MethodGet, path, nil, &out); err != nil {
				return err
			}
			var all []attribute
			for of, types := range map[string]map[string]string{"system": out.System, "namespace": out.Custom} {
				for name, typ := range types {
					all = append(all, attribute{protocol.SearchAttribute{Name: name, Type: typ}, of})
				}
			}
			slices.SortFunc(all, func(a, b attribute) int {
				return cmp.Or(cmp.Compare(b.Of, a.Of), cmp.Compare(a.Name, b.Name))
			})
			if asJSON(c) {
				return p.printJSON(all)
			}
			t := table.NewWriter()
			t.AppendHeader(table.Row{"name", "type", "of"})
			for _, a := range all {
				t.AppendRow(table.Row{a.Name, a.Type, a.Of})
			}
			return p.render(t)
		},
	}
	create := &cobra.Command{
		Use:   "create NAME TYPE",
		Short: "Register a search attribute: keyword, text, int, double, bool, datetime or keyword_list",
		Args:  exactArgs("search attribute name", "type"),
		RunE: func(c *cobra.Command, args []string) error {
			in := protocol.SearchAttribute{Name: args[0], Type: args[1]}
			return send(p, c, http.MethodPost, path, in, func(a protocol.SearchAttribute) error {
				return p.printf("created %s", a.Name)
			})
		},
	}
	remove := &cobra.Command{
		Use: "delete NAME", Short: "Remove a search attribute; runs keep their values", Args: oneArg("search attribute name"),
		RunE: func(c *cobra.Command, args []string) error {
			return send(p, c, http.MethodDelete, path+"/"+url.PathEscape(args[0]), nil, func(a protocol.SearchAttribute) error {
				return p.printf("deleted %s", a.Name)
			})
		},
	}
	return p.group(
		"search-attributes", "List, register and remove the search attributes of a namespace", nil, list, create, remove,
	)
}
