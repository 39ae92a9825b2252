package sqldb

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// SQLite and PostgreSQL differ in how rows are given to a statement and in who else writes. Everything else is
// the same text, which is made here, so that a rule of storage exists once and the suite in storetest holds
// both.

// Dialect is the handful of words in which two databases differ.
type Dialect struct {
	// Shared says that other processes write the same database. Rows are then locked when they are read, a lock
	// is never waited for, and no cache is trusted without a check. Such a database takes arrays as parameters;
	// the other kind takes rows of values, and lists of keys as JSON.
	Shared   bool
	Begin    string
	Classify func(error) Class
}

// largest is the most rows that one statement of a database without array parameters writes. The prepared sizes
// are the powers of two up to it, so that a few prepared statements serve any number of rows.
const largest = 32

// most is the same for rows that are put by the thousand, as leases of sessions are. A statement takes up to 32,766
// values.
const most = 2048

// writer is a prepared way to write rows: one statement for arrays, or one for each chunk size.
type writer struct {
	stmts   []*Stmt // [0] for arrays; by power of two for chunks
	columns []column
	shared  bool
	// padded says that a row may be written twice, so that many rows need few statements: the last chunk is filled up.
	padded bool
}

// calls returns what writes all rows, in order.
func (w *writer) calls(r *rowset) []*Call {
	if r.n == 0 {
		return nil
	}
	if w.shared {
		return []*Call{{Stmt: w.stmts[0], Args: r.arrays()}}
	}
	var calls []*Call
	var above []any
	for from := 0; from < r.n; {
		size := w.chunk(r.n - from)
		args := make([]any, 0, size*len(w.columns))
		for k := from; k < from+size; k++ {
			args = r.row(args, min(k, r.n-1), above)
			above = args[len(args)-len(w.columns):]
		}
		calls = append(calls, &Call{Stmt: w.stmts[bits.Len(uint(size))-1], Args: args})
		from += size
	}
	return calls
}

// chunk is how many rows the next statement has when so many are left.
// A row that is written twice says the same twice, so the last chunk may be filled up with it where that saves
// statements.
func (w *writer) chunk(left int) int {
	size := min(1<<(len(w.stmts)-1), 1<<(bits.Len(uint(left))-1))
	if next := 2 * size; w.padded && left > largest && next < 1<<len(w.stmts) && next-left <= left/4 {
		return next
	}
	return size
}

// writer makes a writer from the head and the tail of a statement around its rows.
func (d Dialect) writer(columns []column, make func(rows string) string) *writer {
	return d.writerOf(columns, largest, make)
}

func (d Dialect) writerOf(columns []column, most int, make func(rows string) string) *writer {
	w := &writer{columns: columns, shared: d.Shared}
	if d.Shared {
		w.stmts = []*Stmt{{SQL: make(unnest(columns))}}
		return w
	}
	for size := 1; size <= most; size *= 2 {
		w.stmts = append(w.stmts, &Stmt{SQL: make(values(len(columns), size))})
	}
	return w
}

// unnest is a SELECT of the columns from array parameters $1…; zero values of optional columns become NULL.
// Arrays make one statement of any number of rows, so it is prepared once and its text never grows.
func unnest(columns []column) string {
	var list, arrays, names []string
	for i, c := range columns {
		zero := "''"
		if c.num {
			zero = "0"
		}
		v := "u." + c.name
		if c.null {
			v = fmt.Sprintf("NULLIF(u.%s, %s)", c.name, zero)
		}
		list = append(list, v)
		arrays = append(arrays, fmt.Sprintf("$%d::%s[]", i+1, c.typ()))
		names = append(names, c.name)
	}
	return fmt.Sprintf(
		"SELECT %s FROM unnest(%s) AS u(%s)", strings.Join(list, ", "), strings.Join(arrays, ", "), strings.Join(names, ", "),
	)
}

func values(columns, rows int) string {
	row := "(?" + strings.Repeat(", ?", columns-1) + ")"
	return "VALUES " + row + strings.Repeat(", "+row, rows-1)
}

// insert writes new rows.
func (d Dialect) insert(t *table) *writer {
	return d.writer(t.columns, func(rows string) string {
		return fmt.Sprintf("INSERT INTO %s (%s) %s", t.name, strings.Join(t.names(), ", "), rows)
	})
}

// ensure writes rows that are not there yet.
func (d Dialect) ensure(t *table) *writer {
	return d.writer(t.columns, func(rows string) string {
		return fmt.Sprintf("INSERT INTO %s (%s) %s ON CONFLICT DO NOTHING", t.name, strings.Join(t.names(), ", "), rows)
	})
}

// ensureOf is ensure of rows that belong to a row of another table, by the first column of both; those that belong to
// none are left out.
func (d Dialect) ensureOf(t, owner *table) *writer {
	return d.writer(t.columns, func(rows string) string {
		names := strings.Join(t.names(), ", ")
		return fmt.Sprintf(
			"INSERT INTO %s (%s) WITH k (%s) AS (%s) SELECT %s FROM k"+
				" WHERE EXISTS (SELECT 1 FROM %s AS o WHERE o.%s = k.%s) ON CONFLICT DO NOTHING",
			t.name, names, names, rows, names, owner.name, owner.columns[0].name, t.columns[0].name,
		)
	})
}

// upsert writes rows whether they are there or not, leaving fixed columns and those named as they are.
func (d Dialect) upsert(t *table, but ...string) *writer {
	var key, set []string
	for _, c := range t.key() {
		key = append(key, c.name)
	}
	for _, c := range t.columns[t.keys:] {
		if !c.fixed && !slices.Contains(but, c.name) {
			set = append(set, c.name+" = excluded."+c.name)
		}
	}
	size := largest
	if t.many {
		size = most
	}
	w := d.writerOf(t.columns, size, func(rows string) string {
		return fmt.Sprintf("INSERT INTO %s (%s) %s ON CONFLICT (%s) DO UPDATE SET %s",
			t.name, strings.Join(t.names(), ", "), rows, strings.Join(key, ", "), strings.Join(set, ", "))
	})
	w.padded = t.many
	return w
}

// succeed gives rows of a table to others that come in their place: the last column of the key, a number,
// becomes another. The rows given are the new ones, each followed by what that number was before. It stands for
// a DELETE and an INSERT, since the step of a run mostly ends one task and makes one. On SQLite it is one
// statement for each row, which costs less than one that joins many. The row that was must be there: a shared
// database has just read and locked it, and the other kind checks, because it believes what it remembers.
func (d Dialect) succeed(t *table) *writer {
	columns := append(slices.Clip(t.columns), num("was"))
	var key, set []string
	for i, c := range t.columns {
		v := "k." + c.name
		if !d.Shared {
			v = fmt.Sprintf("?%d", i+1)
		}
		if i < t.keys-1 {
			key = append(key, fmt.Sprintf("t.%s = %s", c.name, v))
		} else {
			set = append(set, c.name+" = "+v)
		}
	}
	last := t.columns[t.keys-1].name
	if !d.Shared {
		where := strings.Join(append(key, fmt.Sprintf("t.%s = ?%d", last, len(columns))), " AND ")
		return &writer{columns: columns, stmts: []*Stmt{{
			SQL: fmt.Sprintf("UPDATE %s AS t SET %s WHERE %s", t.name, strings.Join(set, ", "), where), One: true,
		}}}
	}
	where := strings.Join(append(key, fmt.Sprintf("t.%s = k.was", last)), " AND ")
	return &writer{columns: columns, shared: true, stmts: []*Stmt{{
		SQL: fmt.Sprintf("UPDATE %s SET %s FROM (SELECT k.*, p.place FROM (%s) AS k(%s) CROSS JOIN LATERAL"+
			" (SELECT t.ctid AS place FROM %s AS t WHERE %s OFFSET 0) AS p) AS k WHERE %s.ctid = k.place",
			t.name, strings.Join(set, ", "), unnest(columns), strings.Join(append(t.names(), "was"), ", "), t.name, where,
			t.name),
	}}}
}

// raise writes rows of a key and one number that never falls. Whoever comes late with a smaller number changes
// nothing.
func (d Dialect) raise(t *table) *writer {
	names := t.names()
	all, k, v := strings.Join(names, ", "), strings.Join(names[:t.keys], ", "), names[t.keys]
	return d.writer(t.columns, func(rows string) string {
		return fmt.Sprintf("INSERT INTO %s (%s) %s ON CONFLICT (%s) DO UPDATE SET %s = excluded.%s WHERE excluded.%s > %s.%s",
			t.name, all, rows, k, v, v, v, t.name, v)
	})
}

// remove deletes rows by key. What a shared database deletes is locked already, so its place is found first and
// then taken.
func (d Dialect) remove(t *table) *writer { return d.removeBy(t, t.key()) }

// removeBy deletes all rows with these values in some of the key's columns.
func (d Dialect) removeBy(t *table, columns []column) *writer {
	if d.Shared {
		return &writer{columns: columns, shared: true, stmts: []*Stmt{{
			SQL: fmt.Sprintf("DELETE FROM %s WHERE ctid = ANY(ARRAY(%s))", t.name, d.probe(columns, "t.ctid", t.name, "", "")),
		}}}
	}
	var key []string
	for _, c := range columns {
		key = append(key, c.name)
	}
	return d.writer(columns, func(rows string) string {
		return fmt.Sprintf("DELETE FROM %s WHERE (%s) IN (%s)", t.name, strings.Join(key, ", "), rows)
	})
}

// loader is a prepared way to read rows by a list of keys.
type loader struct {
	stmt *Stmt
	keys []column
	// width is how many columns a row has that could be locked. Behind them stands what one could not be: its primary key
	// and, when the rows are looked for by something else, that. 0: nothing is locked.
	width int
}

// call reads the rows of these keys.
func (d Dialect) call(l *loader, keys *rowset, row func(v []any) error) *Call {
	if d.Shared {
		return &Call{Stmt: l.stmt, Args: keys.arrays(), Row: row}
	}
	return &Call{Stmt: l.stmt, Args: []any{keys.json()}, Row: row}
}

// keys are the keys of such rows as parameters.
func (d Dialect) keys(keys *rowset) []any {
	if d.Shared {
		return keys.arrays()
	}
	return []any{keys.json()}
}

// load makes a loader: all columns of a table by the key columns. On a shared database the rows come locked. A
// row that another transaction has locked comes with its key alone, so that it is neither waited for nor taken
// for missing: a run that is taken for missing would be answered with "not found".
func (d Dialect) load(t *table, key []column, where string) *loader {
	columns, width := "t."+strings.Join(t.names(), ", t."), len(t.columns)
	if t.versioned && d.Shared {
		columns, width = columns+", "+versionOf, width+1
	}
	if !d.Shared {
		return &loader{stmt: &Stmt{SQL: d.probe(key, columns, t.name, where, "")}, keys: key}
	}
	var on, same, found, names []string
	for _, c := range key {
		on = append(on, fmt.Sprintf("t.%s = k.%s", c.name, c.name))
	}
	if where != "" {
		on = append(on, where)
	}
	for _, c := range t.key() {
		same = append(same, fmt.Sprintf("t.%s = h.%s", c.name, c.name))
		found, names = append(found, "t."+c.name), append(names, "h."+c.name)
	}
	for _, c := range key {
		if !slices.Contains(t.key(), c) {
			names = append(names, "k."+c.name)
		}
	}
	return &loader{keys: key, width: width, stmt: &Stmt{SQL: fmt.Sprintf("SELECT p.*, %s FROM %s AS k"+
		" CROSS JOIN LATERAL (SELECT %s FROM %s AS t WHERE %s ORDER BY %s OFFSET 0) AS h"+
		" LEFT JOIN LATERAL (SELECT %s FROM %s AS t WHERE %s FOR UPDATE SKIP LOCKED) AS p ON true",
		strings.Join(names, ", "), d.list(key), strings.Join(found, ", "), t.name, strings.Join(on, " AND "),
		strings.Join(found, ", "),
		columns, t.name, strings.Join(same, " AND "))}}
}

// probe selects columns of a table t for every key k given as a parameter, by an index and nothing else.
// Neither database may choose another way because the table was small when it planned: a plan that reads the
// whole table is fast on the first day and stops the app on the hundredth. where may narrow the rows; tail may
// order and lock them.
func (d Dialect) probe(key []column, columns, t, where, tail string) string {
	return d.probeIn(d.list(key), key, columns, t, where, tail)
}

// probeIn is probe for keys that another table expression lists.
func (d Dialect) probeIn(keys string, key []column, columns, t, where, tail string) string {
	var on []string
	for _, c := range key {
		on = append(on, fmt.Sprintf("t.%s = k.%s", c.name, c.name))
	}
	if where != "" {
		on = append(on, where)
	}
	cond := strings.Join(on, " AND ")
	if !d.Shared { // with this word SQLite keeps the order of a join
		return fmt.Sprintf("SELECT %s FROM %s AS k CROSS JOIN %s AS t ON %s", columns, keys, t, cond)
	}
	if tail == "" {
		tail = "OFFSET 0" // like a lock, it keeps the planner from turning the join around
	}
	return fmt.Sprintf(
		"SELECT p.* FROM %s AS k CROSS JOIN LATERAL (SELECT %s FROM %s AS t WHERE %s %s) AS p", keys, columns, t, cond, tail,
	)
}

// list is a table expression of the keys given as parameters: arrays, or one JSON array of arrays.
func (d Dialect) list(key []column) string {
	if d.Shared {
		var order []string
		for i := range key {
			order = append(order, fmt.Sprint(i+1))
		}
		return "(" + unnest(key) + " ORDER BY " + strings.Join(order, ", ") + ")"
	}
	var cols []string
	for i, c := range key {
		cols = append(cols, fmt.Sprintf("json_extract(value, '$[%d]') AS %s", i, c.name))
	}
	return "(SELECT " + strings.Join(cols, ", ") + " FROM json_each(?))"
}
