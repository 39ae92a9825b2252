package db

import (
	"container/list"
	"context"
	"database/sql"
	"sync"
	"sync/atomic"
)

// SQLite parses and plans a statement each time it is executed unprepared. A driver without a statement cache
// therefore reads through Prepared.

// MaxPrepared is the maximum number of statements that are prepared on each connection of a pool. It is above the
// number of statements that the store reads with, including the usual filters of listings.
const MaxPrepared = 256

// maxPreparedLength is the maximum length of a prepared statement in bytes. Longer statements contain lists of keys and
// rarely occur again.
const maxPreparedLength = 16 << 10

// Prepared executes the statements of a pool as prepared statements and keeps the most recently used of them. All
// methods may be called concurrently. It implements gorm's ConnPool.
type Prepared struct {
	db    *sql.DB
	spare chan struct{} // limits open transactions, so that one connection stays free to prepare statements

	mu     sync.Mutex // guards the following fields
	known  map[string]*list.Element
	recent list.List // list of *prepared, the most recently used first

	made atomic.Int64
}

type prepared struct {
	text string
	stmt *sql.Stmt
	// uses is the number of calls that are about to execute the statement. An evicted statement is closed after the
	// last of them; database/sql then closes it on each connection when no rows are read from it.
	uses    int
	evicted bool
}

// NewPrepared returns the prepared statements of a pool of at most conns connections, at least two.
func NewPrepared(pool *sql.DB, conns int) *Prepared {
	return &Prepared{db: pool, spare: make(chan struct{}, max(conns-1, 1)), known: map[string]*list.Element{}}
}

// Made returns the number of statements that were prepared so far. A statement that is used on several connections
// counts once.
func (p *Prepared) Made() int64 { return p.made.Load() }

// QueryContext executes a query on any connection.
func (p *Prepared) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := p.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return p.db.QueryContext(ctx, query, args...) //nolint:sqlclosecheck // the caller does
	}
	defer p.release(s)
	return s.stmt.QueryContext(ctx, args...) //nolint:sqlclosecheck // the caller does
}

// QueryRowContext executes a query of one row on any connection.
func (p *Prepared) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s, err := p.statement(ctx, query)
	if err != nil || s == nil { // the row of an invalid statement returns the error
		return p.db.QueryRowContext(ctx, query, args...)
	}
	defer p.release(s)
	return s.stmt.QueryRowContext(ctx, args...)
}

// ExecContext executes a statement on any connection, without keeping it.
func (p *Prepared) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return p.db.ExecContext(ctx, query, args...)
}

// PrepareContext prepares a statement that the caller closes.
func (p *Prepared) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	return p.db.PrepareContext(ctx, query)
}

// Begin begins a transaction. The caller must call end, which ends the transaction without a commit.
func (p *Prepared) Begin(ctx context.Context, o *sql.TxOptions) (tx *PreparedTx, end func(), err error) {
	select {
	case p.spare <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	in, err := p.db.BeginTx(ctx, o)
	if err != nil {
		<-p.spare
		return nil, nil, err
	}
	return &PreparedTx{p, in}, func() {
		_ = in.Rollback()
		<-p.spare
	}, nil
}

// PreparedTx is a transaction that executes prepared statements.
type PreparedTx struct {
	p  *Prepared
	tx *sql.Tx
}

// QueryContext executes a query in the transaction.
func (t *PreparedTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := t.p.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return t.tx.QueryContext(ctx, query, args...) //nolint:sqlclosecheck // the caller does
	}
	defer t.p.release(s)
	return t.tx.StmtContext(ctx, s.stmt).QueryContext(ctx, args...) //nolint:sqlclosecheck // the caller does
}

// statement returns the prepared statement of a text for one use, which the caller releases; nil for a text that is too
// long to be kept.
func (p *Prepared) statement(ctx context.Context, text string) (*prepared, error) {
	if len(text) > maxPreparedLength {
		return nil, nil
	}
	s := p.find(text)
	if s == nil { // not prepared, or evicted
		stmt, err := p.db.PrepareContext(ctx, text)
		if err != nil {
			return nil, err
		}
		p.made.Add(1)
		s = p.remember(text, stmt)
	}
	return s, nil
}

// find returns the known statement of a text for one use; nil if it is not known.
func (p *Prepared) find(text string) *prepared {
	p.mu.Lock()
	defer p.mu.Unlock()
	e, ok := p.known[text]
	if !ok {
		return nil
	}
	p.recent.MoveToFront(e)
	s := e.Value.(*prepared)
	s.uses++
	return s
}

// remember stores a new statement, for one use. If another goroutine has prepared the same text meanwhile, it closes
// the new one.
func (p *Prepared) remember(text string, stmt *sql.Stmt) (s *prepared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e, ok := p.known[text]; ok {
		s = e.Value.(*prepared)
		_ = stmt.Close() // a connection that cannot close a statement fails at its next use
	} else {
		s = &prepared{text: text, stmt: stmt}
		p.known[text] = p.recent.PushFront(s)
	}
	s.uses++
	if p.recent.Len() > MaxPrepared {
		last := p.recent.Remove(p.recent.Back()).(*prepared)
		delete(p.known, last.text)
		if last.evicted = true; last.uses == 0 {
			_ = last.stmt.Close()
		}
	}
	return s
}

// release ends one use of a statement.
func (p *Prepared) release(s *prepared) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.uses--; s.evicted && s.uses == 0 {
		_ = s.stmt.Close()
	}
}
