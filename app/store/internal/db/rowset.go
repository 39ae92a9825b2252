package db

import (
	"encoding/json"
	"strconv"
)

// Rowset holds the parameters of a statement for rows of one table, column by column. PostgreSQL takes the columns as
// arrays; for SQLite they are converted to rows. A row is added by its columns in the table's order.
type Rowset struct {
	columns []Column
	text    [][]string
	ints    [][]int64
	N, at   int
}

// NewRowset begins rows of these columns.
func NewRowset(columns []Column) *Rowset {
	return &Rowset{columns: columns}
}

// initialRows is the initial capacity of a rowset in rows.
const initialRows = 2

// begin allocates the columns on first use, since most rowsets of a batch stay empty. Others have one or two rows, for
// which all columns share one allocation.
func (r *Rowset) begin() {
	if r.text != nil {
		return
	}
	r.text, r.ints = make([][]string, len(r.columns)), make([][]int64, len(r.columns))
	nums := 0
	for i := range r.columns {
		if r.columns[i].num {
			nums++
		}
	}
	text, ints := make([]string, initialRows*(len(r.columns)-nums)), make([]int64, initialRows*nums)
	for i := range r.columns {
		if r.columns[i].num {
			r.ints[i], ints = ints[:0:initialRows], ints[initialRows:]
		} else {
			r.text[i], text = text[:0:initialRows], text[initialRows:]
		}
	}
}

// S adds a text to the row being filled.
func (r *Rowset) S(v string) *Rowset {
	r.begin()
	r.text[r.at] = append(r.text[r.at], v)
	return r.next()
}

// I adds an integer.
func (r *Rowset) I(v int64) *Rowset {
	r.begin()
	r.ints[r.at] = append(r.ints[r.at], v)
	return r.next()
}

func (r *Rowset) next() *Rowset {
	if r.at++; r.at == len(r.columns) {
		r.at = 0
		r.N++
	}
	return r
}

// Clear removes all rows and keeps the allocated memory.
func (r *Rowset) Clear() {
	for c := range r.text {
		clear(r.text[c])
		r.text[c], r.ints[c] = r.text[c][:0], r.ints[c][:0]
	}
	r.N, r.at = 0, 0
}

// Empty reports whether there are no rows.
func (r *Rowset) Empty() bool { return r.N == 0 }

// row appends the values of row k to args, zero values of optional columns as nil. If a text equals that of the
// previous row, whose values are in above, it reuses the interface value of that row: most columns have the same value
// in all rows of a batch.
func (r *Rowset) row(args []any, k int, above []any) []any {
	for c, column := range r.columns {
		switch {
		case column.num && column.null && r.ints[c][k] == 0:
			args = append(args, nil)
		case column.num:
			args = append(args, r.ints[c][k])
		case column.null && r.text[c][k] == "":
			args = append(args, nil)
		case k > 0 && len(above) > 0 && above[c] != nil && r.text[c][k] == r.text[c][k-1]:
			args = append(args, above[c])
		default:
			args = append(args, r.text[c][k])
		}
	}
	return args
}

// Arrays returns the addresses of the columns: a slice in an interface would be a separate allocation.
func (r *Rowset) Arrays() []any {
	if r.text == nil { // no further row is added
		r.text, r.ints = make([][]string, len(r.columns)), make([][]int64, len(r.columns))
	}
	args := make([]any, len(r.columns))
	for c, column := range r.columns {
		if column.num {
			args[c] = &r.ints[c]
		} else {
			args[c] = &r.text[c]
		}
	}
	return args
}

// JSON returns the rows as an array of arrays: how keys are given to a database without array parameters.
func (r *Rowset) JSON() string {
	b := []byte{'['}
	for k := range r.N {
		if k > 0 {
			b = append(b, ',')
		}
		for c, column := range r.columns {
			if c == 0 {
				b = append(b, '[')
			} else {
				b = append(b, ',')
			}
			if column.num {
				b = strconv.AppendInt(b, r.ints[c][k], 10)
			} else {
				q, _ := json.Marshal(r.text[c][k])
				b = append(b, q...)
			}
		}
		b = append(b, ']')
	}
	return string(append(b, ']'))
}
