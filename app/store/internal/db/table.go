package db

// Only values used in conditions, indexes or joins are columns. All other fields of a row are one JSON text, so that a
// new field of a run or a session needs no migration. The statements are generated from these tables, so that both
// databases load and write the same columns in the same order.

// Column is one column of a table. Every column is text or a 64-bit integer: documents are JSON text, times are
// microseconds.
type Column struct {
	Name  string
	num   bool // an integer, else text
	null  bool // the zero value is stored as NULL, so that partial indexes omit it
	fixed bool // never changes after the insert: omitted from updates, as are its indexes
}

// Table describes a table, for the generated statements. The first Keys columns are the primary key.
type Table struct {
	Name    string
	Keys    int
	Columns []Column
	Prune   bool // rows are deleted by key
	Many    bool // thousands of rows are written at once
	// Versioned: loaders of a shared database append the version of a row to its columns; see recall.go.
	Versioned bool
}

// Text returns a text column.
func Text(name string) Column { return Column{Name: name} }

// Num returns an integer column.
func Num(name string) Column { return Column{Name: name, num: true} }

// Opt marks a column whose empty value is stored as NULL.
func (c Column) Opt() Column { c.null = true; return c }

// Immutable marks a column that is only written by inserts, so that updates do not touch its indexes.
func (c Column) Immutable() Column { c.fixed = true; return c }

// Typ returns the SQL type of a column.
func (c Column) Typ() string {
	if c.num {
		return "bigint"
	}
	return "text"
}

// Key returns the columns of the primary key.
func (t *Table) Key() []Column { return t.Columns[:t.Keys] }

// Names returns the names of all columns.
func (t *Table) Names() []string {
	names := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		names[i] = c.Name
	}
	return names
}

// VersionOf is the expression for the version of a row t on a shared database; OwnVersion is the version of rows that
// the current transaction writes.
const (
	VersionOf  = "t.xmin::text::bigint"
	OwnVersion = "txid_current() & 4294967295"
)
