package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/sojourn-run/sojourn/internal/config"
	"github.com/sojourn-run/sojourn/shared/history"
)

// group returns a command with subcommands; run is its action without a subcommand, nil: it prints its help.
func (p *program) group(
	use, short string, run func(*cobra.Command, []string) error, subs ...*cobra.Command,
) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: noArgs, RunE: run}
	if run == nil {
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	} else {
		clientCommand(c)
	}
	for _, sub := range subs {
		c.AddCommand(clientCommand(sub))
	}
	return c
}

// clientCommand adds the flags of commands that call an app: the settings of a client, and --json.
func clientCommand(c *cobra.Command) *cobra.Command {
	config.Register(c.Flags(), config.Client)
	c.Flags().Bool("json", false, "print the response as JSON")
	return c
}

func asJSON(c *cobra.Command) bool {
	v, err := c.Flags().GetBool("json")
	return err == nil && v
}

// exactArgs requires one non-empty argument for each name: an empty name in a path would be a different request.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != len(names) {
			var wanted []string
			for _, name := range names {
				article := "a "
				if strings.ContainsRune("aeio", rune(name[0])) {
					article = "an "
				}
				wanted = append(wanted, article+name)
			}
			return usageErr(c, fmt.Errorf(
				"%s requires %s (arguments given: %d)", c.CommandPath(), strings.Join(wanted, " and "), len(args),
			))
		}
		return nonEmptyArgs(c, args, names...)
	}
}

// nonEmptyArgs rejects empty arguments.
func nonEmptyArgs(c *cobra.Command, args []string, names ...string) error {
	for i, a := range args {
		if a == "" {
			return usageError{fmt.Errorf("%s: the %s must not be empty", c.CommandPath(), names[i])}
		}
	}
	return nil
}

// send sends a request and prints the response: unchanged with --json, otherwise with show.
func send[T any](p *program, c *cobra.Command, method, path string, in any, show func(T) error) error {
	var raw json.RawMessage
	if err := p.call(c, method, path, in, &raw); err != nil {
		return err
	}
	if asJSON(c) {
		return p.printJSON(raw)
	}
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return fmt.Errorf("read the response: %w", err)
	}
	return show(v)
}

func (p *program) printJSON(v any) error {
	raw, err := json.MarshalIndent(v, "", "  ")
	if err == nil {
		_, err = fmt.Fprintln(p.out, string(raw))
	}
	return err
}

func (p *program) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(p.out, format+"\n", args...)
	return err
}

// listing describes a list request: path, query, the member of the response with the items, and limits.
type listing struct {
	path, member string
	query        url.Values
	page         int // page size; 0: the list has no pages
	limit        int // 0: all
}

// readList reads a list, page after page.
func (p *program) readList(c *cobra.Command, l listing) ([]json.RawMessage, error) {
	if l.query == nil {
		l.query = url.Values{}
	}
	all := []json.RawMessage{}
	for {
		if n := l.page; n > 0 {
			if l.limit > 0 {
				n = min(n, l.limit-len(all))
			}
			l.query.Set("page_size", strconv.Itoa(n))
		}
		var page map[string]json.RawMessage
		if err := p.call(c, http.MethodGet, l.path+"?"+l.query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		var items []json.RawMessage
		var token string // null is the same as ""
		for member, to := range map[string]any{l.member: &items, "next_page_token": &token} {
			if raw, ok := page[member]; ok {
				if err := json.Unmarshal(raw, to); err != nil {
					return nil, fmt.Errorf("read %s of the response: %w", member, err)
				}
			}
		}
		all = append(all, items...)
		if token == "" {
			return all, nil
		}
		if l.limit > 0 && len(all) >= l.limit {
			fmt.Fprintf(p.err, "showing the first %d; raise --limit to see more\n", len(all))
			return all, nil
		}
		l.query.Set("next_page_token", token)
	}
}

// list prints a list: as a table with one row per item, or with --json as an array of unchanged items.
func list[T any](p *program, c *cobra.Command, l listing, head table.Row, row func(T) table.Row) error {
	items, err := p.readList(c, l)
	if err != nil {
		return err
	}
	if asJSON(c) {
		return p.printJSON(items)
	}
	if len(items) == 0 {
		return p.printf("none")
	}
	t := table.NewWriter()
	t.AppendHeader(head)
	if err := sortTable(c, t, head); err != nil {
		return err
	}
	for _, raw := range items {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			return fmt.Errorf("read the response: %w", err)
		}
		t.AppendRow(row(v))
	}
	return p.render(t)
}

// sortable adds the flag that sorts a list by one of its columns.
func sortable(c *cobra.Command) *cobra.Command {
	c.Flags().String("sort", "", "sort by this column; a leading - sorts in descending order: --sort=-started")
	return c
}

// sortTable sorts a table as the command's flag requests. It sorts only the listed rows, so the flag does not change
// which rows are listed.
func sortTable(c *cobra.Command, t table.Writer, head table.Row) error {
	by, err := c.Flags().GetString("sort")
	if err != nil || by == "" {
		return nil //nolint:nilerr // no such flag: a list that cannot be sorted
	}
	name, down := strings.CutPrefix(by, "-")
	mode := table.AscNumericAlpha
	if down {
		mode = table.DscNumericAlpha
	}
	var names []string
	for _, column := range head {
		names = append(names, fmt.Sprint(column))
		if column == name {
			t.SortBy([]table.SortBy{{Name: name, Mode: mode}})
			return nil
		}
	}
	return usageError{fmt.Errorf("--sort: unknown column %q; the columns are %s", name, strings.Join(names, ", "))}
}

// fact is a line in the view of one object; it is omitted if its value is empty.
type fact struct{ name, value string }

func (p *program) facts(all ...fact) error {
	for _, f := range all {
		if f.value == "" {
			continue
		}
		// Errors.Join puts each error on its own line.
		value := strings.ReplaceAll(f.value, "\n", "\n"+strings.Repeat(" ", 19))
		if err := p.printf("%-18s %s", f.name, value); err != nil {
			return err
		}
	}
	return nil
}

// stamp formats a time in the local time zone; a zero time is empty.
func stamp(t history.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}

func stampOf(t *history.Time) string {
	if t == nil {
		return ""
	}
	return stamp(*t)
}

// stringOf formats the value of a pointer; nil is empty.
func stringOf[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

// document reads the JSON of a flag: the value itself, @FILE, or - for standard input. An empty value is no document.
func (p *program) document(c *cobra.Command, flag, value string) (json.RawMessage, error) {
	return p.readJSON(c, "--"+flag, value)
}

// readJSON reads the JSON of a flag or argument with a name for error messages.
func (p *program) readJSON(c *cobra.Command, name, value string) (json.RawMessage, error) {
	raw, err := []byte(value), error(nil)
	switch {
	case value == "":
		return nil, nil
	case value == "-":
		raw, err = io.ReadAll(c.InOrStdin())
	case value[0] == '@':
		raw, err = os.ReadFile(value[1:])
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if raw = bytes.TrimSpace(raw); !json.Valid(raw) {
		return nil, usageError{fmt.Errorf("%s is not JSON: %.60s", name, raw)}
	}
	return raw, nil
}

// arguments reads the JSON array of a workflow's, signal's, query's or update's arguments.
func (p *program) arguments(c *cobra.Command, value string) (json.RawMessage, error) {
	return p.array(c, "--input", value)
}

// array reads a JSON array of arguments.
func (p *program) array(c *cobra.Command, name, value string) (json.RawMessage, error) {
	raw, err := p.readJSON(c, name, value)
	if err == nil && len(raw) > 0 && raw[0] != '[' && !envelope(raw) {
		err = usageError{fmt.Errorf("%s must be a JSON array of arguments, for example '[\"Ada\", 1]'; got %.60s", name, raw)}
	}
	return raw, err
}

// envelope reports whether JSON is an encoded value.
func envelope(raw json.RawMessage) bool {
	var v struct {
		Blob  *string `json:"blob"`
		Codec *string `json:"codec"`
	}
	return json.Unmarshal(raw, &v) == nil && v.Blob != nil && v.Codec != nil
}

const inputHelp = "arguments as a JSON array; @FILE reads a file, - standard input"

// requestID returns the given ID or a new one. With an ID, a request that is repeated at another app after a lost
// response takes effect once.
func requestID(given string) string {
	if given != "" {
		return given
	}
	return "sojourn-cli-" + ulid.Make().String()
}
