// Package db contains the database connections and statements, and the dialects in which SQLite and PostgreSQL differ.
// It knows no table.
package db

import (
	"context"
)

// The committer uses a database through the interface Conn: SQLite and PostgreSQL have their own drivers behind it,
// because only one of them can send many statements in one round trip.

// Stmt is a statement of the committer, prepared once per connection and identified by its address.
type Stmt struct {
	SQL     string
	Control bool // BEGIN, COMMIT, ROLLBACK: not counted as a statement
	One     bool // writes exactly one row: on a database of one process, zero affected rows are an error
}

// Call is one statement sent to the database. Row is called for every returned row with values that are string, int64
// or nil and are valid until Row returns. Without Row the statement returns no rows.
type Call struct {
	Stmt     *Stmt
	Args     []any
	Row      func(v []any) error
	Affected int64 // set by Send: rows written
}

// Conn is the committer's connection: one goroutine uses it.
type Conn interface {
	// Send runs the calls in order, in one round trip where the database can; the first error ends it.
	Send(ctx context.Context, calls []*Call) error
	// Reset rolls the open transaction back, on a new connection if the old one is lost.
	Reset(ctx context.Context) error
	Close(ctx context.Context) error
}

// Class classifies database errors by the reaction they require. A faulty statement must not be retried, because it
// would fail forever; a transaction that lost a race must be retried. Every error therefore belongs to exactly one
// class.
type Class int

// These are the classes: the statement or its data are wrong; the transaction lost a race and must be run again; a lock
// was not available in time; the connection was lost; the database cannot write at all.
const (
	Guilty Class = iota
	Retryable
	Locked
	Lost
	Unavailable
)

// Both drivers return text as string, numbers as int64, and NULL as nil. There are no other column types, so these two
// functions read any column. NULL becomes the zero value, which is stored as NULL.

// Str returns a text value of a driver.
func Str(v any) string {
	s, _ := v.(string)
	return s
}

// Int returns a numeric value of a driver.
func Int(v any) int64 {
	i, _ := v.(int64)
	return i
}
