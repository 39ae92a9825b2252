package apptest

import (
	"cmp"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// Dump contains the rows of all tables of a database as text, sorted. It omits the table of batches, which only records
// the time of the last write.
type Dump map[string][]string

// DumpDatabase reads all tables of a database (sqlite:PATH or postgres://…) on its own connection; an app may have it
// open.
func DumpDatabase(t testing.TB, database string) Dump {
	t.Helper()
	driver, source, tables := "pgx", database,
		`SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'`
	if path, ok := strings.CutPrefix(database, "sqlite:"); ok {
		driver, source, tables = "sqlite", "file:"+path+"?mode=ro&_pragma=busy_timeout(10000)",
			`SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	d := Dump{}
	for _, row := range dumpRows(t, db, tables) {
		name := strings.TrimSuffix(strings.TrimPrefix(row, "["), "]")
		if name != "batches" {
			d[name] = dumpRows(t, db, `SELECT * FROM "`+name+`"`)
		}
		if name == "workers" { // the rows by which apps of one database announce themselves change at any time
			d[name] = slices.DeleteFunc(d[name], func(row string) bool { return strings.HasPrefix(row, "[/apps ") })
		}
		if name == "namespaces" { // the usage of a namespace is stored up to a second later
			for i, row := range d[name] {
				d[name][i] = strings.ReplaceAll(usage.ReplaceAllString(row, ""), "{,", "{")
			}
		}
		// the last use of a token is stored from time to time, whatever the outcome of the request
		if name == "tokens" {
			for i, row := range d[name] {
				d[name][i] = usedAt.ReplaceAllString(row, "")
			}
		}
	}
	if len(d) == 0 {
		t.Fatalf("%s has no tables", driver)
	}
	return d
}

var usedAt = regexp.MustCompile(`, *"used_at": *[0-9]+`)

// usage matches the usage members in a namespace's row, which an app stores once a second, independently of other
// changes.
var usage = regexp.MustCompile(`,? *"(usage": *\{[^}]*\}|counted_at": *"[^"]*")`)

// Dump reads all tables of the app's database.
func (a *App) Dump() Dump {
	a.t.Helper()
	return DumpDatabase(a.t, a.Database)
}

// Diff lists the rows that only one of two dumps contains; empty if the dumps are equal. It skips the given tables.
func (d Dump) Diff(other Dump, ignored ...string) string {
	var lines []string
	names := map[string]bool{}
	for name := range d {
		names[name] = true
	}
	for name := range other {
		names[name] = true
	}
	for name := range names {
		if slices.Contains(ignored, name) {
			continue
		}
		for _, row := range missing(d[name], other[name]) {
			lines = append(lines, "- "+name+" "+row)
		}
		for _, row := range missing(other[name], d[name]) {
			lines = append(lines, "+ "+name+" "+row)
		}
	}
	slices.SortFunc(lines, func(a, b string) int { return cmp.Or(cmp.Compare(a[2:], b[2:]), cmp.Compare(b, a)) })
	return strings.Join(lines, "\n")
}

// missing returns the rows of one sorted list that another list does not have, or has less often.
func missing(of, in []string) []string {
	var rows []string
	j := 0
	for _, row := range of {
		for j < len(in) && in[j] < row {
			j++
		}
		if j < len(in) && in[j] == row {
			j++
			continue
		}
		rows = append(rows, row)
	}
	return rows
}

func dumpRows(t testing.TB, db *sql.DB, query string) []string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	list := []string{}
	for rows.Next() {
		cells := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		for i, c := range cells {
			if raw, ok := c.([]byte); ok {
				cells[i] = string(raw)
			}
		}
		list = append(list, fmt.Sprint(cells))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}
