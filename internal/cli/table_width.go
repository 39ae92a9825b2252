package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// render prints a table. On a terminal it fits the terminal's width; otherwise, as in a pipe, it is complete.
func (p *program) render(t table.Writer) error {
	out, most := t.Render(), width(p.out)
	if most == 0 {
		return p.printf("%s", out)
	}
	border, rest, _ := strings.Cut(out, "\n")
	head, _, _ := strings.Cut(rest, "\n")
	columns, left := fitColumns(borders(border), titles(head), most)
	if columns != nil {
		t.SetColumnConfigs(columns)
		out = t.Render()
	}
	err := p.printf("%s", out)
	if len(left) > 0 {
		fmt.Fprintf(p.err, "columns omitted: %s; to see all use a wider terminal, a pipe or --json\n", strings.Join(left, ", "))
	}
	return err
}

// width returns the number of columns of a terminal; 0 if it is unknown or if there is no terminal.
func width(out any) int {
	f, ok := out.(*os.File)
	if !ok {
		return 0
	}
	n, _, err := term.GetSize(int(f.Fd())) //nolint:gosec // a file's number is no larger than an int
	if err != nil {
		return 0
	}
	return n
}

// borders returns the widths of columns, from the line above them: +----+--+.
func borders(line string) (widths []int) {
	for _, column := range strings.Split(strings.Trim(line, "+"), "+") {
		widths = append(widths, len(column)-2) // a space on either side
	}
	return widths
}

// titles returns the names of columns, from the line that contains them: | ID | TYPE |.
func titles(line string) (names []string) {
	for _, name := range strings.Split(strings.Trim(line, "|"), "|") {
		names = append(names, strings.ToLower(strings.TrimSpace(name)))
	}
	return names
}

// telling is the width in columns below which a shortened table column is useless. If the terminal is too narrow,
// columns are omitted in the order of lesser; at the minimum each column has the narrowest width.
const (
	usefulWidth = 16
	narrowest   = 4
)

var omittedFirst = []string{"queue", "closed", "created", "runtime", "origin", "ready", "running", "run", "started"}

// fitColumns narrows the widest columns equally until the table fits a terminal, and omits less important columns
// before they become too narrow. It returns nil if the table fits unchanged.
func fitColumns(widths []int, names []string, most int) (columns []table.ColumnConfig, left []string) {
	narrow := func() (each int) {
		n := 0
		for i, w := range widths {
			if !slices.Contains(left, names[i]) {
				n++
				each = max(each, w)
			}
		}
		for room := most - 1 - 3*n; each > narrowest; each-- {
			sum := 0
			for i, w := range widths {
				if !slices.Contains(left, names[i]) {
					sum += min(w, each)
				}
			}
			if sum <= room {
				break
			}
		}
		return each
	}
	widest := slices.Max(widths)
	each := narrow()
	if each == widest {
		return nil, nil
	}
	for _, name := range omittedFirst {
		if each >= usefulWidth {
			break
		}
		// the row must identify its run
		if slices.Contains(names, name) && (name != "run" || slices.Contains(names, "workflow id")) {
			left = append(left, name)
			each = narrow()
		}
	}
	for i, w := range widths {
		switch {
		case slices.Contains(left, names[i]):
			columns = append(columns, table.ColumnConfig{Number: i + 1, Hidden: true})
		case w > each:
			columns = append(columns, table.ColumnConfig{Number: i + 1, WidthMax: each, WidthMaxEnforcer: snipLines})
		}
	}
	return columns, left
}

// snipLines shortens each line of a cell; an ellipsis marks shortened lines.
func snipLines(cell string, most int) string {
	lines := strings.Split(cell, "\n")
	for i, line := range lines {
		lines[i] = text.Snip(line, most, "…")
	}
	return strings.Join(lines, "\n")
}
