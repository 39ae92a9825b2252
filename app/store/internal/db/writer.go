package db

import (
	"fmt"
	"slices"
	"strings"
)

// A batch writes many rows with few statements: with array parameters where the database supports them, else in
// chunks. The chunk sizes are the powers of two up to a limit, and the limit, so that a few prepared statements serve
// any number of rows.

// maxChunkRows is the maximum number of rows in one statement of a database without array parameters.
const maxChunkRows = 32

// maxManyRows is the same maximum for tables to which one batch may write thousands of rows, such as the leases of
// sessions.
const maxManyRows = 2048

// maxValues is SQLITE_MAX_VARIABLE_NUMBER, the maximum number of parameters in a statement of SQLite.
const maxValues = 32_766

// Writer holds the prepared statements that write rows: one for arrays, or one for each chunk size.
type Writer struct {
	Stmts   []*Stmt // with arrays one statement; otherwise one per chunk size
	Columns []Column
	sizes   []int // chunk sizes in rows, ascending
	shared  bool
	// padded reports whether the same row may be written twice. The last chunk is then filled with copies of a row, so
	// that few statements serve any number of rows.
	padded bool
}

// Calls returns the calls that write all rows, in order.
func (w *Writer) Calls(r *Rowset) []*Call {
	if r.N == 0 {
		return nil
	}
	if w.shared {
		return []*Call{{Stmt: w.Stmts[0], Args: r.Arrays()}}
	}
	var calls []*Call
	var above []any
	for from := 0; from < r.N; {
		i := w.chunk(r.N - from)
		size := w.sizes[i]
		args := make([]any, 0, size*len(w.Columns))
		for k := from; k < from+size; k++ {
			args = r.row(args, min(k, r.N-1), above)
			above = args[len(args)-len(w.Columns):]
		}
		calls = append(calls, &Call{Stmt: w.Stmts[i], Args: args})
		from += size
	}
	return calls
}

// chunk returns the index of the chunk size for the next statement, given the number of remaining rows. If the rows may
// be padded, the last chunk may be larger than that number.
func (w *Writer) chunk(left int) int {
	i, exact := slices.BinarySearch(w.sizes, left)
	if exact || w.padded && left > maxChunkRows && i < len(w.sizes) && w.sizes[i]-left <= left/4 {
		return i
	}
	return i - 1
}

// writer returns a writer from the parts of a statement before and after its rows.
func (d Dialect) writer(columns []Column, make func(rows string) string) *Writer {
	return d.writerOf(columns, maxChunkRows, make)
}

func (d Dialect) writerOf(columns []Column, most int, make func(rows string) string) *Writer {
	w := &Writer{Columns: columns, shared: d.Shared}
	if d.Shared {
		w.Stmts = []*Stmt{{SQL: make(unnest(columns))}}
		return w
	}
	most = min(most, maxValues/len(columns))
	for size := 1; size < most; size *= 2 {
		w.sizes = append(w.sizes, size)
	}
	w.sizes = append(w.sizes, most)
	for _, size := range w.sizes {
		w.Stmts = append(w.Stmts, &Stmt{SQL: make(values(len(columns), size))})
	}
	return w
}

func values(columns, rows int) string {
	row := "(?" + strings.Repeat(", ?", columns-1) + ")"
	return "VALUES " + row + strings.Repeat(", "+row, rows-1)
}

// Insert writes new rows.
func (d Dialect) Insert(t *Table) *Writer {
	return d.writer(t.Columns, func(rows string) string {
		return fmt.Sprintf("INSERT INTO %s (%s) %s", t.Name, strings.Join(t.Names(), ", "), rows)
	})
}

// Ensure inserts rows, and leaves rows that exist unchanged.
func (d Dialect) Ensure(t *Table) *Writer {
	return d.writer(t.Columns, func(rows string) string {
		return fmt.Sprintf("INSERT INTO %s (%s) %s ON CONFLICT DO NOTHING", t.Name, strings.Join(t.Names(), ", "), rows)
	})
}

// EnsureOf inserts missing rows that belong to a row of another table. Both tables have the same first column; a row
// without its owner in the other table is not inserted.
func (d Dialect) EnsureOf(t, owner *Table) *Writer {
	return d.writer(t.Columns, func(rows string) string {
		names := strings.Join(t.Names(), ", ")
		return fmt.Sprintf(
			"INSERT INTO %s (%s) WITH k (%s) AS (%s) SELECT %s FROM k"+
				" WHERE EXISTS (SELECT 1 FROM %s AS o WHERE o.%s = k.%s) ON CONFLICT DO NOTHING",
			t.Name, names, names, rows, names, owner.Name, owner.Columns[0].Name, t.Columns[0].Name,
		)
	})
}

// Upsert inserts or updates rows. An update leaves immutable columns and the columns in but unchanged.
func (d Dialect) Upsert(t *Table, but ...string) *Writer {
	var key, set []string
	for _, c := range t.Key() {
		key = append(key, c.Name)
	}
	for _, c := range t.Columns[t.Keys:] {
		if !c.fixed && !slices.Contains(but, c.Name) {
			set = append(set, c.Name+" = excluded."+c.Name)
		}
	}
	size := maxChunkRows
	if t.Many {
		size = maxManyRows
	}
	w := d.writerOf(t.Columns, size, func(rows string) string {
		return fmt.Sprintf("INSERT INTO %s (%s) %s ON CONFLICT (%s) DO UPDATE SET %s",
			t.Name, strings.Join(t.Names(), ", "), rows, strings.Join(key, ", "), strings.Join(set, ", "))
	})
	w.padded = t.Many
	return w
}

// Succeed returns a writer that replaces rows of a table by rows with another last key column, which is a number. Each
// of its rows is the new row, followed by the previous number. It replaces a DELETE and an INSERT, because most steps
// of a run end one task and create one. On SQLite it is one statement per row, which is cheaper than a join. The
// previous row must exist: on a shared database the batch has just read and locked it; on SQLite, whose batches use
// caches, the affected rows are checked.
func (d Dialect) Succeed(t *Table) *Writer {
	columns := append(slices.Clip(t.Columns), Num("was"))
	var key, set []string
	for i, c := range t.Columns {
		v := "k." + c.Name
		if !d.Shared {
			v = fmt.Sprintf("?%d", i+1)
		}
		if i < t.Keys-1 {
			key = append(key, fmt.Sprintf("t.%s = %s", c.Name, v))
		} else {
			set = append(set, c.Name+" = "+v)
		}
	}
	last := t.Columns[t.Keys-1].Name
	if !d.Shared {
		where := strings.Join(append(key, fmt.Sprintf("t.%s = ?%d", last, len(columns))), " AND ")
		return &Writer{Columns: columns, sizes: []int{1}, Stmts: []*Stmt{{
			SQL: fmt.Sprintf("UPDATE %s AS t SET %s WHERE %s", t.Name, strings.Join(set, ", "), where), One: true,
		}}}
	}
	where := strings.Join(append(key, fmt.Sprintf("t.%s = k.was", last)), " AND ")
	return &Writer{Columns: columns, shared: true, Stmts: []*Stmt{{
		SQL: fmt.Sprintf("UPDATE %s SET %s FROM (SELECT k.*, p.place FROM (%s) AS k(%s) CROSS JOIN LATERAL"+
			" (SELECT t.ctid AS place FROM %s AS t WHERE %s OFFSET 0) AS p) AS k WHERE %s.ctid = k.place",
			t.Name, strings.Join(set, ", "), unnest(columns), strings.Join(append(t.Names(), "was"), ", "), t.Name, where,
			t.Name),
	}}}
}

// Raise returns a writer of rows with a key and one number. An existing number is only raised, never lowered.
func (d Dialect) Raise(t *Table) *Writer {
	names := t.Names()
	all, k, v := strings.Join(names, ", "), strings.Join(names[:t.Keys], ", "), names[t.Keys]
	return d.writer(t.Columns, func(rows string) string {
		return fmt.Sprintf("INSERT INTO %s (%s) %s ON CONFLICT (%s) DO UPDATE SET %s = excluded.%s WHERE excluded.%s > %s.%s",
			t.Name, all, rows, k, v, v, v, t.Name, v)
	})
}

// Remove deletes rows by key. A shared database has already locked them, so their ctid is selected first and used for
// the DELETE.
func (d Dialect) Remove(t *Table) *Writer { return d.RemoveBy(t, t.Key()) }

// RemoveBy deletes all rows with these values in some of the key's columns.
func (d Dialect) RemoveBy(t *Table, columns []Column) *Writer {
	if d.Shared {
		return &Writer{Columns: columns, shared: true, Stmts: []*Stmt{{
			SQL: fmt.Sprintf("DELETE FROM %s WHERE ctid = ANY(ARRAY(%s))", t.Name, d.Probe(columns, "t.ctid", t.Name, "", "")),
		}}}
	}
	var key []string
	for _, c := range columns {
		key = append(key, c.Name)
	}
	return d.writer(columns, func(rows string) string {
		return fmt.Sprintf("DELETE FROM %s WHERE (%s) IN (%s)", t.Name, strings.Join(key, ", "), rows)
	})
}
