package cli

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/cli/config"
	"github.com/sojourn-run/sojourn/shared/protocol"
)

func (p *program) attributesCommand() *cobra.Command {
	const path = "/api/search-attributes"
	c := &cobra.Command{
		Use: "search-attributes", Short: "List, register and remove the search attributes of a namespace", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	list := &cobra.Command{
		Use: "list", Short: "List what runs can be filtered by", Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var out protocol.SearchAttributes
			if err := p.call(c, http.MethodGet, path, nil, &out); err != nil {
				return err
			}
			t := table.NewWriter()
			t.AppendHeader(table.Row{"name", "type", "of"})
			for _, name := range slices.Sorted(maps.Keys(out.System)) {
				t.AppendRow(table.Row{name, out.System[name], "system"})
			}
			for _, name := range slices.Sorted(maps.Keys(out.Custom)) {
				t.AppendRow(table.Row{name, out.Custom[name], "namespace"})
			}
			_, err := fmt.Fprintln(p.out, t.Render())
			return err
		},
	}
	create := &cobra.Command{
		Use: "create NAME TYPE", Short: "Register a search attribute: keyword, text, int, double, bool, datetime or keyword_list",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usageError{fmt.Errorf("%s takes a name and a type", c.CommandPath())}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if err := p.call(c, http.MethodPost, path, protocol.SearchAttribute{Name: args[0], Type: args[1]}, nil); err != nil {
				return err
			}
			fmt.Fprintln(p.out, "created", args[0])
			return nil
		},
	}
	remove := &cobra.Command{
		Use: "delete NAME", Short: "Take a registration away; runs keep their values", Args: one("one name"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := p.call(c, http.MethodDelete, path+"/"+url.PathEscape(args[0]), nil, nil); err != nil {
				return err
			}
			fmt.Fprintln(p.out, "deleted", args[0])
			return nil
		},
	}
	for _, sub := range []*cobra.Command{list, create, remove} {
		config.Register(sub.Flags(), config.Client)
		c.AddCommand(sub)
	}
	return c
}
