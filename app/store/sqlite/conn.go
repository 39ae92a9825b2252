package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"

	sqlite "modernc.org/sqlite"

	"github.com/sojourn-run/sojourn/app/store/internal/db"
)

// conn is the committer's connection: the driver's own, without database/sql around it, and every statement prepared
// once.
type conn struct {
	dsn   string
	c     driver.Conn
	stmts map[*db.Stmt]*prepared
	args  []driver.NamedValue // reused from call to call
	inTx  bool
	check *check // running check of the file
}

type prepared struct {
	driver.Stmt
	exec  driver.StmtExecContext
	query driver.StmtQueryContext
}

func (c *conn) openFile() error {
	raw, err := (&sqlite.Driver{}).Open(c.dsn)
	if err != nil {
		return err
	}
	c.c, c.stmts, c.inTx = raw, map[*db.Stmt]*prepared{}, false
	return nil
}

// Send runs the calls one after the other.
func (c *conn) Send(_ context.Context, calls []*db.Call) error {
	for _, call := range calls {
		if err := c.run(call); err != nil {
			return fmt.Errorf("%s: %w", statementHead(call.Stmt.SQL), err)
		}
	}
	return nil
}

// ReleaseMemory frees the pages that the connection holds.
func (c *conn) ReleaseMemory() error {
	e, ok := c.c.(driver.ExecerContext)
	if !ok {
		return nil
	}
	_, err := e.ExecContext(context.Background(), "PRAGMA shrink_memory", nil)
	return err
}

// run executes one call. Its context is never cancelled: a statement that has begun is completed.
func (c *conn) run(call *db.Call) error {
	p, err := c.prepare(call.Stmt)
	if err != nil {
		return err
	}
	c.args = c.args[:0]
	for i, a := range call.Args {
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	if call.Row == nil {
		res, err := p.exec.ExecContext(context.Background(), c.args)
		if err != nil {
			return err
		}
		switch {
		case call.Stmt.Control:
			c.inTx = call.Stmt.SQL != "COMMIT" && call.Stmt.SQL != "ROLLBACK"
		default:
			call.Affected, err = res.RowsAffected()
			if err == nil && call.Stmt.One && call.Affected != 1 {
				err = fmt.Errorf("wrote %d rows instead of one: another process changed the database", call.Affected)
			}
		}
		return err
	}
	rows, err := p.query.QueryContext(context.Background(), c.args)
	if err != nil {
		return err
	}
	v := make([]driver.Value, len(rows.Columns()))
	dest := make([]any, len(v))
	for {
		if err = rows.Next(v); err != nil {
			break
		}
		for i := range v {
			dest[i] = v[i]
		}
		if err = call.Row(dest); err != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, rows.Close())
}

func (c *conn) prepare(s *db.Stmt) (*prepared, error) {
	if p := c.stmts[s]; p != nil {
		return p, nil
	}
	raw, err := c.c.(driver.ConnPrepareContext).PrepareContext(context.Background(), s.SQL)
	if err != nil {
		return nil, err
	}
	p := &prepared{Stmt: raw, exec: raw.(driver.StmtExecContext), query: raw.(driver.StmtQueryContext)}
	c.stmts[s] = p
	return p, nil
}

var rollback = &db.Stmt{SQL: "ROLLBACK", Control: true}

// Reset rolls back, and opens a new connection if the rollback fails.
func (c *conn) Reset(context.Context) error {
	if !c.inTx {
		return nil
	}
	if err := c.run(&db.Call{Stmt: rollback}); err == nil {
		return nil
	}
	c.shut()
	if err := c.openFile(); err != nil {
		return fmt.Errorf("reopen: %w", err)
	}
	return nil
}

func (c *conn) shut() {
	for _, p := range c.stmts {
		_ = p.Close()
	}
	_ = c.c.Close()
}

// Close also ends the check of the file: SQLite checkpoints the log when the last connection is closed.
func (c *conn) Close(context.Context) error {
	err := c.check.stopCheck()
	c.shut()
	return err
}

// statementHead is the part of a statement that identifies it in errors.
func statementHead(sql string) string {
	if len(sql) > 60 {
		return sql[:60] + "…"
	}
	return sql
}
