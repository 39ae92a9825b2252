package db

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sojourn-run/sojourn/app/store"
)

// SQLite and PostgreSQL differ in how rows are passed to a statement and in whether other processes write. All other
// SQL is generated once in this package, so that both follow the same rules, and the suite in storetest tests both.

// Dialect holds the differences between the two databases.
type Dialect struct {
	// Shared: other processes write the same database. Rows are then locked when they are read, locks are never waited
	// for, and caches are not trusted without a check. Such a database takes arrays as parameters; the other kind takes
	// rows of values, and lists of keys as JSON.
	Shared   bool
	Begin    string
	Classify func(error) Class
}

// WrapUnavailable wraps an error of an unavailable database in store.ErrUnavailable, because the read itself was
// correct.
func (d Dialect) WrapUnavailable(err error) error {
	if err == nil || errors.Is(err, store.ErrUnavailable) {
		return err
	}
	if class := d.Classify(err); class == Lost || class == Unavailable {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return err
}

// unnest returns a SELECT of the columns from the array parameters $1, $2, …; zero values of optional columns become
// NULL. With arrays, one statement writes any number of rows, so it is prepared once.
func unnest(columns []Column) string {
	var list, arrays, names []string
	for i, c := range columns {
		zero := "''"
		if c.num {
			zero = "0"
		}
		v := "u." + c.Name
		if c.null {
			v = fmt.Sprintf("NULLIF(u.%s, %s)", c.Name, zero)
		}
		list = append(list, v)
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, c.Typ()))
		names = append(names, c.Name)
	}
	return fmt.Sprintf(
		"SELECT %s FROM unnest(%s) AS u(%s)", strings.Join(list, ", "), strings.Join(arrays, ", "), strings.Join(names, ", "),
	)
}

// Loader is a prepared way to read rows by a list of keys.
type Loader struct {
	Stmt *Stmt
	keys []Column
	// Width is the number of columns of a locked row. They are followed by columns that are also returned for rows that
	// could not be locked: the primary key and, if the rows were selected by another key, that key. 0: no rows are
	// locked.
	Width int
}

// Call reads the rows of these keys.
func (d Dialect) Call(l *Loader, keys *Rowset, row func(v []any) error) *Call {
	if d.Shared {
		return &Call{Stmt: l.Stmt, Args: keys.Arrays(), Row: row}
	}
	return &Call{Stmt: l.Stmt, Args: []any{keys.JSON()}, Row: row}
}

// Keys returns the parameters for a list of keys.
func (d Dialect) Keys(keys *Rowset) []any {
	if d.Shared {
		return keys.Arrays()
	}
	return []any{keys.JSON()}
}

// Load returns a loader of all columns of a table by the key columns. On a shared database it locks the rows. For a row
// that another transaction has locked it returns only the key, so that the row is neither waited for nor treated as
// missing: a missing run would be reported as "not found".
func (d Dialect) Load(t *Table, key []Column, where string) *Loader {
	columns, width := "t."+strings.Join(t.Names(), ", t."), len(t.Columns)
	if t.Versioned && d.Shared {
		columns, width = columns+", "+VersionOf, width+1
	}
	if !d.Shared {
		return &Loader{Stmt: &Stmt{SQL: d.Probe(key, columns, t.Name, where, "")}, keys: key}
	}
	var on, same, found, names []string
	for _, c := range key {
		on = append(on, fmt.Sprintf("t.%s = k.%s", c.Name, c.Name))
	}
	if where != "" {
		on = append(on, where)
	}
	for _, c := range t.Key() {
		same = append(same, fmt.Sprintf("t.%s = h.%s", c.Name, c.Name))
		found, names = append(found, "t."+c.Name), append(names, "h."+c.Name)
	}
	for _, c := range key {
		if !slices.Contains(t.Key(), c) {
			names = append(names, "k."+c.Name)
		}
	}
	return &Loader{keys: key, Width: width, Stmt: &Stmt{SQL: fmt.Sprintf("SELECT p.*, %s FROM %s AS k"+
		" CROSS JOIN LATERAL (SELECT %s FROM %s AS t WHERE %s ORDER BY %s OFFSET 0) AS h"+
		" LEFT JOIN LATERAL (SELECT %s FROM %s AS t WHERE %s FOR UPDATE SKIP LOCKED) AS p ON true",
		strings.Join(names, ", "), d.List(key), strings.Join(found, ", "), t.Name, strings.Join(on, " AND "),
		strings.Join(found, ", "),
		columns, t.Name, strings.Join(same, " AND "))}}
}

// Probe returns a query of columns of a table t for every key k given as a parameter, which always uses an index. The
// planner must not choose a sequential scan because the table was small when it planned: such a plan is fast on the
// first day and stops the app on the hundredth. where may narrow the rows; tail may order and lock them.
func (d Dialect) Probe(key []Column, columns, t, where, tail string) string {
	return d.ProbeIn(d.List(key), key, columns, t, where, tail)
}

// ProbeIn is Probe for keys from another table expression.
func (d Dialect) ProbeIn(keys string, key []Column, columns, t, where, tail string) string {
	var on []string
	for _, c := range key {
		on = append(on, fmt.Sprintf("t.%s = k.%s", c.Name, c.Name))
	}
	if where != "" {
		on = append(on, where)
	}
	cond := strings.Join(on, " AND ")
	if !d.Shared { // with CROSS JOIN, SQLite keeps the order of a join
		return fmt.Sprintf("SELECT %s FROM %s AS k CROSS JOIN %s AS t ON %s", columns, keys, t, cond)
	}
	if tail == "" {
		tail = "OFFSET 0" // like a lock, it prevents the planner from reversing the join
	}
	return fmt.Sprintf(
		"SELECT p.* FROM %s AS k CROSS JOIN LATERAL (SELECT %s FROM %s AS t WHERE %s %s) AS p", keys, columns, t, cond, tail,
	)
}

// List returns a table expression of the keys given as parameters: arrays, or one JSON array of arrays.
func (d Dialect) List(key []Column) string {
	if d.Shared {
		var order []string
		for i := range key {
			order = append(order, fmt.Sprint(i+1))
		}
		return "(" + unnest(key) + " ORDER BY " + strings.Join(order, ", ") + ")"
	}
	var cols []string
	for i, c := range key {
		cols = append(cols, fmt.Sprintf("json_extract(value, '$[%d]') AS %s", i, c.Name))
	}
	return "(SELECT " + strings.Join(cols, ", ") + " FROM json_each(?))"
}

// ReuseParameter makes all parameters of a statement the same one, for statements that read the same keys in several
// places.
func ReuseParameter(d Dialect, statement string) string {
	if d.Shared { // its parameters are numbered
		return statement
	}
	return strings.ReplaceAll(statement, "?", "?1")
}
