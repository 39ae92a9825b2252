// Package read contains the store's read-only queries: single rows, listings, counts and due rows.
package read

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"github.com/sojourn-run/sojourn/app/store"
	"github.com/sojourn-run/sojourn/app/store/internal/clock"
	"github.com/sojourn-run/sojourn/app/store/internal/db"
	"github.com/sojourn-run/sojourn/app/store/internal/record"
	"github.com/sojourn-run/sojourn/shared/history"
)

// Reads use connections other than the committer's and take no locks, so a long listing never delays a commit. A read
// sees committed data only, which may be older than a response that another app has just sent.

// Pool reads a database over separate connections, and counts its reads.
type Pool struct {
	db      *sql.DB
	stmts   *db.Prepared // nil: the driver prepares the statements of db
	gorm    *gorm.DB
	dialect db.Dialect
	clock   *clock.Clock
	count   *atomic.Int64
	few     int // maximum number of runs that a listing reads completely and sorts
	st      statements
	recent  recent
}

// New returns a pool for an open database. prepared is nil if the driver prepares statements itself. few is the maximum
// number of runs that a listing reads completely and sorts; 0 selects the default.
func New(
	pool *sql.DB, prepared *db.Prepared, dialector gorm.Dialector, dialect db.Dialect, clock *clock.Clock,
	count *atomic.Int64, few int,
) (*Pool, error) {
	if few <= 0 {
		few = fewRuns
	}
	p := &Pool{
		db: pool, stmts: prepared, dialect: dialect, clock: clock, count: count, few: few, st: newStatements(dialect),
	}
	var err error
	if p.gorm, err = gorm.Open(dialector, gormConfig()); err != nil {
		return nil, fmt.Errorf("listings: %w", err)
	}
	return p, nil
}

// View calls fn with a reader. If the database is unreachable, the error wraps store.ErrUnavailable.
func (p *Pool) View(fn func(store.Reader) error) error {
	return p.dialect.WrapUnavailable(fn(p.reader()))
}

// Now returns the store's time; on a shared database it reads the server's clock.
func (p *Pool) Now(ctx context.Context) (time.Time, error) {
	if !p.dialect.Shared {
		return p.clock.Now(), nil
	}
	p.count.Add(1)
	sent := p.clock.Steady()
	var at int64
	err := p.db.QueryRowContext(ctx, "SELECT "+clock.SQL).Scan(&at)
	if err != nil {
		return time.Time{}, fmt.Errorf("store's clock: %w", p.dialect.WrapUnavailable(err))
	}
	return p.clock.At(at, sent), nil
}

// statements holds queries that are composed once and used for every read.
type statements struct {
	opens, heads string // rows of everything open in given runs; rows of the runs that are open
	currents     string // the runs that workflow IDs address
	arguments    string // rows of events
	inboxSizes   string // sizes of signals in inboxes
	tasksIn      string // counts that rows of sessions do not store
	listIn       string // open tasks of one session, without the limit
	lastEnded    string // attempts that ended in one session since a time
	behind       string // ended attempts in a session, read through their leading rows
}

func newStatements(d db.Dialect) statements {
	return statements{
		opens: record.OpenRows(d),
		heads: d.Probe(
			record.Runs.Key(), "t."+strings.Join(record.Runs.Names(), ", t."), "runs", "t.status = 'running'", "",
		),
		currents:  d.Probe(record.Workflows.Key(), "t.workflow_id, t.run_id", record.Workflows.Name, "", ""),
		arguments: record.RowsOf(d),
		inboxSizes: d.Probe(
			record.SignalInbox.Key(), "t.number, t.bytes, octet_length(t.body)", record.SignalInbox.Name, "", "",
		),
		tasksIn: record.CountTasks(d, true),
		listIn: "SELECT run_id, seq, body FROM (" +
			record.OpenIn(d, "t.run_id, t.seq, t.body, t.owner, t.priority, t.ready_at") +
			") AS t ORDER BY CASE WHEN owner IS NULL THEN 1 ELSE 0 END, priority, ready_at, run_id, seq LIMIT ",
		lastEnded: record.LastEnded(d),
		behind:    record.Behind(d),
	}
}

// querier is a pool or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// reader runs queries on the pool, or on one transaction if several queries must read the same snapshot.
type reader struct {
	*Pool
	q querier
}

var _ store.Reader = (*reader)(nil)

func (p *Pool) reader() *reader {
	if p.stmts != nil {
		return &reader{p, p.stmts}
	}
	return &reader{p, p.db}
}

// query runs one statement and calls row for each rowand stops at the first error of row.
func (r *reader) query(ctx context.Context, query string, args []any, row func(v []any) error) error {
	r.count.Add(1)
	rows, err := r.q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	v := make([]any, len(columns))
	into := make([]any, len(columns))
	for i := range v {
		into[i] = &v[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return err
		}
		if err := row(v); err != nil {
			return err
		}
	}
	return rows.Err()
}

// queryRow runs a statement that returns at most one row. It returns ErrNotFound if there is none.
func (r *reader) queryRow(ctx context.Context, query string, args []any, row func(v []any) error) error {
	found := false
	err := r.query(ctx, query, args, func(v []any) error {
		found = true
		return row(v)
	})
	if err == nil && !found {
		return store.ErrNotFound
	}
	return err
}

// inSnapshot calls read with a reader of one snapshot.
func (r *reader) inSnapshot(ctx context.Context, read func(*reader) error) error {
	o := &sql.TxOptions{ReadOnly: true, Isolation: r.snapshot()}
	if r.stmts != nil {
		tx, end, err := r.stmts.Begin(ctx, o)
		if err != nil {
			return wrapRead(err, "begin to read")
		}
		defer end()
		return read(&reader{r.Pool, tx})
	}
	tx, err := r.db.BeginTx(ctx, o)
	if err != nil {
		return wrapRead(err, "begin to read")
	}
	defer func() { _ = tx.Rollback() }()
	return read(&reader{r.Pool, tx})
}

// snapshot returns the isolation level at which all reads of a transaction see the same state.
func (p *Pool) snapshot() sql.IsolationLevel {
	if p.dialect.Shared {
		return sql.LevelRepeatableRead
	}
	return sql.LevelDefault // every read transaction of SQLite reads one snapshot
}

// Ping runs a statement, because the driver's ping does not use the prepared statements that every other read uses.
func (r *reader) Ping(ctx context.Context) error {
	return r.queryRow(ctx, "SELECT 1", nil, func([]any) error { return nil })
}

// errEnough is returned by a row function to end a query early; it is not an error for the caller.
var errEnough = errors.New("enough")

// selectAll returns "SELECT all columns FROM table".
func selectAll(t *db.Table) string {
	return "SELECT " + strings.Join(t.Names(), ", ") + " FROM " + t.Name
}

// wrapRead adds a description of what was read to err; a nil error stays nil.
func wrapRead(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(slices.Clip(args), err)...)
}

func micros(t time.Time) int64 { return history.At(t).Micros() }
